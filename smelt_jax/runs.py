"""A run directory: every path and every format of it.

config.json      the resolved config
lineage.json     where the run comes from: see `Lineage`
checkpoints/     Orbax, one folder a step
metrics.jsonl    one line every `train.log_every` updates
incidents.jsonl  what went otherwise than planned: see `train/watch.py`
tensorboard/     the same, as events
records.jsonl    one line an evaluation
outcomes/        of tasks, a folder a step: how each example came out
holder           of a run that is trained, which process writes it

The directory is an etils.epath path: in a bucket (gs://) all of this is as on a disk.
"""

import contextlib
import dataclasses
import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any

from etils import epath

from smelt_jax.config import RunConfig, diff, from_dict, to_dict
from smelt_jax.storage import hold
from smelt_jax.storage.files import reach, write_atomically

# These say how a machine does the work, what is kept of it and told of it, and change no parameter of the run.
FREE_KEYS = (
    'data.pack',
    'data.prefetch',
    'pack.workers',
    'optim.skip_nonfinite',
    'train.log_every',
    'train.save_every',
    'train.save_minutes',
    'train.keep',
    'train.spike',
    'train.stall_minutes',
    'train.peak_flops',
    'mesh',
)


# What tells the records of a run apart, and those of one task.
RECORD_KEYS = ('step', 'visits', 'task', 'pack')
TASK_KEYS = ('shots', 'shot_seed', 'examples', 'room')


@dataclasses.dataclass(frozen=True)
class Lineage:
    """Where a run comes from.

    Attributes:
      kind: `trunk` | `branch`.
      pack: fingerprint of the packed rows it reads.
      tokenizer: fingerprint of their tokenizer.
      start, stop: global steps of the first update and of the end. A trunk starts at 0, a branch at its trunk's checkpoint.
      trunk: of a branch, the trunk's run directory; else ''.
      trunk_config: of a branch, the fingerprint of its trunk's config; else ''.
    """

    kind: str
    pack: str
    tokenizer: str
    start: int
    stop: int
    trunk: str = ''
    trunk_config: str = ''


class RunDir:
    """Paths of a run, and the reading and writing of its small files."""

    def __init__(self, path: epath.PathLike) -> None:
        self.path = reach(path)
        self.config_file = self.path / 'config.json'
        self.lineage_file = self.path / 'lineage.json'
        self.checkpoints = self.path / 'checkpoints'
        self.metrics_file = self.path / 'metrics.jsonl'
        self.incidents_file = self.path / 'incidents.jsonl'
        self.records_file = self.path / 'records.jsonl'
        self.outcomes = self.path / 'outcomes'
        self.tensorboard = self.path / 'tensorboard'
        self._holder = self.path / 'holder'

    def claim(self, run: RunConfig, lineage: Lineage, write: bool = True) -> None:
        """Makes the directory this run's, or finds that it already is. Free keys become those of `run`. With `write` off it
        only looks: of many processes one writes.

        Raises:
          ValueError: it belongs to a run of another config or lineage, and the message lists the keys that differ; or it has
            checkpoints and nothing that says whose. Nothing was written.
        """
        wanted = {'config': _bound(to_dict(run)), 'lineage': dataclasses.asdict(lineage)}
        if self.config_file.exists() and self.lineage_file.exists():
            found = {'config': _bound(_read_json(self.config_file)), 'lineage': _read_json(self.lineage_file)}
            wanted['lineage']['trunk'] = found['lineage'].get('trunk', '')  # a trunk may have moved; its config tells
            lines = diff(found, json.loads(json.dumps(wanted)))
            if lines:
                empty = '' if self.checkpoints.exists() else '; it has no checkpoint, and could be removed'
                raise ValueError(
                    f'{self.path} belongs to another run, which differs in {"; ".join(lines)}. '
                    f'Give this run a workdir of its own, or the settings of that one{empty}'
                )
            if write and self.config() != run:
                self._write_config(run)
            return
        if self.checkpoints.exists():
            raise ValueError(
                f'{self.path} has checkpoints, but no config.json and lineage.json that say whose; '
                f'give this run a workdir of its own, or bring those files back'
            )
        if not write:
            return
        self.path.mkdir(parents=True, exist_ok=True)
        self._write_config(run)
        write_atomically(self.lineage_file, json.dumps(dataclasses.asdict(lineage), indent=2) + '\n')

    def held(self) -> contextlib.AbstractContextManager[None]:
        """One writer at a time: on a disk by a lock, in a bucket by a lease (storage/hold.py). Raises ValueError, naming who
        holds it."""
        self.path.mkdir(parents=True, exist_ok=True)
        return hold.held(self._holder)

    def holder(self) -> str:
        """Who holds it, in words; '' if nobody does."""
        return hold.holder(self._holder)

    def _write_config(self, run: RunConfig) -> None:
        write_atomically(self.config_file, json.dumps(to_dict(run), indent=2) + '\n')

    def config(self) -> RunConfig:
        """The resolved config. Raises FileNotFoundError if this is no run directory."""
        if not self.config_file.exists():
            raise FileNotFoundError(f'{self.path} is no run directory: it has no config.json')
        return from_dict(RunConfig, _read_json(self.config_file))

    def identity(self) -> str:
        """What its checkpoints are marked with, of whose arrays it decides; '' without config and lineage.

        Of the config as it stands, without the rooms that decide how long, how often and what else: a later version of this
        program, which has more keys, knows its run again.
        """
        if not (self.config_file.exists() and self.lineage_file.exists()):
            return ''
        config, lineage = _bound(_read_json(self.config_file)), _read_json(self.lineage_file)
        rooms = {room: config[room] for room in ('data', 'loss', 'model', 'optim', 'seed') if room in config}
        return _hash([rooms, {key: lineage.get(key) for key in ('kind', 'pack', 'tokenizer', 'start')}])

    def lineage(self) -> Lineage:
        """Where the run comes from."""
        return from_dict(Lineage, _read_json(self.lineage_file))

    def metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl, each step once."""
        return read_lines(self.metrics_file, ('step',))

    def forget_metrics_after(self, step: int) -> None:
        """Drops the lines of updates that a resumed run will do again."""
        lines = self.metrics()
        kept = [line for line in lines if line['step'] <= step]
        if len(kept) < len(lines) or self.metrics_file.exists():
            write_atomically(self.metrics_file, ''.join(json.dumps(line) + '\n' for line in kept))

    def incidents(self) -> list[dict[str, Any]]:
        """The lines of incidents.jsonl, of all the times that the run was started."""
        return read_lines(self.incidents_file, ('step', 'kind'))

    def records(self) -> list[dict[str, Any]]:
        """The evaluations of this run."""
        return read_lines(self.records_file, RECORD_KEYS)

    def heldout(self) -> list[dict[str, Any]]:
        """The held-out losses of what was trained: at the config's number of visits, on held-out rows of its own pack."""
        visits, pack = self.config().model.loop.visits, self.lineage().pack
        found = [record for record in self.records() if record['task'] == 'heldout']
        return [record for record in found if record['visits'] == visits and record['pack'] == pack]

    def put_records(self, records: Iterable[dict[str, Any]]) -> None:
        """Adds evaluations. One with the same RECORD_KEYS (and of tasks TASK_KEYS) takes the place of the older."""
        new = list(records)
        keys = {_record_key(record) for record in new}
        with hold.alone(self.path / '.records.lock'):
            kept = [record for record in self.records() if _record_key(record) not in keys]
            write_atomically(self.records_file, ''.join(json.dumps(record) + '\n' for record in kept + new))


def config_fingerprint(run: RunConfig) -> str:
    """A short hash of all that binds a run's numbers."""
    return _hash(_bound(to_dict(run)))


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def read_lines(file: epath.Path, needed: Sequence[str]) -> list[dict[str, Any]]:
    """JSON lines with at least the keys `needed`. A last line that a killed process left unfinished is passed over.

    Raises ValueError, naming file and line, for one that is something else."""
    if not file.exists():
        return []
    found = []
    try:
        texts = file.read_bytes().decode().split('\n')[:-1]
    except UnicodeDecodeError as error:
        raise ValueError(f'{file} is no text in UTF-8 ({error}); restore it from a copy, or remove it') from None
    for number, text in enumerate(texts, start=1):
        if text:
            line = _parse(text, f'{file}, line {number}')
            if missing := [key for key in needed if key not in line]:
                raise ValueError(f'{file}, line {number}: has no {", ".join(missing)}; remove the line')
            found.append(line)
    return found


def _read_json(file: epath.Path) -> dict[str, Any]:
    return _parse(file.read_text(), str(file))


def _parse(text: str, where: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f'{where}: damaged, no JSON ({error}); restore it from a copy, or remove it') from None
    if not isinstance(value, dict):
        raise ValueError(f'{where}: holds {text[:40]!r}, not the keys of an object; remove it')
    return value


def _record_key(record: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(record[key] for key in (*RECORD_KEYS, *(key for key in TASK_KEYS if key in record)))


def _bound(config: dict[str, Any]) -> dict[str, Any]:
    config = json.loads(json.dumps(config))
    for key in FREE_KEYS:
        room, _, name = key.partition('.')
        (config[room] if name else config).pop(name or room, None)
    return config
