"""What stands on the disk is damaged between two runs: found, named, and gone around; never trained on."""

import functools
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from absl import logging

from faults.looks import Lost, Result, arrays, saved
from faults.scenario import Scenario, Seen
from faults.world import KEEP, STEPS, Place

NEWEST = 20  # of a trunk that is half done; the ones before are 16 and 10
NUMBERS = (
    'params/ocdbt.process_0/d/*',
    'params/d/*',
    'params/manifest.ocdbt',
    'optimizer/ocdbt.process_0/d/*',
    'optimizer/manifest.ocdbt',
)
OTHERS = (
    '_CHECKPOINT_METADATA',
    'params/_METADATA',
    'optimizer/_METADATA',
    '*/_sharding',
    '*/array_metadatas/*',
    '*/commit_success.txt',
    'digest/digest.json',
)
REMOVED = (
    '_CHECKPOINT_METADATA',
    'params/_METADATA',
    'params/manifest.ocdbt',
    'optimizer/_METADATA',
    'digest',
    'params',
    'params/d',
)
STRICT = '--strict_restore'


def flip(file: Path, chance: random.Random) -> None:
    """One bit of it."""
    data = bytearray(file.read_bytes())
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    file.write_bytes(data)


def cut(file: Path, chance: random.Random) -> None:
    """Its end is gone."""
    data = file.read_bytes()
    file.write_bytes(data[: chance.randrange(1, len(data))])


def empty(file: Path, _: random.Random) -> None:
    """Nothing is left in it."""
    file.write_bytes(b'')


def remove(file: Path, _: random.Random) -> None:
    """It is gone, a file or a folder."""
    shutil.rmtree(file) if file.is_dir() else file.unlink()


def damaged(
    pattern: str, damage: Callable, arrays_are_there: bool, strict: bool, place: Place, chance: random.Random
) -> Seen:
    """A file of the newest checkpoint is damaged; the run goes on from the one before, and says so.

    Args:
      pattern: of the files; one of them is taken.
      damage: what is done to it.
      arrays_are_there: whether numbers of the run are in these files: then a damage that changes them must be said.
      strict: whether going on from the one before is forbidden.
    """
    place.halfway()
    folder = place.trunk / 'checkpoints' / str(NEWEST)
    before = arrays(folder)
    found = sorted(folder.glob(pattern))
    for _ in range(40):  # some of these files are of no use any more, and some bits of none
        file = chance.choice(found)
        name, whole = str(file.relative_to(folder)), b'' if file.is_dir() else file.read_bytes()
        damage(file, chance)
        changed = _differs(folder, before)
        if changed or not arrays_are_there:
            break
        file.write_bytes(whole)
    seen = Seen()
    if strict and changed:
        place.run('train', STRICT, code=1)
        if str(NEWEST) not in place.last_line() or NEWEST not in saved(place.trunk):
            raise Lost(f'{name}: the refusal does not name the checkpoint, or has touched it: {place.last_line()!r}')
    place.run('train')
    said = _says(place, str(NEWEST))
    if arrays_are_there and changed and not said:
        raise Lost(f'{name}: {damage.__name__} changed numbers, and nothing was said')
    if said and not list((place.trunk / 'checkpoints').glob(f'{NEWEST}.*-*')):
        raise Lost(f'{name}: the damaged checkpoint was not set aside: {sorted(saved(place.trunk))}')
    seen.add(_kind(name), changed or not arrays_are_there, said)
    return seen


def torn_line(place: Place, chance: random.Random) -> Seen:
    """metrics.jsonl ends in the middle of a line."""
    place.halfway()
    file = place.trunk / 'metrics.jsonl'
    text = file.read_bytes()
    file.write_bytes(text[: -chance.randint(1, len(text.splitlines()[-1]))])
    place.run('train')
    seen = Seen()
    seen.add('metrics.jsonl')
    return seen


def planted(place: Place, chance: random.Random) -> Seen:
    """One parameter of the newest checkpoint is NaN, in a checkpoint that is whole: the run stops, and names step and rows."""
    place.halfway()
    _plant(place, chance)
    place.run('train', code=1)
    pattern = rf'smelt train: error: step {NEWEST + 1}: .*rows of its batch, \[\d+, \d+\]'
    if not re.match(pattern, place.last_line()):
        raise Lost(f'after a NaN at step {NEWEST} the last line was {place.last_line()!r}')
    (place.trunk / 'checkpoints' / str(NEWEST)).rename(place.folder / 'moved-away')
    place.run('train')
    seen = Seen()
    seen.add('params', said=True)
    return seen


def _plant(place: Place, chance: random.Random) -> None:
    import jax
    import numpy as np
    from runs_helper import state_at

    from smelt_jax.runs import RunDir
    from smelt_jax.train.checkpoints import Checkpoints

    logging.set_verbosity(logging.ERROR)  # Orbax warns of what is meant
    run_dir = RunDir(place.trunk)
    state = state_at(run_dir, NEWEST)
    leaves, tree = jax.tree.flatten(state.params)
    number = chance.randrange(len(leaves))
    leaf = np.array(leaves[number])
    leaf[...] = np.nan  # all of it: an expert that no token of the next batch takes would not be seen at once
    leaves[number] = jax.numpy.asarray(leaf)
    shutil.rmtree(run_dir.checkpoints / str(NEWEST))
    with Checkpoints(run_dir, KEEP, run_dir.config().train.branch_steps) as checkpoints:
        checkpoints.save(NEWEST, state._replace(params=jax.tree.unflatten(tree, leaves)))


def copied(place: Place, _: random.Random) -> Seen:
    """The run directory is copied, and the copy goes on elsewhere; then the original does."""
    place.halfway()
    other = place.world.place()
    shutil.copytree(place.trunk, other.trunk)
    other.run('train')
    other.compare('train')
    place.run('train')
    shutil.rmtree(other.folder)
    seen = Seen()
    seen.add('copy')
    return seen


def foreign(place: Place, _: random.Random) -> Seen:
    """The newest checkpoint is one of another run, with arrays of the same shapes: refused, or gone around, and said."""
    other = place.world.place()
    other.arm = 'other'
    other.run('train')
    place.halfway()
    target = place.trunk / 'checkpoints' / str(NEWEST + 2)
    shutil.copytree(other.trunk / 'checkpoints' / str(STEPS), target)
    return _refused_or_gone_around(place, other, target)


def foreign_of_same_step(place: Place, _: random.Random) -> Seen:
    """The same, with the name and the step of the newest one: nothing but whose it is tells it."""
    other = place.world.place()
    other.halfway('other')
    place.halfway()
    target = place.trunk / 'checkpoints' / str(NEWEST)
    shutil.rmtree(target)
    shutil.copytree(other.trunk / 'checkpoints' / str(NEWEST), target)
    return _refused_or_gone_around(place, other, target)


def _refused_or_gone_around(place: Place, other: Place, target: Path) -> Seen:
    """Runs with the checkpoint `target` of `other` in it; once more without, if it was refused."""
    shutil.rmtree(other.folder)
    seen = Seen()
    if place.run('train', code=None):
        seen.add('refused', said=True)
        shutil.rmtree(target)
        place.run('train')
    else:
        seen.add('gone on', said=_says(place, target.name))
    return seen


def branch_from_damaged(place: Place, chance: random.Random) -> Seen:
    """The trunk's checkpoint that a branch starts from is damaged: refused, for there is no other."""
    shutil.copytree(place.world.reference.trunk, place.trunk)
    folder = place.trunk / 'checkpoints' / '10'
    shutil.copytree(folder, place.folder / 'whole')
    flip(max(folder.glob('params/ocdbt.process_0/d/*'), key=lambda file: file.stat().st_size), chance)
    changed = _differs(folder, arrays(place.folder / 'whole'))
    code = place.run('branch', code=None)
    seen = Seen()
    if changed and (code != 1 or 'checkpoints/10' not in place.last_line()):
        raise Lost(f'a branch from a damaged checkpoint ended with {code}: {place.last_line()}')
    seen.add('params', changed, changed)
    if changed:
        shutil.rmtree(folder)
        (place.folder / 'whole').rename(folder)
        place.run('branch')
    return seen


def _differs(checkpoint: Path, expected: Result) -> bool:
    try:
        return arrays(checkpoint) != expected
    except Lost:
        return True


def _says(place: Place, step: str) -> bool:
    """Whether stderr names the checkpoint, and not as the one that the run goes on from."""
    said = [line for line in place.said().splitlines() if 'going on from step' not in line]
    return any(re.search(rf'\b{step}\b', line) and re.search('damaged|incomplete', line) for line in said)


def _kind(name: str) -> str:
    return re.sub(r'd/[0-9a-f]{32}', 'd/*', name)


def scenarios() -> list[Scenario]:
    """Every kind of file of a checkpoint, each damaged in each way."""
    found = []
    for damage, what in ((flip, 'a bit flipped'), (cut, 'cut off'), (empty, 'emptied')):
        for pattern in NUMBERS:
            act = functools.partial(damaged, pattern, damage, True, False)
            times, short = 3 if pattern.endswith('*') else 1, int(damage is flip and pattern == NUMBERS[0])
            found.append(Scenario(f'Newest checkpoint, an array file {what}', act, ('train',), times, short))
        for pattern in OTHERS:
            act = functools.partial(damaged, pattern, damage, False, False)
            found.append(Scenario(f'Newest checkpoint, another file {what}', act, ('train',)))
        act = functools.partial(damaged, NUMBERS[0], damage, True, True)
        line = f'Newest checkpoint, an array file {what}, `--strict_restore`'
        found.append(Scenario(line, act, ('train',)))
    for name in REMOVED:
        act, short = functools.partial(damaged, name, remove, False, False), int(name == 'params/_METADATA')
        found.append(Scenario('Newest checkpoint, a marker or a folder removed', act, ('train',), 1, short))
    found += [
        Scenario('metrics.jsonl ends within a line', torn_line, ('train',), 2),
        Scenario('NaN in a parameter of the newest checkpoint', planted, ('train',), 3, 1),
        Scenario('The run directory copied, both go on', copied, ('train',), 1),
        Scenario('A checkpoint of another run put in, under another step', foreign, ('train',), 1),
        Scenario('A checkpoint of another run put in, of the same step', foreign_of_same_step, ('train',)),
        Scenario('The checkpoint that a branch starts from damaged', branch_from_damaged, ('branch',), 2),
    ]
    return found
