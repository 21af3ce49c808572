"""Checkpoints: which are kept, what is read of them, and what is said when one cannot be written."""

import contextlib
import errno
import os
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from models import assert_same
from states import like, names, save, state, steps_of

from smelt_jax.runs import RunDir
from smelt_jax.train.checkpoints import Checkpoints
from smelt_jax.train.state import TrainState


@pytest.fixture
def run_dir(tmp_path: Path) -> RunDir:
    return RunDir(tmp_path / 'run')


@pytest.mark.parametrize('restarts', [[100], [20, 60, 100], list(range(10, 101, 10))])
def test_the_newest_and_the_pinned_are_kept_across_restarts(run_dir: RunDir, restarts: list[int]) -> None:
    start = 10
    for stop in restarts:
        save(run_dir, *range(start, stop + 1, 10), keep=2, pinned=(30,))
        start = stop + 10
    assert names(run_dir) == {'30', '90', '100'}
    assert steps_of(run_dir) == [30, 90, 100]


def test_a_state_comes_back_bit_for_bit(run_dir: RunDir) -> None:
    save(run_dir, 10, 20)
    with Checkpoints(run_dir, read_only=True) as checkpoints:
        assert checkpoints.latest() == 20
        for step in (10, 20):
            assert_same(checkpoints.restore(step, like()), state(step))


def test_training_goes_on_while_a_state_is_saved(run_dir: RunDir) -> None:
    """The next update takes the memory of the state that is on its way to the disk."""

    def large(value: float) -> TrainState:
        return TrainState(jnp.int32(value), {'w': jnp.full((700, 700), value)}, ())

    update = jax.jit(lambda state: jax.tree.map(lambda leaf: leaf + 1, state), donate_argnums=0)
    current = update(large(0.0))
    with Checkpoints(run_dir, keep=3) as checkpoints:
        for step in (1, 11, 21):
            checkpoints.save(step, current)
            for _ in range(10):
                current = update(current)
        checkpoints.wait()
        for step in (1, 11, 21):
            assert_same(checkpoints.restore(step, jax.eval_shape(large, 0.0)), large(float(step)))


def test_a_state_comes_to_the_first_device_or_where_it_is_asked_for(run_dir: RunDir) -> None:
    """Wherever it was saved from."""
    first, third, fifth = (jax.devices()[i] for i in (0, 2, 4))
    with Checkpoints(run_dir) as checkpoints:
        checkpoints.save(10, jax.device_put(state(10), fifth))
        checkpoints.wait()
        for device, wanted in ((first, like()), (third, jax.device_put(state(0), third))):
            found = checkpoints.restore(10, wanted)
            assert {d for leaf in jax.tree.leaves(found) for d in leaf.devices()} == {device}
            assert_same(found, state(10))


def test_a_step_is_saved_once(run_dir: RunDir) -> None:
    save(run_dir, 10)
    with Checkpoints(run_dir) as checkpoints:
        checkpoints.save(10, state(11))
        checkpoints.wait()
        assert_same(checkpoints.restore(10, like()), state(10))


def test_parameters_are_read_without_the_optimizer(run_dir: RunDir) -> None:
    """Its files can even be gone; then the step can be read, but not be gone on from."""
    save(run_dir, 10, 20)
    shutil.rmtree(run_dir.checkpoints / '20' / 'optimizer')
    with Checkpoints(run_dir) as checkpoints:
        assert checkpoints.latest() == 20
        assert_same(checkpoints.restore_params(20, like().params), state(20).params)
        with pytest.raises(ValueError, match=r'checkpoints/20/optimizer is not there: .* not gone on from'):
            checkpoints.restore(20, like())


def of(shape: tuple[int, ...], dtype: str = 'float32') -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


@pytest.mark.parametrize(
    ('params', 'complaint'),
    [
        (
            {'embed': jax.ShapeDtypeStruct((3, 5), jnp.float32)},
            r'at embed it has float32 \(3, 4\), the config says float32 \(3, 5\)',
        ),
        (
            {'embed': jax.ShapeDtypeStruct((2, 4), jnp.float32)},
            r'at embed it has float32 \(3, 4\), the config says float32 \(2, 4\)',
        ),
        (
            {'embed': jax.ShapeDtypeStruct((3, 4), jnp.bfloat16)},
            r'at embed it has float32 \(3, 4\), the config says bfloat16 \(3, 4\)',
        ),
        (
            {'head': jax.ShapeDtypeStruct((4, 3), jnp.float32)},
            r'at head it has nothing, the config says float32 \(4, 3\)',
        ),
        ({'norm': {}}, r'at norm/scale it has float32 \(5,\), the config says nothing'),
    ],
)
def test_another_models_checkpoint_is_refused(run_dir: RunDir, params: dict, complaint: str) -> None:
    save(run_dir, 10)
    with Checkpoints(run_dir, read_only=True) as checkpoints:
        with pytest.raises(ValueError, match=rf'checkpoints/10/params is of another model: {complaint}'):
            checkpoints.restore_params(10, like(**params).params)
        with pytest.raises(ValueError, match=complaint):
            checkpoints.restore(10, like(**params))


def test_another_optimizers_checkpoint_is_refused(run_dir: RunDir) -> None:
    save(run_dir, 10)
    other = like()._replace(opt_state=({'mu': like().params['embed'], 'nu': like().params['embed']},))
    with (
        Checkpoints(run_dir, read_only=True) as checkpoints,
        pytest.raises(ValueError, match=r'at opt_state/0/nu it has nothing'),
    ):
        checkpoints.restore(10, other)


def test_a_missing_step_is_refused_with_those_there_are(run_dir: RunDir, tmp_path: Path) -> None:
    save(run_dir, 10, 20)
    with (
        Checkpoints(run_dir, read_only=True) as checkpoints,
        pytest.raises(ValueError, match=r'no checkpoint of step 15; it has \[10, 20\]'),
    ):
        checkpoints.restore(15, like())
    with pytest.raises(FileNotFoundError, match=r'empty has no checkpoints'):
        Checkpoints(RunDir(tmp_path / 'empty'), read_only=True)


@pytest.fixture
def unwritable(run_dir: RunDir) -> Iterator[RunDir]:
    """A run with one checkpoint, on a machine where no file can grow beyond 400 bytes any more."""
    save(run_dir, 10)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (400, hard))
    yield run_dir
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_save_that_fails_is_an_error_within_one_interval(unwritable: RunDir) -> None:
    def save_twice() -> None:
        with Checkpoints(unwritable) as checkpoints:
            checkpoints.save(20, state(20))
            checkpoints.save(30, state(30))

    with pytest.raises(OSError, match=r'checkpoints: a checkpoint could not be written: .+') as caught:
        save_twice()
    assert '\n' not in str(caught.value)
    assert steps_of(unwritable) == [10]


def test_a_last_save_that_fails_is_an_error_too(unwritable: RunDir) -> None:
    with pytest.raises(OSError, match=r'a checkpoint could not be written'), Checkpoints(unwritable) as checkpoints:
        checkpoints.save(20, state(20))


def test_an_error_of_the_run_is_not_hidden_by_one_of_a_save(unwritable: RunDir) -> None:
    def fail(checkpoints: Checkpoints) -> None:
        with contextlib.suppress(OSError):
            checkpoints.save(20, state(20))
        raise ValueError('not a number any more')

    with pytest.raises(ValueError, match='not a number any more'), Checkpoints(unwritable) as checkpoints:
        fail(checkpoints)


def test_a_disk_without_room_is_an_error_before_anything_is_written(
    run_dir: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(run_dir, 10)
    disk = os.statvfs(run_dir.path)
    full = os.statvfs_result((*disk[:1], 1, *disk[2:4], 100, *disk[5:]))
    monkeypatch.setattr(os, 'statvfs', lambda path: full)
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(state(20)))
    with pytest.raises(OSError, match=rf'step 20: it takes {size} bytes, 100 are free; make room') as caught:
        save(run_dir, 20)
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(run_dir.checkpoints))
    assert names(run_dir) == {'10'}
