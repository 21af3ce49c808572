"""Made-up records of tasks, as `smelt evaluate` writes them."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

CHANCE = {'hellaswag': 0.25, 'copa': 0.5}
EXAMPLES = 200


def begun(name: str, task: str, visits: int, **other: Any) -> dict[str, Any]:
    """What every record begins with."""
    return {
        'task': task, 'name': name, 'kind': 'branch', 'step': 100, 'trunk_step': 80, 'seed': 0, 'pack': 'p' * 12,
        'visits': visits, 'trained_visits': 2 if name.endswith('smelt') else 1, **other,
    }  # fmt: skip


def of_task(name: str, task: str, visits: int, shots: int, seed: int = 0, **other: Any) -> dict[str, Any]:
    """A task's record; scores rise with shots and visits, and differ from seed to seed."""
    noise = np.random.default_rng([seed, shots, visits, len(name)]).normal(size=2)
    chance = CHANCE[task]
    right = chance + (1 - chance) * (0.1 + 0.08 * np.log2(1 + shots) + 0.05 * min(visits, 3)) + 0.01 * noise[0]
    facts = {
        'group': 'core', 'task_version': f'{task}-1', 'shots': shots, 'shot_seed': seed, 'examples': EXAMPLES,
        'accuracy': right, 'accuracy_error': (right * (1 - right) / (EXAMPLES - 1)) ** 0.5, 'chance': chance,
        'centered': (right - chance) / (1 - chance),
        'completion': 3 - 0.2 * np.log2(1 + shots) - 0.1 * visits + 0.02 * noise[1], 'by_category': {},
    }  # fmt: skip
    return begun(name, task, visits, **facts) | other


def of_group(name: str, visits: int, **other: Any) -> dict[str, Any]:
    """The record of the group `core`."""
    facts = {'loss': 2.5 - 0.1 * visits, 'tasks': 2, 'seeds': 1, 'examples': 2 * EXAMPLES}
    return (
        begun(name, 'core', visits, **facts, accuracy=0.5, centered=0.1 * visits, completion=3.0 - visits / 10) | other
    )


def heldout(name: str, visits: int, **other: Any) -> dict[str, Any]:
    """The record of the held-out loss."""
    return begun(name, 'heldout', visits, loss=2.5 - 0.1 * visits, by_domain={'Web': {'loss': 2.0}}) | other


def write(folder: Path, records: Iterable[dict[str, Any]]) -> Path:
    """A run directory, as far as figures and laws read it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / 'records.jsonl').write_text(''.join(json.dumps(one) + '\n' for one in records))
    return folder
