"""The small run that is disturbed: its commands, what they come to when nobody disturbs them, and the comparison with that."""

import contextlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from packs import sentences, write_jsonl
from runs_helper import ROOT, RUN, edit, without_clock, write_experiment

from faults.looks import Lost, Result, arrays, digest, ended, lines, require_equal, unfinished, until
from smelt_jax.parallel.config import MeshConfig
from smelt_jax.runs import RunDir

STEPS, PINNED, KEEP, BRANCH_UPDATES, ROW_TOKENS = 30, 10, 2, 12, 32  # saved every 4
HALF = 22  # updates of a trunk that is killed at leisure
VERBS = ('pack', 'train', 'branch', 'evaluate')

# A reader that gets no more rows after some of them, as long as the file SLOW exists: a network disk that hangs.
SLOW = """

import os, time
if os.environ.get('SLOW_AFTER'):
    from smelt_jax.data.rows import PackedRows
    _read, _count = PackedRows.read, [0]

    def _slow_read(self, ids):
        _count[0] += 1
        while _count[0] > int(os.environ['SLOW_AFTER']) and os.path.exists(os.environ['SLOW']):
            time.sleep(0.05)
        return _read(self, ids)

    PackedRows.read = _slow_read
"""


class World:
    """A scratch folder with text, experiment and compiled programs, and the results that nobody disturbed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        folder.mkdir(parents=True, exist_ok=True)
        run = edit(
            RUN,
            model__vocab=400,
            heldout__max_rows=600,
            pack__corpora=(write_jsonl(self.folder / 'text.jsonl', sentences(3000)),),
            pack__tokenizer='bpe:400',
            pack__row_tokens=ROW_TOKENS,
            pack__shard_rows=512,
            pack__heldout_fraction=0.2,
            pack__workers=2,
            train__steps=STEPS,
            train__save_every=4,
            train__keep=KEEP,
            train__branch_steps=(PINNED,),
            train__branch_tokens=BRANCH_UPDATES * RUN.data.batch_rows * ROW_TOKENS,
        )
        self.experiment = self.folder / 'small.py'
        write_experiment(self.experiment, one=run, two=edit(run, mesh=MeshConfig(fsdp=2)), other=edit(run, seed=7))
        with self.experiment.open('a') as file:
            file.write(SLOW)
        self._count = itertools.count(1)
        self.reference = Place(self, self.folder / 'reference')
        self.expected: dict[str, Result] = {}
        for verb in VERBS:
            self.reference.run(verb)
        self.expected = {verb: self.reference.result(verb) for verb in VERBS}

    def place(self) -> 'Place':
        """A new folder for one scenario."""
        return Place(self, self.folder / f'place-{next(self._count)}')

    def env(self, **more: str) -> dict[str, str]:
        """Of the commands: nothing is optimised, and what one has compiled the others find."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(('JAX_', 'XLA_'))}
        return kept | {
            'PYTHONPATH': str(ROOT),
            'COLUMNS': '120',
            'JAX_PLATFORMS': 'cpu',
            'JAX_DISABLE_MOST_OPTIMIZATIONS': '1',
            'JAX_COMPILATION_CACHE_DIR': str(self.folder / 'compiled'),
            'JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS': '0',
            **more,
        }


class Place:
    """Where a scenario happens: a pack, a trunk and a leaf. What a scenario does not make itself is the reference's."""

    def __init__(self, world: World, folder: Path) -> None:
        self.world, self.folder = world, folder
        folder.mkdir(exist_ok=True)
        self.pack, self.trunk, self.leaf, self.log = (folder / name for name in ('pack', 'trunk', 'leaf', 'log'))
        self.arm = 'one'
        self.after = contextlib.ExitStack()  # closed when all is compared, last what was entered first

    def target(self, verb: str) -> Path:
        """What a verb writes."""
        return {'pack': self.pack, 'branch': self.leaf}.get(verb, self.trunk)

    def args(self, verb: str, *more: str) -> list[str]:
        """The command, with `more` flags. It reads what is here, or else what the reference has."""
        reference = self.world.reference
        pack = self.pack if self.pack.exists() else reference.pack
        trunk = self.trunk if self.trunk.exists() else reference.trunk
        config = f'--config={self.world.experiment}:{self.arm}'
        flags = {
            'pack': [config, f'--out={self.pack}'],
            'train': [config, f'--config.data.pack={pack}', f'--workdir={self.trunk}'],
            'branch': [f'--trunk={trunk}', f'--step={PINNED}', f'--workdir={self.leaf}'],
            'evaluate': [f'--checkpoint={self.trunk}'],
        }
        return [sys.executable, '-m', 'smelt_jax', verb, *flags[verb], *more]

    def start(self, verb: str, *more: str, **env: str) -> subprocess.Popen:
        """Starts `smelt VERB`; what it says goes to `log`."""
        with self.log.open('w') as log:
            process = subprocess.Popen(
                # Under nohup a hangup would be ignored. (No preexec_fn: a fork of a process with threads may hang.)
                ['env', '--default-signal=HUP', *self.args(verb, *more)],
                cwd=self.folder,
                env=self.world.env(**env),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.after.callback(process.kill)  # of one that has ended it does nothing
        return process

    def run(self, verb: str, *more: str, code: int | None = 0, **env: str) -> int:
        """Runs it to its end. Raises Lost if that is another than `code`, or does not come."""
        process = self.start(verb, *more, **env)
        found = ended(process)
        if code is not None and found != code:
            raise Lost(f'smelt {verb} ended with {found}, not {code}: {self.last_line()}')
        return found

    def said(self) -> str:
        """stdout and stderr of the last command."""
        return self.log.read_text(errors='replace')

    def last_line(self) -> str:
        """What it said at last."""
        return (self.said().splitlines() or [''])[-1]

    def prepare(self, verb: str) -> 'Place':
        """Puts here what the verb goes on from, and cannot take from the reference in its place."""
        if verb == 'evaluate':
            shutil.copytree(self.world.reference.trunk, self.trunk, ignore=shutil.ignore_patterns('records.jsonl'))
        return self

    def halfway(self, arm: str = 'one') -> None:
        """Puts a trunk here that was killed after HALF updates, with the checkpoints 10, 16 and 20."""
        made = self.world.folder / f'halfway-{arm}'
        if not made.exists():
            place = self.world.place()
            place.arm = arm
            killed = place.stalled('train', HALF, '--config.data.prefetch=1')
            killed.kill()
            killed.wait()
            place.trunk.rename(made)
        shutil.copytree(made, self.trunk)

    def stalled(self, verb: str, updates: int, *more: str) -> subprocess.Popen:
        """Starts `smelt VERB`, and returns when it has made so many updates and waits for rows that do not come. They do
        when the file `slow` is removed."""
        slow = self.folder / 'slow'
        slow.touch()
        process = self.start(verb, *more, SLOW_AFTER=str(updates), SLOW=str(slow))
        # The metrics of an update are looked at when the next one runs, or when it is saved.
        until(lambda: lines(self.target(verb)) >= updates - 1 and not unfinished(self.target(verb)), process)
        time.sleep(0.7)
        return process

    def result(self, verb: str) -> Result:
        """What a verb has come to: all that must be as if nobody had disturbed it."""
        target = self.target(verb)
        if verb == 'pack':
            files = [path for path in sorted(target.rglob('*')) if path.is_file()]
            return {str(path.relative_to(target)): digest(path.read_bytes()) for path in files}
        if verb == 'evaluate':
            return {'records': [json.dumps(record, sort_keys=True) for record in RunDir(target).records()]}
        first, last = (PINNED, PINNED + BRANCH_UPDATES) if verb == 'branch' else (0, STEPS)
        steps = (last,) if verb == 'branch' else (PINNED, last)
        logged = enumerate(without_clock(RunDir(target).metrics()), first + 1)
        found: Result = {f'metrics, line {number}': line for number, line in logged}
        for step in steps:
            kept = arrays(target / 'checkpoints' / str(step))
            found |= {f'checkpoint {step}, {name}': value for name, value in kept.items()}
        return found

    def compare(self, verb: str) -> None:
        """Raises Lost, naming what differs from the undisturbed."""
        require_equal(self.result(verb), self.world.expected[verb], f'smelt {verb}')
