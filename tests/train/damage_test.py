"""Checkpoints that are not what was saved: they are named, set aside, and the one before is taken."""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from models import assert_same
from runs_helper import RUN, edit
from states import like, names, save, state, steps_of

from smelt_jax.runs import Lineage, RunDir
from smelt_jax.train.checkpoints import Checkpoints
from smelt_jax.train.damage import DamagedError
from smelt_jax.train.state import TrainState


@pytest.fixture
def run_dir(tmp_path: Path) -> RunDir:
    return RunDir(tmp_path / 'run')


@pytest.mark.parametrize(
    'left',
    ['30.orbax-checkpoint-tmp', '30.orbax-checkpoint-tmp-17', '30/params', '30/params/d', '30'],
    ids=['a killed save', 'a killed save of another process', 'a copy that was cut off', 'the same', 'an empty folder'],
)
def test_what_is_unfinished_is_never_the_latest(run_dir: RunDir, left: str, capsys: pytest.CaptureFixture) -> None:
    save(run_dir, 10, 20)
    (run_dir.checkpoints / left).mkdir(parents=True)
    assert steps_of(run_dir) == [10, 20]
    with Checkpoints(run_dir, keep=1) as checkpoints:
        assert checkpoints.latest() == 20
        checkpoints.save(25, state(25))
        checkpoints.wait()
        assert checkpoints.steps() == [25]  # it takes no good one's place
        checkpoints.save(30, state(30))
    assert steps_of(run_dir) == [30]
    aside = {name for name in names(run_dir) if 'incomplete' in name}
    assert aside == ({'30.incomplete-1'} if left.split('/')[0] == '30' else set())
    assert ('checkpoint 30 is incomplete; it is called 30.incomplete-1 now' in capsys.readouterr().err) == bool(aside)


def test_an_item_without_its_last_files_does_not_count(run_dir: RunDir) -> None:
    """An optimizer that is there must be whole."""
    save(run_dir, 10, 20)
    (run_dir.checkpoints / '20' / 'optimizer' / 'manifest.ocdbt').unlink()
    assert steps_of(run_dir) == [10]
    for _ in range(2):  # the same thing twice
        save(run_dir, 20)
        assert steps_of(run_dir) == [10, 20]
        (run_dir.checkpoints / '20' / 'params' / '_METADATA').unlink()
        assert steps_of(run_dir) == [10]
    assert names(run_dir) == {'10', '20', '20.incomplete-1', '20.incomplete-2'}


def _cut(path: Path) -> None:
    for file in path.rglob('d/*'):
        file.write_bytes(file.read_bytes()[:-40])


def _flip(path: Path) -> None:
    for file in path.rglob('d/*'):
        file.write_bytes(bytes(255 - byte for byte in file.read_bytes()))


def _empty(name: str) -> Callable[[Path], object]:
    return lambda path: (path / name).write_bytes(b'')


@pytest.mark.parametrize(
    'damage', [_cut, _flip, _empty('_METADATA'), _empty('manifest.ocdbt'), lambda path: shutil.rmtree(path / 'd')]
)
def test_a_damaged_one_is_named_and_those_that_are_left(run_dir: RunDir, damage: Callable[[Path], object]) -> None:
    save(run_dir, 10, 20)
    damage(Path(run_dir.checkpoints / '20' / 'params'))
    with Checkpoints(run_dir) as checkpoints:
        with pytest.raises(
            DamagedError,
            match=r'checkpoints/20 is damaged: .*Bring back a copy of it, or take another: there is \[10\]',
        ) as caught:
            checkpoints.restore(20, like())
        assert '\n' not in str(caught.value)
        assert_same(checkpoints.restore(10, like()), state(10))


def test_a_step_has_its_own_name(run_dir: RunDir) -> None:
    save(run_dir, 10)
    shutil.copytree(run_dir.checkpoints / '10', run_dir.checkpoints / '30')
    with (
        Checkpoints(run_dir) as checkpoints,
        pytest.raises(ValueError, match=r'30 holds step 10; give it its own name'),
    ):
        checkpoints.restore(30, like())


def test_a_copied_checkpoint_is_as_good_as_the_first(run_dir: RunDir, tmp_path: Path) -> None:
    save(run_dir, 10, 20)
    copy = RunDir(tmp_path / 'copy')
    shutil.copytree(run_dir.path, copy.path)
    save(copy, 30)
    with Checkpoints(copy) as checkpoints:
        assert checkpoints.steps() == [10, 20, 30]
        assert_same(checkpoints.restore(20, like()), state(20))


def test_a_reader_writes_nothing(run_dir: RunDir) -> None:
    save(run_dir, 10)
    (run_dir.checkpoints / '20').mkdir()
    steps_of(run_dir)
    assert names(run_dir) == {'10', '20'}


def newest(run_dir: RunDir, strict: bool = False) -> tuple[int, TrainState] | None:
    with Checkpoints(run_dir, keep=9, strict=strict) as checkpoints:
        return checkpoints.restore_latest(like())


@pytest.mark.parametrize('item', ['params', 'optimizer'])
def test_the_one_before_a_damaged_one_is_taken_with_a_line(
    run_dir: RunDir, item: str, capsys: pytest.CaptureFixture
) -> None:
    save(run_dir, 10, 20, 30)
    _cut(Path(run_dir.checkpoints / '30' / item))
    step, found = newest(run_dir)
    assert step == 20
    assert_same(found, state(20))
    assert names(run_dir) == {'10', '20', '30.damaged-1'}
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f'checkpoint {run_dir.checkpoints}/30 is damaged: ')
    assert line.endswith('; it is called 30.damaged-1 now, and the run goes on from step 20')


def test_the_step_of_a_damaged_one_can_be_saved_again(run_dir: RunDir) -> None:
    save(run_dir, 10, 20)
    _cut(Path(run_dir.checkpoints / '20' / 'params'))
    with Checkpoints(run_dir, keep=9) as checkpoints:
        assert checkpoints.restore_latest(like())[0] == 10
        checkpoints.save(20, state(20))
        checkpoints.wait()
        assert_same(checkpoints.restore(20, like()), state(20))
    assert names(run_dir) == {'10', '20', '20.damaged-1'}


def test_two_damaged_ones_in_a_row_are_passed_over(run_dir: RunDir) -> None:
    save(run_dir, 10, 20, 30)
    for step in ('20', '30'):
        _cut(Path(run_dir.checkpoints / step / 'params'))
    assert newest(run_dir)[0] == 10


def test_nothing_begins_anew_because_all_are_damaged(run_dir: RunDir) -> None:
    save(run_dir, 10)
    _cut(Path(run_dir.checkpoints / '10' / 'params'))
    with pytest.raises(DamagedError, match=r'checkpoints/10 is damaged: .*there is none'):
        newest(run_dir)
    assert names(run_dir) == {'10'}


def test_nothing_begins_anew_because_all_are_incomplete(run_dir: RunDir) -> None:
    save(run_dir, 10, 20)
    for step in ('10', '20'):
        shutil.rmtree(run_dir.checkpoints / step / 'params')
    with pytest.raises(DamagedError, match=r'checkpoint 10 is incomplete. Bring .* complete ones are none: begin anew'):
        newest(run_dir)
    assert names(run_dir) == {'10', '20'}


def test_strict_refuses_what_is_damaged_or_incomplete(run_dir: RunDir) -> None:
    save(run_dir, 10, 20)
    _cut(Path(run_dir.checkpoints / '20' / 'optimizer'))
    with pytest.raises(DamagedError, match=r'checkpoints/20 is damaged: .*or take another: there is \[10\]'):
        newest(run_dir, strict=True)
    (run_dir.checkpoints / '20' / 'optimizer' / '_METADATA').unlink()
    with pytest.raises(
        DamagedError,
        match=r'checkpoint 20 is incomplete. Bring its files back; the complete ones are \[10\]: without --strict',
    ):
        newest(run_dir, strict=True)
    assert names(run_dir) == {'10', '20'}


@pytest.mark.parametrize('item', ['params', 'optimizer'])
def test_no_single_byte_changes_unseen(run_dir: RunDir, tmp_path: Path, item: str) -> None:
    """Wherever it is: it is found, or it changes nothing of what is read."""
    save(run_dir, 10)
    chance = random.Random(7)
    files = sorted(file for file in Path(run_dir.checkpoints / '10' / item).rglob('*') if file.is_file())
    found = 0
    for count in range(24):
        copy = RunDir(tmp_path / str(count))
        shutil.copytree(run_dir.path, copy.path)
        file = Path(copy.checkpoints / '10' / item) / files[count % len(files)].relative_to(
            run_dir.checkpoints / '10' / item
        )
        data = bytearray(file.read_bytes())
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        file.write_bytes(data)
        with Checkpoints(copy, read_only=True) as checkpoints:
            try:
                assert_same(checkpoints.restore(10, like()), state(10))
            except DamagedError:
                found += 1
    assert found > 8


def test_values_that_were_exchanged_are_noticed(run_dir: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file is in order, and holds something else: only the digests tell."""
    save(run_dir, 10)
    other = RunDir(run_dir.path.parent / 'other')
    with Checkpoints(other) as checkpoints:
        changed = state(10)
        changed.params['norm']['scale'] = changed.params['norm']['scale'][::-1]
        checkpoints.save(10, changed)
    shutil.rmtree(run_dir.checkpoints / '10' / 'params')
    shutil.copytree(other.checkpoints / '10' / 'params', run_dir.checkpoints / '10' / 'params')
    with Checkpoints(run_dir, read_only=True) as checkpoints:
        with pytest.raises(
            DamagedError, match=r'params/norm/scale is not what was saved: its digest is [0-9a-f]{8}, not'
        ):
            checkpoints.restore(10, like())
        with pytest.raises(DamagedError, match=r'params/norm/scale is not what was saved'):
            checkpoints.restore_params(10, like().params)


@pytest.mark.parametrize(
    'change',
    [
        lambda facts: facts | {'step': 21},
        lambda facts: facts | {'run': 'another'},
        lambda facts: facts | {'arrays': None},
        lambda facts: {key: value for key, value in facts.items() if key != 'arrays'},
        lambda facts: [1],
    ],
)
def test_damaged_digests_are_damage(run_dir: RunDir, change: Callable) -> None:
    save(run_dir, 10, 20)
    file = run_dir.checkpoints / '20' / 'digest' / 'digest.json'
    file.write_text(json.dumps(change(json.loads(file.read_text()))))
    assert newest(run_dir)[0] == 10
    assert names(run_dir) == {'10', '20.damaged-1'}


def test_another_runs_checkpoint_is_not_taken_for_ones_own(run_dir: RunDir, tmp_path: Path) -> None:
    """Though its shapes fit. A config may say otherwise how long and how often; not what was computed."""
    lineage = Lineage('trunk', 'rows', 'tokenizer', 0, 12)
    other = RunDir(tmp_path / 'other')
    run_dir.claim(RUN, lineage)
    other.claim(edit(RUN, seed=1), lineage)
    save(run_dir, 10)
    save(other, 20)
    shutil.copytree(other.checkpoints / '20', run_dir.checkpoints / '20')
    with pytest.raises(
        ValueError, match=r'checkpoints/20 is of another run \([0-9a-f]{16}, not [0-9a-f]{16}\); move it away'
    ):
        newest(run_dir)
    shutil.rmtree(run_dir.checkpoints / '20')
    config = json.loads(run_dir.config_file.read_text())
    config['train']['steps'] = 99
    run_dir.config_file.write_text(json.dumps(config))
    assert newest(run_dir)[0] == 10


def test_a_disk_that_does_not_answer_is_not_damage(run_dir: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    save(run_dir, 10, 20)

    def fail(*_: object, **__: object) -> None:
        raise ValueError('UNAVAILABLE: the server is busy')

    with Checkpoints(run_dir) as checkpoints:
        monkeypatch.setattr(checkpoints._manager, 'restore', fail)
        with pytest.raises(OSError, match=r'checkpoints/20 could not be read: UNAVAILABLE'):
            checkpoints.restore_latest(like())
    assert steps_of(run_dir) == [10, 20]
