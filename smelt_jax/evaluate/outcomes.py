"""How each example of a task came out: a file for each step, task, visits, shots and seed, so that checkpoints can be compared
example by example."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from etils import epath

from smelt_jax.runs import RunDir, read_lines
from smelt_jax.storage.files import write_atomically

KEYS = ('right', 'nats', 'tokens')


class Outcomes(NamedTuple):
    """Of the examples of a task in their order; float64 [n] each.

    Attributes:
      right: 1 or 0; of several seeds, the mean.
      nats: of the gold continuation's tokens, summed.
      tokens: how many they are.
    """

    right: np.ndarray
    nats: np.ndarray
    tokens: np.ndarray


def outcome_file(run_dir: RunDir, record: Mapping[str, Any]) -> epath.Path:
    """Where those are kept that a record sums up. A trial with fewer examples or less room has a file of its own. `made:dyck`
    is called `made,dyck`: no file system minds, and no task of a table has a comma."""
    named = {'visits': 'visits', 'shots': 'shots', 'seed': 'shot_seed', 'of': 'examples', 'room': 'room'}
    parts = (f'{word}{record[key]}' for word, key in named.items())
    return run_dir.outcomes / str(record['step']) / f'{"-".join([record["task"].replace(":", ","), *parts])}.jsonl'


def write(file: epath.Path, lines: Sequence[Mapping[str, Any]]) -> None:
    """The whole file or none. A line has what `Outcomes` has of its example, and whatever else."""
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, ''.join(json.dumps(line) + '\n' for line in lines))


def read(files: Sequence[epath.Path]) -> Outcomes:
    """The mean over files, one a seed, of the same examples. Raises ValueError, naming the file, if one is not there or has
    another number of examples."""
    found: list[np.ndarray] = []
    for file in files:
        lines = read_lines(file, KEYS)
        if not lines:
            raise ValueError(f'{file} is not there; evaluate the task again, with --again')
        if found and len(lines) != len(found[0][0]):
            raise ValueError(
                f'{file} has {len(lines)} examples, {files[0]} has {len(found[0][0])}; evaluate with --again'
            )
        found.append(np.array([[line[key] for key in KEYS] for line in lines], np.float64).T)
    return Outcomes(*np.mean(found, axis=0))


def fit(file: epath.Path, record: Mapping[str, Any]) -> bool:
    """Whether a file has the outcomes that a record sums up: not those of another limit or pack, nor damaged ones."""
    try:
        right, nats, tokens = read([file])
    except (TypeError, ValueError):
        return False
    found = [len(tokens), tokens.sum(), right.mean(), nats.sum() / tokens.sum()]
    said = [record.get(key) for key in ('examples', 'completion_tokens', 'accuracy', 'completion')]
    return bool(np.allclose(found, np.array(said, np.float64), rtol=1e-9, atol=0))
