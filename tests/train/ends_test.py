"""How a run ends: once and for all, or with an error that says why, before anything is written or with all that was."""

import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from models import assert_same
from runs_helper import RUN, edit, fill, make_pack, state_at, times_of, without_clock, write_experiment

from smelt_jax.config import RunConfig
from smelt_jax.data.rows import PackedRows, row_ids
from smelt_jax.parallel.config import MeshConfig
from smelt_jax.runs import RunDir
from smelt_jax.train import loop
from smelt_jax.train.checkpoints import Checkpoints
from smelt_jax.train.loop import train
from smelt_jax.train.watch import NonFiniteError

pytestmark = pytest.mark.usefixtures('quick')


@pytest.fixture
def run(tiny_pack: Path) -> RunConfig:
    return edit(RUN, data__pack=str(tiny_pack))


def checkpoints_of(run_dir: RunDir) -> list[int]:
    with Checkpoints(run_dir, read_only=True) as checkpoints:
        return checkpoints.steps()


def rate(monkeypatch: pytest.MonkeyPatch, **at: float) -> None:
    """Gives the update from step N the rate `at['_N']`. The program is the same: the rate is its argument."""
    monkeypatch.setattr(loop, 'trunk_schedule', lambda *_: lambda step: at.get(f'_{step}', 0.01))


def test_the_last_step_is_saved_once(run: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved: list[int] = []
    save = Checkpoints.save
    monkeypatch.setattr(Checkpoints, 'save', lambda self, step, *rest: (saved.append(step), save(self, step, *rest)))
    run_dir = train(edit(run, train__steps=20, train__save_every=10, train__branch_steps=()), str(tmp_path / 'run'))
    assert saved == checkpoints_of(run_dir) == [10, 20]


def test_minutes_make_checkpoints_in_between(run: RunConfig, trunk: Path, tmp_path: Path) -> None:
    often = edit(run, train__save_minutes=1e-9, train__save_every=999, train__keep=99, train__branch_steps=())
    run_dir = train(often, str(tmp_path / 'run'))
    assert checkpoints_of(run_dir) == list(range(1, 13))
    assert_same(state_at(run_dir, 12), state_at(RunDir(trunk), 12))
    seldom = edit(often, train__save_minutes=5.0)
    assert checkpoints_of(train(seldom, str(tmp_path / 'other'))) == [12]


def test_a_save_that_failed_ends_the_run_at_its_next_update(
    run: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not at the next save, which may be hours away."""
    begin = Checkpoints.save

    def save(self: Checkpoints, step: int, *rest: Any) -> None:
        begin(self, step, *rest)
        while self._manager.is_saving_in_progress():
            time.sleep(0.01)
        self._manager.wait_until_finished = fail

    def fail() -> None:
        raise ValueError('the disk is gone')

    monkeypatch.setattr(Checkpoints, 'save', save)
    with pytest.raises(OSError, match='a checkpoint could not be written: the disk is gone'):
        train(edit(run, train__save_every=8, train__branch_steps=()), str(tmp_path / 'run'))
    assert RunDir(tmp_path / 'run').metrics()[-1]['step'] == 8


def test_a_run_that_is_done_is_left_alone(run: RunConfig, trunk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = times_of(RunDir(trunk))
    monkeypatch.setattr(loop, 'make_step', None)  # nothing is compiled
    train(run, str(trunk))
    assert times_of(RunDir(trunk)) == before


def test_a_loss_that_is_no_number_ends_the_run(run: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The update to step 7 goes astray; the loss of the next one shows it."""
    rate(monkeypatch, _6=1e30)
    run_dir = RunDir(tmp_path / 'run')
    with pytest.raises(NonFiniteError) as caught:
        train(run, str(run_dir.path))
    rows = row_ids(PackedRows(run.data.pack, 'train'), run.data, 7).tolist()
    last = run_dir.metrics()[-1]
    assert last['step'] == 7
    assert np.isfinite(last['loss'])
    message = str(caught.value)
    assert message.startswith('step 8: loss ')
    assert f'rows of its batch, {rows};' in message
    assert f'Last finite metrics: loss {last["loss"]:.4g}, ' in message
    assert '\n' not in message
    assert checkpoints_of(run_dir) == [5]
    assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(state_at(run_dir, 5)))


def test_parameters_that_are_no_numbers_are_never_saved(
    run: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loss and gradient are finite, and the update that they lead to is not."""
    rate(monkeypatch, _9=math.inf)
    with pytest.raises(NonFiniteError, match=r'^step 10: its update made parameters or moments that are not finite'):
        train(run, str(tmp_path / 'run'))
    assert checkpoints_of(RunDir(tmp_path / 'run')) == [5]


def test_a_poisoned_checkpoint_ends_the_run_at_its_first_update(run: RunConfig, trunk: Path, tmp_path: Path) -> None:
    run_dir = RunDir(tmp_path / 'run')
    run_dir.claim(run, RunDir(trunk).lineage())
    state = state_at(RunDir(trunk), 5)
    state.params['embed'] = state.params['embed'].at[ord(' ')].set(jnp.nan)
    with Checkpoints(run_dir) as checkpoints:
        checkpoints.save(5, state)
    with pytest.raises(NonFiniteError, match=r'^step 6: loss nan, .*Last finite metrics: none'):
        train(run, str(run_dir.path))
    assert checkpoints_of(run_dir) == [5]


def test_the_command_says_it_in_one_line(run: RunConfig, tmp_path: Path, smelt: Callable, quick_env: dict) -> None:
    experiment = write_experiment(tmp_path / 'one.py', one=edit(run, optim__peak_lr=1e30, optim__warmup_steps=0))
    done = smelt('train', f'--config={experiment}', f'--workdir={tmp_path}/run', code=1, **quick_env)
    error = done.stderr.splitlines()[-1]
    assert error.startswith('smelt train: error: step 2: loss ')
    assert 'Traceback' not in done.stderr


@pytest.mark.parametrize(
    ('changes', 'complaint'),
    [
        ({'model__vocab': 256}, r'model\.vocab=256 is smaller than the tokenizer of .* with 257 tokens'),
        ({'optim__accumulate': 3}, r'data\.batch_rows=2 is not divisible by optim\.accumulate=3'),
        (
            {'data__batch_rows': 6, 'optim__accumulate': 2, 'mesh': MeshConfig(fsdp=2)},
            r'data\.batch_rows=6, 3 rows on each of 2 devices, is not divisible by optim\.accumulate=2',
        ),
        ({'train__branch_steps': (5, 13)}, r'train\.branch_steps=\[13\] are not among the steps 1 … 12'),
        ({'train__steps': 5000}, r'steps 0 to 5000 need 10000 rows; .* has (\d+), enough for \d+ steps'),
        ({'train__branch_tokens': 10**6}, r'train\.branch_tokens=1000000 after 11 steps: .* enough for \d+ steps'),
        ({'data__pack': ''}, r'data\.pack is empty; give --config\.data\.pack=DIR'),
        ({'data__pack': '/nowhere'}, r'/nowhere is no pack: it has no manifest\.json; run smelt pack'),
        ({'data__batch_rows': 0}, r'data\.batch_rows=0: must be at least 1'),
        ({'data__prefetch': -1}, r'data\.prefetch=-1: must be at least 0'),
        ({'loss__chunk_tokens': 0}, r'loss\.chunk_tokens=0: must be at least 1'),
        ({'optim__accumulate': 0}, r'optim\.accumulate=0: must be at least 1'),
        ({'optim__b2': 1.0}, r'optim\.b2=1\.0: must be at least 0 and below 1'),
        ({'optim__warmup_steps': -1}, r'optim\.warmup_steps=-1: must be at least 0'),
        ({'optim__moment_dtype': 'float8'}, r"optim\.moment_dtype='float8': must be float32 or bfloat16"),
        ({'train__steps': 0}, r'train\.steps=0: must be at least 1'),
        ({'train__save_every': 0}, r'train\.save_every=0: must be at least 1'),
        ({'train__log_every': 0}, r'train\.log_every=0: must be at least 1'),
        ({'train__keep': 0}, r'train\.keep=0: must be at least 1'),
        ({'train__final_lr_fraction': 1.5}, r'train\.final_lr_fraction=1\.5: must be between 0 and 1'),
        ({'heldout__length_bins': (64, 64)}, r'heldout\.length_bins=\(64, 64\): edges must be positive and ascend'),
        ({'heldout__max_rows': -1}, r'heldout\.max_rows=-1: must be at least 0'),
    ],
)
def test_a_config_that_cannot_be_run_is_refused_at_start(
    run: RunConfig, tmp_path: Path, changes: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        train(edit(run, **changes), str(tmp_path / 'run'))
    assert not os.listdir(tmp_path)


def test_rows_that_just_suffice_do(run: RunConfig, tmp_path: Path) -> None:
    folder = make_pack(tmp_path, count=2)
    rows = len(PackedRows(folder, 'train'))
    enough = edit(run, data__pack=str(folder), train__steps=rows // 2, train__branch_steps=())
    enough = edit(enough, train__save_every=999)
    assert train(enough, str(tmp_path / 'run')).metrics()[-1]['step'] == rows // 2
    with pytest.raises(ValueError, match=rf'{folder} has {rows}, enough for {rows // 2} steps'):
        train(edit(enough, train__steps=rows // 2 + 1), str(tmp_path / 'more'))
    train(edit(enough, train__steps=rows // 2 + 1, data__repeat=True), str(tmp_path / 'again'))


def test_another_configs_workdir_is_refused(run: RunConfig, trunk: Path) -> None:
    before = times_of(RunDir(trunk))
    other = edit(run, optim__peak_lr=0.5, seed=1, data__prefetch=4, train__peak_flops=1.0)
    with pytest.raises(ValueError, match=r'optim\.peak_lr: 0\.01 -> 0\.5; config\.seed: 0 -> 1\. Give this run'):
        train(other, str(trunk))
    assert times_of(RunDir(trunk)) == before


@pytest.mark.filterwarnings('ignore::pytest.PytestUnraisableExceptionWarning')  # of Orbax's threads, when a write fails
@pytest.mark.parametrize(
    ('foreseen', 'complaint'),
    [(True, 'no room for the checkpoint of step 10'), (False, 'a checkpoint could not be written: .*No space left')],
)
def test_a_full_disk_ends_the_run_and_loses_nothing(
    run: RunConfig, trunk: Path, small_disk: Path, monkeypatch: pytest.MonkeyPatch, foreseen: bool, complaint: str
) -> None:
    """Somebody fills the disk before the checkpoint of step 10: before its room is looked for, or after."""
    run_dir = RunDir(small_disk / 'run')
    look = Checkpoints._require_space

    def fill_and_look(self: Checkpoints, step: int, size: int) -> None:
        if foreseen and step == 10:
            fill(small_disk / 'filler')
        look(self, step, size)
        if step == 10:
            fill(small_disk / 'filler')

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, '_require_space', fill_and_look)
        with pytest.raises(OSError, match=complaint) as caught:
            train(run, str(run_dir.path))
    assert '\n' not in str(caught.value)
    assert checkpoints_of(run_dir) == [5]
    assert_same(state_at(run_dir, 5), state_at(RunDir(trunk), 5))

    (small_disk / 'filler').unlink()
    train(run, str(run_dir.path))
    assert_same(state_at(run_dir, 12), state_at(RunDir(trunk), 12))
    assert without_clock(run_dir.metrics()) == without_clock(RunDir(trunk).metrics())
