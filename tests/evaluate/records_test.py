"""A record says where a checkpoint stands on every axis, once, and what cannot be evaluated leaves none."""

import math
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from runs_helper import RUN, edit, make_pack

from smelt_jax.budget.accounting import budget_of
from smelt_jax.config import RunConfig
from smelt_jax.data.manifest import load_manifest
from smelt_jax.evaluate.heldout import evaluate
from smelt_jax.runs import RunDir

pytestmark = pytest.mark.usefixtures('quick')


def test_a_record_carries_the_whole_budget(looped: RunConfig, run_dir: RunDir) -> None:
    """Where it stands on every axis: F, N, S, KV, D, visits, span, seed, both parameter counts, and whose rows it read."""
    record, manifest = evaluate(str(run_dir.path), 10), load_manifest(looped.data.pack)
    budget = budget_of(looped.model, manifest.train.mean_attended_keys)
    assert record.items() >= budget.as_dict().items()
    assert record['tokens_seen'] == 10 * 2 * 32
    assert record['flops'] == pytest.approx(record['flops_per_token'] * record['tokens_seen'])
    assert (record['visits'], record['trained_visits'], record['loop_span'], record['seed']) == (2, 2, 1.0, 0)
    assert record['parameters_with_embeddings'] - record['parameters_with_norms'] == 2 * 257 * 16
    assert (record['kind'], record['step'], record['trunk_step']) == ('trunk', 10, 10)
    assert (record['pack'], record['tokenizer']) == (manifest.fingerprint, manifest.tokenizer_fingerprint)
    assert run_dir.records() == [record]  # as JSON gives it back


def test_other_visits_change_what_it_costs_but_not_what_was_spent(run_dir: RunDir) -> None:
    trained, more = evaluate(str(run_dir.path), 10), evaluate(str(run_dir.path), 10, visits=3)
    assert more['loss'] != trained['loss']
    assert (more['visits'], more['trained_visits'], more['flops']) == (3, 2, trained['flops'])
    assert more['executed_layers'] == trained['executed_layers'] + 1
    assert more['flops_per_token'] > trained['flops_per_token']
    assert run_dir.heldout() == [trained]
    assert run_dir.records() == [trained, more]


def test_the_same_evaluation_is_one_record(run_dir: RunDir) -> None:
    first = evaluate(str(run_dir.path))
    assert first['step'] == 10
    second = evaluate(str(run_dir.path), 5)
    assert evaluate(str(run_dir.path), 10) == first
    assert run_dir.records() == [second, first]


def test_other_rows_of_the_same_tokenizer(looped: RunConfig, run_dir: RunDir, tmp_path: Path) -> None:
    """They have a record of their own; tokens and FLOPs are still those of the training."""
    (tmp_path / 'text').mkdir()
    other = make_pack(tmp_path / 'text', count=4, row_tokens=48)
    own, elsewhere = evaluate(str(run_dir.path), 10), evaluate(str(run_dir.path), 10, pack=str(other))
    assert elsewhere['pack'] == load_manifest(other).fingerprint != own['pack']
    assert elsewhere['targets'] != own['targets']
    for key in ('tokens_seen', 'flops', 'flops_per_token', 'mean_attended_keys'):
        assert elsewhere[key] == own[key]
    assert run_dir.records() == [own, elsewhere]


def test_rows_of_another_tokenizer_are_refused(run_dir: RunDir, tmp_path: Path) -> None:
    (tmp_path / 'text').mkdir()
    other = make_pack(tmp_path / 'text', count=4, tokenizer='bpe:300')
    with pytest.raises(ValueError, match=r'was packed with tokenizer bpe:300 .*, not with the one asked for'):
        evaluate(str(run_dir.path), 10, pack=str(other))
    assert run_dir.records() == []


def test_rows_that_were_packed_anew_are_refused(looped: RunConfig, make_run: Callable, tmp_path: Path) -> None:
    (tmp_path / 'text').mkdir()
    run_dir = make_run(tmp_path / 'run', looped, 5)
    moved = edit(looped, data__pack=str(make_pack(tmp_path / 'text', seed=1)))
    run_dir.claim(moved, run_dir.lineage())
    with pytest.raises(ValueError, match=r'was packed anew since .*run read it'):
        evaluate(str(run_dir.path))
    assert evaluate(str(run_dir.path), pack=looped.data.pack)['pack'] == run_dir.lineage().pack


def test_what_cannot_be_evaluated_is_named(
    looped: RunConfig, run_dir: RunDir, make_run: Callable, tmp_path: Path
) -> None:
    path = str(run_dir.path)
    with pytest.raises(ValueError, match=r'no checkpoint of step 7; it has \[5, 10\]'):
        evaluate(path, 7)
    with pytest.raises(ValueError, match=r'model\.loop\.visits=0: must be at least 1'):
        evaluate(path, visits=0)
    fresh = make_run(tmp_path / 'fresh', looped)
    with pytest.raises(FileNotFoundError, match=r'fresh has no complete checkpoint yet'):
        evaluate(str(fresh.path))
    os.rmdir(fresh.checkpoints)
    with pytest.raises(FileNotFoundError, match=r'fresh has no checkpoints'):
        evaluate(str(fresh.path))
    with pytest.raises(FileNotFoundError, match=r'is no run directory'):
        evaluate(str(tmp_path / 'nowhere'))
    assert run_dir.records() == []


def test_a_model_without_a_loop_has_one_visit(looped: RunConfig, make_run: Callable, tmp_path: Path) -> None:
    flat = edit(looped, model=RUN.model)
    with pytest.raises(ValueError, match=r'visits=2 of .*: its model has no loop; leave visits out'):
        evaluate(str(make_run(tmp_path / 'run', flat, 5).path), visits=2)


def test_a_loss_that_is_no_number_is_no_record(looped: RunConfig, make_run: Callable, tmp_path: Path) -> None:
    run_dir = make_run(tmp_path / 'run', looped, 5, poison=math.nan)
    with pytest.raises(ValueError, match=r'the held-out loss of tiny at visits=2 is not finite: nothing was recorded'):
        evaluate(str(run_dir.path))
    assert run_dir.records() == []


def test_without_held_out_rows_there_is_nothing_to_say(looped: RunConfig, make_run: Callable, tmp_path: Path) -> None:
    (tmp_path / 'text').mkdir()
    pack = make_pack(tmp_path / 'text', count=2, heldout_fraction=0.0)
    with pytest.raises(ValueError, match=r'has no held-out rows; pack with a larger pack\.heldout_fraction'):
        evaluate(str(make_run(tmp_path / 'run', edit(looped, data__pack=str(pack)), 5).path))


def test_a_branchs_record_names_the_step_it_grew_from(looped: RunConfig, make_run: Callable, tmp_path: Path) -> None:
    run_dir = make_run(tmp_path / 'leaf', looped, 17, kind='branch', start=10, stop=17)
    record = evaluate(str(run_dir.path))
    assert (record['kind'], record['step'], record['trunk_step']) == ('branch', 17, 10)
    assert record['tokens_seen'] == 17 * 2 * 32


def test_the_command_prints_the_record(run_dir: RunDir, smelt: Callable, quick_env: dict) -> None:
    done = smelt('evaluate', f'--checkpoint={run_dir.path}@5', '--visits=3', **quick_env)
    (record,) = run_dir.records()
    assert (record['step'], record['visits']) == (5, 3)
    assert 'tiny, step 5, 3 visit(s): held-out loss' in done.stdout
    assert f'{record["loss"]:.4f}' in done.stdout
