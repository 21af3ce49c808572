"""Designs: the published optima from the published coefficients, the epsilon rule, and budgets that are kept."""

import dataclasses
import itertools
import json
from pathlib import Path

import pytest

from smelt_jax.law import geometry
from smelt_jax.law.design import EXPERTS, Budget, Choice, Search, effective, ladder
from smelt_jax.law.fitted import Fitted
from smelt_jax.law.geometry import LADDER, load
from smelt_jax.law.published import fits_of

(FIT,) = fits_of('published:looped-moe')
EPSILON = 0.0037
GB = 1e9

# Printed sizes in billions: N_act, N_loop, N_total at E = 1, 2, 4, 8, 16; with embeddings but for N_loop.
PRINTED = {
    '0.3B': ('0.3', '0.1', '0.3', '0.5', '0.8', '1.3', '2.5'),
    '0.6B': ('0.6', '0.3', '0.6', '0.9', '1.6', '2.9', '5.5'),
    '1.0B': ('1.0', '0.7', '1.0', '1.6', '2.9', '5.4', '10.5'),
    '1.6B': ('1.6', '1.2', '1.6', '2.7', '4.8', '9.1', '17.7'),
    '2.4B': ('2.4', '1.8', '2.4', '4.1', '7.5', '14.3', '27.8'),
}


def search(budget: Budget, **changes: object) -> Search:
    return dataclasses.replace(Search(FIT, budget, EPSILON), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize('size', LADDER, ids=lambda size: size.name)
def test_the_ladder_has_the_printed_sizes(size: geometry.Size) -> None:
    found = [size.active + size.embedding, size.looped]
    found += [size.total(experts) + size.embedding for experts in (1, 2, 4, 8, 16)]
    assert tuple(f'{value / 1e9:.1f}' for value in found) == PRINTED[size.name]


def test_relative_costs_of_inference_are_the_printed_ones_without_embeddings() -> None:
    small, large = LADDER[:2]
    found = [small.unrolled(visits) / large.unrolled(1) for visits in (1, 2, 3, 4, 5)]
    assert [f'{ratio:.1f}' for ratio in found] == ['0.4', '0.8', '1.1', '1.5', '1.8']
    with_embeddings = (small.unrolled(1) + small.embedding) / (large.unrolled(1) + large.embedding)
    assert f'{with_embeddings:.1f}' != '0.4'


@pytest.mark.parametrize('flops', [1.41e22, 1.5e22])
def test_five_visits_for_the_trillion_token_case(flops: float) -> None:
    found = search(Budget(flops)).with_visits(LADDER[0], 8)
    assert found is not None
    assert found.visits == 5
    assert found.outside == ('D',)  # three trillion tokens; the law saw half of one
    assert 3e12 < found.tokens < 3.5e12


@pytest.mark.parametrize('with_embeddings', [True, False])
@pytest.mark.parametrize(('memory', 'optimum'), [(1, ('1.0B', 2, 2)), (3, ('1.0B', 8, 2)), (10, ('1.6B', 16, 1))])
def test_published_joint_optima(memory: float, optimum: tuple, with_embeddings: bool) -> None:
    sizes = LADDER if with_embeddings else [dataclasses.replace(size, embedding=0) for size in LADDER]
    best = search(Budget(5e21, memory * GB, bits=4)).best(sizes)[0]
    assert (best.size.name, best.experts, best.visits) == optimum
    assert best.weights <= memory * GB


def test_with_embeddings_in_the_law_the_published_optima_do_not_come_out() -> None:
    wrong = [dataclasses.replace(size, active=size.active + size.embedding) for size in LADDER]
    best = search(Budget(5e21, 1 * GB, bits=4)).best(wrong)[0]
    assert (best.size.name, best.experts, best.visits) != ('1.0B', 2, 2)


def test_more_compute_and_smaller_models_take_more_visits() -> None:
    stars = [
        [choice.visits for size in LADDER if (choice := search(Budget(flops)).with_visits(size, 8))]
        for flops in (1e20, 1e21, 1e22, 1e23)
    ]
    for by_size in stars:
        assert by_size == sorted(by_size, reverse=True)
    assert all(list(column) == sorted(column) for column in zip(*stars, strict=True))
    assert stars[0][-1] == 1
    assert stars[-1][0] > 4


def test_a_step_counts_only_if_it_lowers_the_loss_by_epsilon() -> None:
    looking = search(Budget(1.5e22))
    losses = [at.loss for visits in looking.visits if (at := looking.at(LADDER[0], 8, visits))]
    star = looking.with_visits(LADDER[0], 8)
    assert star is not None
    steps = [first - second for first, second in itertools.pairwise(losses)]
    assert all(step >= EPSILON for step in steps[: star.visits - 1])
    assert steps[star.visits - 1] < EPSILON
    assert min(losses) < star.loss  # more visits would be a little better, which is not counted
    eager = search(Budget(1.5e22), epsilon=0.0).with_visits(LADDER[0], 8)
    assert eager is not None
    assert eager.visits > star.visits


def test_every_visit_has_cache_of_its_own_and_takes_memory_from_weights() -> None:
    size, context = LADDER[0], 60_000
    looking = search(Budget(1.5e22, 4 * GB, context=context))
    once, twice = looking.at(size, 8, 1), looking.at(size, 8, 2)
    assert once is not None
    assert twice is not None
    assert once.cache == 2 * 4 * 64 * 20 * context * 2
    assert twice.cache - once.cache == 2 * 4 * 64 * 16 * context * 2
    assert looking.at(size, 8, 4) is None  # 4.2 GB of cache
    found = looking.with_visits(size, 8)
    assert found is not None
    assert found.visits < 5
    assert found.weights + found.cache <= 4 * GB


def test_served_tokens_take_compute_from_training_and_visits_with_it() -> None:
    size, served = LADDER[0], 1e13
    found = search(Budget(1.5e22, served=served)).with_visits(size, 8)
    assert found is not None
    assert found.visits < 5
    assert 6 * size.unrolled(found.visits) * found.tokens + found.token_flops * served == pytest.approx(1.5e22)
    assert search(Budget(1e22, served=1e15)).at(size, 1, 1) is None


def test_visits_are_worth_more_in_sparse_models_and_never_more_than_the_bound() -> None:
    size = LADDER[0]
    worth = [[effective(FIT, size, experts, visits) for visits in (1, 2, 4, 8, 1000)] for experts in (1, 8, 16)]
    for row in worth:
        assert row[0] == 1
        assert row == sorted(row)
    assert all(list(column) == sorted(column) for column in zip(*worth, strict=True))
    bound = 1 + FIT.coefficients['kappa1'] * size.looped / size.active
    assert worth[0][-1] == pytest.approx(bound)


def test_laws_without_experts_or_visits_design_without_them() -> None:
    moe = {name: FIT.coefficients[name] for name in FIT.coefficients if name not in ('kappa1', 'kappa2', 'theta')}
    found = Search(Fitted('moe', moe), Budget(5e21), EPSILON, visits=(1,)).best(LADDER)
    assert {choice.visits for choice in found} == {1}
    assert found[0].loss == pytest.approx(search(Budget(5e21)).at(found[0].size, found[0].experts, 1).loss)  # type: ignore[union-attr]
    with pytest.raises(ValueError, match='moe knows no R, so that it is 1; --visits=1'):
        Search(Fitted('moe', moe), Budget(5e21), EPSILON)
    with pytest.raises(ValueError, match='smelt is no law of N and D'):
        Search(fits_of('published:smelt')[0], Budget(5e21), EPSILON)


def test_ladders_are_of_what_the_law_knows() -> None:
    dense = fits_of('published:iso-depth')[0]
    assert (tuple(ladder(dense, 'E')), tuple(ladder(dense, 'R', (1, 3)))) == ((1,), (1, 3))
    assert tuple(ladder(FIT, 'E')) == EXPERTS
    sparse = Fitted('looped-bounded-m-dense', {})
    assert (tuple(ladder(sparse, 'E')), tuple(ladder(sparse, 'E', also='m'))) == ((1,), EXPERTS)
    with pytest.raises(ValueError, match='looped-power-dense knows no E, so that it is 1; --experts=1'):
        ladder(dense, 'E', (1, 2))


def test_a_budget_that_nothing_keeps_is_named() -> None:
    with pytest.raises(ValueError, match='no model keeps the budget; give more --flops or --memory'):
        search(Budget(5e21, 1e6)).best(LADDER)


def test_sizes_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / 'sizes.json'
    file.write_text(json.dumps([dataclasses.asdict(size) for size in LADDER]))
    assert tuple(load(file)) == LADDER
    file.write_text('[{"name": "a"}]')
    with pytest.raises(ValueError, match=r'sizes\.json: .* it is a JSON list of objects with name, active'):
        load(file)
    file.write_text(json.dumps([dataclasses.asdict(dataclasses.replace(LADDER[0], looped=1e12))]))
    with pytest.raises(ValueError, match=r'0\.3B has looped=1e\+12'):
        load(file)


def test_a_choice_says_what_it_takes() -> None:
    choice = search(Budget(5e21, context=10)).at(LADDER[1], 4, 3)
    assert isinstance(choice, Choice)
    assert choice.weights == pytest.approx((LADDER[1].total(4) + 202_000 * 1024) / 2)
    assert 6 * LADDER[1].unrolled(3) * choice.tokens == pytest.approx(5e21)
    assert geometry.LADDER[1].share(4) == pytest.approx(LADDER[1].active / LADDER[1].total(4))
