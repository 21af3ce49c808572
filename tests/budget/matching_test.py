"""The solver: what it finds is within tolerance and the rules, is as near as the study's own pairs, and comes again."""

import dataclasses
import math

import pytest

from experiments import smelt
from smelt_jax.budget.accounting import Ratios, budget_of, compare
from smelt_jax.budget.matching import Rules, match, mismatch, shape_distance, within
from smelt_jax.budget.protocols import find_partners, middle_loop, remedies, same_depth
from smelt_jax.config import resolve
from smelt_jax.model.config import AttentionConfig, ExpertsConfig, LoopConfig, ModelConfig

KEYS = 401.0
FREE = math.inf


def model(arg):
    return resolve(smelt.get_config(arg)).model


BASELINE = model('200m-s95-baseline')
DENSE = dataclasses.replace(BASELINE, experts=ExpertsConfig(count=1, per_token=1, width=3456))


@pytest.mark.parametrize('cell', smelt.CELLS)
def test_from_a_published_baseline_alone_it_is_at_least_as_near_as_the_published_partner(cell):
    baseline, published = model(f'{cell}-baseline'), model(f'{cell}-smelt')
    best = match(baseline, middle_loop(baseline, 0.5, 2), KEYS)[0]
    theirs = compare(budget_of(published, KEYS), budget_of(baseline, KEYS))
    assert best.model.loop == published.loop
    assert best.within
    assert best.mismatch < mismatch(theirs, Rules().tolerance)
    assert max(map(_off, best.ratios, Rules().tolerance)) <= max(map(_off, theirs, Rules().tolerance))


def _off(ratio, bound):
    return abs(ratio - 1) / bound


def test_the_published_partner_of_1_6b_is_among_the_first_five():
    baseline, published = model('1.6b-s97-baseline'), model('1.6b-s97-smelt')
    assert published in [partner.model for partner in match(baseline, published.loop, KEYS)]


@pytest.mark.parametrize(
    'rules',
    [
        Rules(),
        Rules(multiple_of=16, head_dim_multiple=4, experts_multiple=16),
        Rules(multiple_of=128),
        Rules(tolerance=Ratios(0.01, 0.005, 0.02)),
    ],
)
def test_partners_keep_the_rules_and_say_truly_how_far_off_they_are(rules):
    loop = middle_loop(BASELINE, 0.5, 2)
    partners = match(BASELINE, loop, KEYS, rules)
    assert partners[0].within
    assert len({partner.model.width for partner in partners}) == len(partners)
    for partner in partners:
        found = partner.model
        found.check()
        assert found.width % rules.multiple_of == found.experts.width % rules.multiple_of == 0
        assert found.attention.head_dim % rules.head_dim_multiple == 0
        assert found.experts.count % rules.experts_multiple == 0
        assert (found.layers, found.loop, found.experts.per_token) == (
            BASELINE.layers,
            loop,
            BASELINE.experts.per_token,
        )
        assert partner.ratios == compare(budget_of(found, KEYS), budget_of(BASELINE, KEYS))
        assert partner.within == within(partner.ratios, rules.tolerance)
    scores = [(not partner.within, partner.mismatch + partner.shape) for partner in partners]
    assert scores == sorted(scores)


def test_the_same_question_has_the_same_answer():
    loop = middle_loop(BASELINE, 0.5, 2)
    assert match(BASELINE, loop, KEYS) == match(BASELINE, loop, KEYS)


def test_without_a_loop_the_best_partner_of_a_model_is_itself():
    best = match(BASELINE, BASELINE.loop, KEYS)[0]
    assert best.model == BASELINE
    assert best.ratios == (1, 1, 1)
    assert best.mismatch == best.shape == shape_distance(BASELINE, BASELINE) == 0


@pytest.mark.parametrize('layers', [2, 4, 6, 8, 10, 12])
def test_every_span_of_the_ablation_has_a_partner(layers):
    assert match(BASELINE, middle_loop(BASELINE, layers / 12, 2), KEYS)[0].within


@pytest.mark.parametrize('visits', [1, 2, 3, 4])
def test_every_loop_count_of_the_ablation_has_a_partner(visits):
    assert match(BASELINE, middle_loop(BASELINE, 0.5, visits), KEYS)[0].within


@pytest.mark.parametrize('visits', [2, 3])
def test_a_toy_model_has_a_partner(visits):
    toy = ModelConfig(layers=4, attention=AttentionConfig(heads=4, kv_heads=2, head_dim=64))
    assert match(toy, LoopConfig(start=1, length=2, visits=visits), 150)[0].within


def test_a_model_whose_experts_are_all_active_is_matched_by_a_few_more_of_them():
    dense = dataclasses.replace(BASELINE, experts=dataclasses.replace(BASELINE.experts, count=8))
    best = match(dense, middle_loop(dense, 0.5, 2), KEYS, Rules(experts_multiple=1))[0]
    assert best.within
    assert best.model.experts.count == 13


def test_a_dense_model_has_none_and_hears_what_would_give_it_one():
    best = find_partners('budgets', DENSE, 2, 0.5, KEYS, Rules(), 1)[0]
    assert not best.within
    assert best.ratios.parameters < 0.75
    assert remedies('budgets', DENSE, 2, 0.5, KEYS, Rules()) == ['per_token=8 and experts_multiple=1']
    assert match(DENSE, middle_loop(DENSE, 0.5, 2), KEYS, Rules(per_token=8, experts_multiple=1))[0].within


def test_a_rule_in_the_way_is_named():
    rules = Rules(multiple_of=128, head_dim_multiple=16, experts_multiple=16)
    assert not find_partners('budgets', BASELINE, 2, 0.5, KEYS, rules, 1)[0].within
    assert remedies('budgets', BASELINE, 2, 0.5, KEYS, rules) == ['head_dim_multiple=2']


def test_fixed_parameters_give_the_loop_its_flops_and_cache_for_nothing():
    (partner,) = find_partners('parameters', BASELINE, 2, 0.5, KEYS, Rules(), 5)
    assert dataclasses.replace(partner.model, loop=BASELINE.loop) == BASELINE
    assert partner.within
    assert partner.ratios == (1.5, 1, 1.5)


@pytest.mark.parametrize('baseline', [BASELINE, DENSE])
def test_fixed_flops_take_the_parameters_away(baseline):
    best = find_partners('flops', baseline, 2, 0.5, KEYS, Rules(), 5)[0]
    assert best.within
    assert best.ratios.flops == pytest.approx(1, abs=0.01)
    assert best.ratios.parameters < 0.7
    assert best.model.experts.count == baseline.experts.count
    assert best.model.attention.head_dim == baseline.attention.head_dim


def test_fixed_depth_is_prelude_fewer_layers_more_often_coda():
    """The geometry of that study: 20 layers, of which 16 give way to 16 / visits."""
    twenty = dataclasses.replace(BASELINE, layers=20, loop=LoopConfig())
    for visits in (1, 2, 4, 8):
        found = same_depth(twenty, 0.8, visits)
        assert (found.loop.start, found.loop.length, found.coda_layers) == (2, 16 // visits, 2)
        assert found.executed_layers == 20
    (partner,) = find_partners('depth', twenty, 4, 0.8, KEYS, Rules(), 5)
    assert partner.within
    assert partner.ratios == (1, 8 / 20, 1)


@pytest.mark.parametrize(
    ('change', 'words'),
    [
        ({'span': 0.0}, r'span=0.0 of 12 layers loops none of them, but visits=2; choose a span of 0.0417 or more'),
        ({'span': 1.5}, 'between 0 and 1'),
        ({'visits': 0}, 'at least once'),
        ({'protocol': 'both'}, "protocol='both': choose one of budgets, parameters"),
        ({'protocol': 'depth', 'visits': 4}, 'does not divide; choose a span of 0.333 or 0.667 or 1'),
        ({'rules': Rules(tolerance=Ratios(0, 0.01, 0.04))}, 'more than 0'),
        ({'rules': Rules(tolerance=Ratios(4, 1, 4))}, 'fraction'),
        ({'rules': Rules(multiple_of=0)}, 'multiple_of=0'),
        ({'rules': Rules(head_dim_multiple=3)}, 'even'),
        (
            {'baseline': dataclasses.replace(BASELINE, width=10**8)},
            'widths to try; choose a multiple_of from 16,330 on',
        ),
        ({'rules': Rules(multiple_of=100_000)}, 'no model of similar shape'),
        ({'baseline': model('200m-s95-smelt')}, 'visits its loop 2 times'),
        (
            {'baseline': dataclasses.replace(BASELINE, attention=AttentionConfig(5, 2, 64))},
            'not divisible by kv_heads=2',
        ),
    ],
)
def test_impossible_questions_are_answered_in_one_line(change, words):
    question = {
        'protocol': 'budgets', 'baseline': BASELINE, 'visits': 2, 'span': 0.5, 'mean_attended_keys': KEYS,
        'rules': Rules(), 'count': 5,
    }  # fmt: skip
    with pytest.raises(ValueError, match=words) as error:
        find_partners(**{**question, **change})
    assert '\n' not in str(error.value)
