"""A run is the same whatever interrupts it: killed, resumed, branched from. Real processes, ended by SIGKILL."""

import json
from pathlib import Path

import jax.numpy as jnp
import pytest
from models import assert_same
from runs_helper import RUN, edit, smelt_killed, state_at, without_clock, write_experiment

from smelt_jax.data.rows import PackedRows, row_ids
from smelt_jax.runs import RunDir


def read_rows(file: Path) -> list[list]:
    """[step, row ids] of every update that was started, in order."""
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.fixture(scope='module')
def experiment(tiny_pack: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_experiment(
        tmp_path_factory.mktemp('experiment') / 'tiny.py', tiny=edit(RUN, data__pack=str(tiny_pack))
    )


@pytest.fixture(scope='module')
def straight(experiment: str, quick_env: dict, tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """Twelve updates without interruption, checkpoints after 5, 10, 11 and 12."""
    root = tmp_path_factory.mktemp('straight')
    args = ('train', f'--config={experiment}', f'--workdir={root}/run')
    assert smelt_killed(*args, rows=root / 'rows', env=quick_env) == 0
    return RunDir(root / 'run')


@pytest.fixture(scope='module')
def interrupted(experiment: str, quick_env: dict, smelt, tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """The same updates: killed before the first checkpoint, killed after 7, killed in the save of 10, and let finish."""
    root = tmp_path_factory.mktemp('interrupted')
    args = ('train', f'--config={experiment}', f'--workdir={root}/run')
    run_dir = RunDir(root / 'run')
    killed = {'rows': root / 'rows', 'env': quick_env}
    assert smelt_killed(*args, KILL_AT=3, **killed) == -9
    assert [line['step'] for line in run_dir.metrics()] == [1, 2, 3]
    assert smelt_killed(*args, KILL_AT=7, THERE=run_dir.checkpoints / '5', **killed) == -9
    with run_dir.metrics_file.open('a') as file:
        file.write('{"step": 8, "loss": 5.1')  # a line that the kill cut off
    assert smelt_killed(*args, KILL_IN_SAVE=10, **killed) == -9
    assert [path.name for path in run_dir.checkpoints.glob('10*')] != ['10'], 'the save was over before the kill'
    # In a process that compiles for itself, as a user's does.
    smelt(*args, JAX_DISABLE_MOST_OPTIMIZATIONS='1')
    return run_dir


def test_a_killed_and_resumed_run_ends_with_the_same_state(straight: RunDir, interrupted: RunDir) -> None:
    """Parameters, both moments, counts and step, bit for bit, in every checkpoint."""
    for step in (5, 10, 11, 12):
        expected = state_at(straight, step)
        assert_same(state_at(interrupted, step), expected)
        assert expected.step == expected.opt_state[1].count == step
    assert jnp.any(expected.opt_state[1].nu['head'] != 0)


def test_a_resumed_run_logs_every_step_once_and_alike(straight: RunDir, interrupted: RunDir) -> None:
    assert [line['step'] for line in straight.metrics()] == list(range(1, 13))
    assert without_clock(interrupted.metrics()) == without_clock(straight.metrics())


def test_a_resumed_run_reads_the_rows_of_its_steps(straight: RunDir, interrupted: RunDir, tiny_pack: Path) -> None:
    """Which row is read is a function of the step: none is left out or read twice, whatever was killed and done again."""
    rows, data = PackedRows(tiny_pack, 'train'), straight.config().data
    expected = {step + 1: row_ids(rows, data, step).tolist() for step in range(12)}
    assert len({row for ids in expected.values() for row in ids}) == 12 * data.batch_rows
    assert dict(read_rows(straight.path.parent / 'rows')) == expected
    again = read_rows(interrupted.path.parent / 'rows')
    assert all(expected[step] == ids for step, ids in again)
    assert [step for step, _ in again] == [*range(1, 4), *range(1, 8), *range(6, 11)]
