"""What can be said of a run before it starts: does everything fit together?"""

import math

from smelt_jax.config import RunConfig
from smelt_jax.data.manifest import Manifest
from smelt_jax.data.rows import require_steps


def named_pack(run: RunConfig) -> str:
    """`data.pack`. Raises ValueError if it is empty."""
    if not run.data.pack:
        raise ValueError('data.pack is empty; give --config.data.pack=DIR, a folder that smelt pack wrote')
    return run.data.pack


def branch_updates(run: RunConfig, row_tokens: int, tokens: int) -> int:
    """Updates of a branch of `tokens` tokens, rounded up."""
    return math.ceil(tokens / (run.data.batch_rows * row_tokens))


def require_rows_for_branches(run: RunConfig, manifest: Manifest) -> None:
    """Raises ValueError if rows run out in a branch that the config plans: before its trunk starts, not after its end."""
    updates = branch_updates(run, manifest.row_tokens, run.train.branch_tokens)
    last = max((step + updates for step in run.train.branch_steps), default=0)
    try:
        require_steps(run.data.pack, run.data, 0, last)
    except ValueError as error:
        raise ValueError(
            f'train.branch_tokens={run.train.branch_tokens} after {last - updates} steps: {error}'
        ) from None


def check(run: RunConfig, manifest: Manifest) -> None:
    """Raises ValueError if the model cannot read the pack, or the run's own numbers contradict each other."""
    if run.model.vocab < manifest.vocab:
        raise ValueError(
            f'model.vocab={run.model.vocab} is smaller than the tokenizer of {run.data.pack} with {manifest.vocab} '
            f'tokens; set model.vocab to that or more'
        )
    twice = sorted({step for step in run.train.branch_steps if run.train.branch_steps.count(step) > 1})
    if twice:
        raise ValueError(f'train.branch_steps={run.train.branch_steps} has {twice} more than once')
    late = [step for step in run.train.branch_steps if not 0 < step <= run.train.steps]
    if late:
        raise ValueError(f'train.branch_steps={late} are not among the steps 1 … {run.train.steps} of the trunk')


def require_microbatches(run: RunConfig, devices: int) -> None:
    """Raises ValueError if the rows of a device cannot be cut into `optim.accumulate` microbatches."""
    rows = run.data.batch_rows // devices
    if rows % run.optim.accumulate:
        each = '' if devices == 1 else f', {rows} rows on each of {devices} devices,'
        raise ValueError(
            f'data.batch_rows={run.data.batch_rows}{each} is not divisible by optim.accumulate={run.optim.accumulate}; '
            f'choose an accumulation that divides the rows'
        )
