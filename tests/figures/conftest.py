"""Made-up run directories, as training and evaluation leave them."""

import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from smelt_jax.config import RunConfig
from smelt_jax.runs import Lineage, RunDir, config_fingerprint

TOKENS = 4096  # of an update
BRANCH = 60  # updates of a branch
EVERY = 5


def heldout(kind: str, step: int, trunk_step: int, loss: float, flops_per_token: float = 6e6) -> dict:
    """A held-out record, with a key that no figure knows."""
    return {
        'task': 'heldout',
        'name': 'arm',
        'kind': kind,
        'step': step,
        'trunk_step': trunk_step,
        'visits': 1,
        'pack': 'pack',
        'tokens_seen': step * TOKENS,
        'flops': flops_per_token * step * TOKENS,
        'flops_per_token': flops_per_token,
        'loss': loss,
        'bits_per_byte': loss / math.log(2) / 3,
        'by_source': {'web': {'loss': loss}},
    }


@pytest.fixture
def make_arm(tmp_path: Path) -> Callable[..., list[RunDir]]:
    """make(name, …) writes a trunk of `steps` updates and a branch from each of `branch_steps`, with losses that fall as a
    power of the tokens to `floor`."""

    def make(
        name: str,
        floor: float = 3.0,
        flops_per_token: float = 6e6,
        steps: int = 400,
        branch_steps: tuple = (100, 200, 400),
    ) -> list[RunDir]:
        noise = np.random.default_rng(len(name))
        run = dataclasses.replace(RunConfig(), name=name)

        def loss(step: int) -> float:
            return floor + 3.2 * (1 + step / 12) ** -0.55

        trunk = RunDir(tmp_path / name / 'trunk')
        trunk.claim(run, Lineage('trunk', 'pack', 'bytes', 0, steps))
        lines = [
            {'step': step, 'loss': loss(step) - 0.03 + 0.06 * noise.normal(), 'tokens_seen': step * TOKENS}
            for step in range(EVERY, steps + 1, EVERY)
        ]
        trunk.metrics_file.write_text(''.join(json.dumps(line) + '\n' for line in lines))
        trunk.put_records(heldout('trunk', step, step, loss(step), flops_per_token) for step in branch_steps)
        runs = [trunk]
        for step in branch_steps:
            branch = RunDir(tmp_path / name / f'branch-{step}')
            lineage = Lineage('branch', 'pack', 'bytes', step, step + BRANCH, '../trunk', config_fingerprint(run))
            branch.claim(run, lineage)
            end = loss(step + BRANCH) - 0.16
            branch.put_records([heldout('branch', step + BRANCH, step, end, flops_per_token)])
            runs.append(branch)
        return runs

    return make
