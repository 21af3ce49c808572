"""What a benchmark measures is a step as training makes it, over rows as packing makes them. Its times are not tested."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from runs_helper import RUN, edit, write_experiment

from smelt_jax.bench import experts, scoring, step
from smelt_jax.budget.accounting import budget_of

RUNS = [
    edit(RUN, pack__row_tokens=400, data__batch_rows=3),
    edit(RUN, pack__row_tokens=1, data__batch_rows=1),
    edit(RUN, pack__row_tokens=600, data__batch_rows=2, seed=7),
]


@pytest.mark.parametrize('run', RUNS)
def test_a_made_up_batch_is_a_batch(run) -> None:
    batch = step.made_up_batch(run)
    shape = (run.data.batch_rows, run.pack.row_tokens)
    assert [array.shape for array in batch] == [shape] * 5
    assert [array.dtype for array in batch] == [np.int32] * 4 + [np.float32]
    assert batch.tokens_BT.min() >= 0
    assert batch.tokens_BT.max() < run.model.vocab
    np.testing.assert_array_equal(batch.tokens_BT[:, 1:], batch.targets_BT[:, :-1])
    for segments, positions, mask in zip(batch.segment_ids_BT, batch.positions_BT, batch.loss_mask_BT, strict=True):
        assert segments[0] == 1
        assert positions[0] == 0
        for at in range(1, shape[1]):
            new = segments[at] != segments[at - 1]
            assert segments[at] - segments[at - 1] == new
            assert positions[at] == (0 if new else positions[at - 1] + 1)
            assert mask[at - 1] == (not new)  # nothing is learned across documents


def test_a_made_up_batch_has_several_documents_and_is_the_seeds() -> None:
    batch = step.made_up_batch(RUNS[0])
    assert batch.segment_ids_BT.max() > 1
    for one, other in zip(batch, step.made_up_batch(RUNS[0]), strict=True):
        np.testing.assert_array_equal(one, other)
    assert (batch.tokens_BT != step.made_up_batch(edit(RUNS[0], seed=1)).tokens_BT).any()


@pytest.mark.parametrize('run', RUNS)
def test_attended_keys_are_those_that_a_query_sees(run) -> None:
    batch = step.made_up_batch(run)
    seen = [
        sum(row[key] == row[query] for key in range(query + 1))
        for row in batch.segment_ids_BT
        for query in range(len(row))
    ]
    assert step.attended(batch) == pytest.approx(np.mean(seen))


@pytest.fixture
def experiment(tmp_path: Path) -> str:
    return write_experiment(tmp_path / 'tiny.py', tiny=edit(RUN, pack__row_tokens=64))


def test_the_command_writes_what_it_prints(experiment: str, tmp_path: Path, smelt: Callable, quick_env: dict) -> None:
    out = tmp_path / 'figures.json'
    done = smelt('bench', 'step', f'--config={experiment}', '--repeats=2', f'--json={out}', **quick_env)
    figures = json.loads(out.read_text())
    run = edit(RUN, pack__row_tokens=64)
    flops = budget_of(run.model, step.attended(step.made_up_batch(run))).train_flops
    assert figures['tokens'] == 2 * 64
    assert figures['flops_per_token'] == flops.total
    assert figures['mfu_without_head'] / figures['mfu'] == pytest.approx(flops.non_embedding / flops.total)
    assert figures['tokens_per_second'] == pytest.approx(figures['tokens'] / figures['seconds'])
    assert all(math.isfinite(value) and value > 0 for key, value in figures.items() if key != 'load_average')
    assert 'step of tiny' in done.stdout
    assert all(name in done.stdout for name in figures)


def test_the_experts_alone(experiment: str, tmp_path: Path, smelt: Callable, quick_env: dict) -> None:
    """FLOPs are those that the budget counts for one layer's experts."""
    out = tmp_path / 'figures.json'
    done = smelt('bench', 'experts', f'--config={experiment}', '--repeats=2', f'--json={out}', **quick_env)
    figures = json.loads(out.read_text())
    model = edit(RUN, pack__row_tokens=64).model
    assert figures['tokens'] == 2 * 64
    per_token = 3 * 3 * 2 * model.width * model.experts.width * model.experts.per_token
    assert figures['flops'] == figures['tokens'] * per_token
    assert figures['matmul_seconds'] == pytest.approx(figures['flops'] / figures['matmul_flops'])
    assert figures['implementation'] == 'xla'
    assert 'experts of tiny' in done.stdout
    assert all(name in done.stdout for name in figures)


@pytest.mark.parametrize('word', ['save', 'restart'])
def test_what_keeping_a_run_safe_costs(
    word: str, tmp_path: Path, tiny_pack: Path, smelt: Callable, quick_env: dict
) -> None:
    run = edit(RUN, data__pack=str(tiny_pack), data__repeat=True, train__steps=10**6, pack__row_tokens=32)
    experiment, out = write_experiment(tmp_path / 'tiny.py', tiny=run), tmp_path / 'figures.json'
    smelt('bench', word, f'--config={experiment}', '--repeats=1', f'--json={out}', **quick_env)
    figures = json.loads(out.read_text())
    if word == 'save':
        assert figures['lost_share'] == pytest.approx(figures['lost_seconds'] / (50 * figures['step_seconds']))
        assert figures['blocked_seconds'] > 0
        assert figures['bytes'] > 4 * budget_of(run.model, 1.0).stored.total
    else:
        assert figures['ratio'] == pytest.approx(figures['resumed_seconds'] / figures['fresh_seconds'])
        assert figures['fresh_seconds'] > 1


def test_scoring_against_a_plain_pass(experiment: str, tmp_path: Path, smelt: Callable, quick_env: dict) -> None:
    out = tmp_path / 'figures.json'
    done = smelt('bench', 'scoring', f'--config={experiment}', '--repeats=1', f'--json={out}', **quick_env)
    figures = json.loads(out.read_text())
    assert figures['tokens_per_second'] == pytest.approx(figures['tokens'] / figures['seconds'])
    assert figures['ratio'] == pytest.approx(figures['tokens_per_second'] / figures['plain_tokens_per_second'])
    assert 0 <= figures['padding_share'] < 0.25
    assert 0.1 < figures['asked_share'] < 0.6
    assert figures['programs'] == 1
    assert figures['outside_share'] < 1
    assert 0 < figures['prepare_share'] < 1
    assert 'scoring of tiny' in done.stdout
    assert all(name in done.stdout for name in figures)


@pytest.mark.parametrize('room', [4, 64, 1000])
def test_made_up_requests_are_requests(room: int) -> None:
    requests = scoring.made_up_requests(50, room, 3000, np.random.default_rng(0))
    assert len(requests) % scoring.CHOICES == 0
    assert sum(len(request.tokens) for request in requests) > 2000
    for tokens, start, _ in requests:
        assert tokens.dtype == np.int32
        assert 2 <= len(tokens) <= room
        assert 1 <= start <= len(tokens) - min(2, room - 1)
        assert 0 <= tokens.min() <= tokens.max() < 50
    for first in range(0, len(requests), scoring.CHOICES):
        (one, start, _), (other, other_start, _) = requests[first : first + 2]
        shared = min(start, other_start)
        assert one[start - shared : start].tolist() == other[other_start - shared : other_start].tolist()


def test_choices_of_the_experts_alone_are_distinct() -> None:
    _, weights_TK, experts_TK, *_ = experts.made_up(50, 8, 6, 4, 4, np.dtype(np.float32), 0)
    assert all(len(set(row)) == 4 for row in np.asarray(experts_TK).tolist())
    assert experts_TK.min() == 0
    assert experts_TK.max() == 5
    np.testing.assert_allclose(weights_TK.sum(axis=1), 1)


@pytest.mark.parametrize(
    ('words', 'complaint'),
    [
        ([], 'say what: step, experts, save, restart, scoring'),
        (['--repeats=3'], 'say what: step, experts, save, restart, scoring'),
        (['stpe'], "say what: step, experts, save, restart, scoring, not 'stpe'"),
        (['step', 'more'], "stray word 'more'"),
        (['step', '--repeats=0'], 'repeats'),
    ],
)
def test_a_wrong_word_is_named(experiment: str, smelt: Callable, words: list[str], complaint: str) -> None:
    done = smelt('bench', *words, f'--config={experiment}', code=2)
    assert done.stderr.startswith('smelt bench: error: ')
    assert complaint in done.stderr
