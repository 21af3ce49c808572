"""The training loop of trunks and branches: resumes, steps, checks, reports, saves."""

import contextlib
import dataclasses
import functools
import json
import math
import sys
from collections.abc import Callable, Iterator
from typing import NoReturn

import jax
import jax.numpy as jnp
import numpy as np
import optax

from smelt_jax.batch import Batch
from smelt_jax.budget.accounting import budget_of
from smelt_jax.config import RunConfig, to_dict
from smelt_jax.data.manifest import Manifest, open_pack
from smelt_jax.data.rows import require_steps, train_batches
from smelt_jax.model.config import ModelConfig
from smelt_jax.parallel import processes
from smelt_jax.parallel.devices import Devices
from smelt_jax.runs import Lineage, RunDir
from smelt_jax.train.checkpoints import Checkpoints
from smelt_jax.train.config import OptimConfig
from smelt_jax.train.optimizer import optimizer
from smelt_jax.train.peak import peak_flops
from smelt_jax.train.report import Report, Silence
from smelt_jax.train.schedule import trunk_schedule
from smelt_jax.train.state import TrainState, init_state
from smelt_jax.train.step import Metrics, make_step


class NonFiniteError(ValueError):
    """The loss or the gradient is not a number any more. The last checkpoint is from before."""


def train(run: RunConfig, workdir: str) -> RunDir:
    """Trains the trunk of `run` in `workdir`, from its last checkpoint if it has one, to `train.steps`.

    Raises:
      ValueError: the config, the pack or the workdir do not fit each other; nothing was written.
      NonFiniteError: see there.
    """
    run.check()
    manifest = open_pack(named_pack(run))
    _require_rows_for_branches(run, manifest)
    run_dir = RunDir(workdir)
    lineage = Lineage('trunk', manifest.fingerprint, manifest.tokenizer_fingerprint, 0, run.train.steps)
    schedule = trunk_schedule(run.optim.peak_lr, run.optim.warmup_steps)
    fit(run, run_dir, lineage, schedule, manifest, lambda like: None)
    return run_dir


def fit(
    run: RunConfig,
    run_dir: RunDir,
    lineage: Lineage,
    schedule: optax.Schedule,
    manifest: Manifest,
    seed: Callable[[TrainState], TrainState | None],
) -> None:
    """Updates `lineage.start` … `lineage.stop` of a trunk or a branch.

    Args:
      run, run_dir, lineage, schedule, manifest: of the run.
      seed: gives the state a fresh run starts from, for abstract shapes of it; None initialises parameters.
    """
    check(run, manifest)
    devices = Devices.of(run.mesh)
    devices.check(run.model, data__batch_rows=run.data.batch_rows, heldout__batch_rows=run.heldout.batch_rows)
    require_microbatches(run, devices.count)
    require_steps(run.data.pack, run.data, lineage.start, lineage.stop)
    first = processes.first()
    pinned = run.train.branch_steps if lineage.kind == 'trunk' else ()
    with _claimed(run, run_dir, lineage), Checkpoints(run_dir, run.train.keep, pinned) as checkpoints:
        latest = checkpoints.latest()
        if latest is not None and latest >= lineage.stop:
            return
        like = devices.placed(functools.partial(init_state, run.model, optimizer(run.optim), run.seed))
        if first and jax.device_count() > 1:
            print(f'{run_dir.path}: {devices}', file=sys.stderr)
        if latest is not None and first:
            print(f'{run_dir.path}: going on from step {latest}', file=sys.stderr)
        state = checkpoints.restore(latest, like) if latest is not None else seed(like)
        step = lineage.start if latest is None else latest
        # Fresh or restored, jit must see the same placement: else it compiles the step once more for a branch.
        state = _fresh(run.model, run.optim, run.seed, devices) if state is None else state

        flops = budget_of(run.model, manifest.train.mean_attended_keys).train_flops.total
        peak = peak_flops(run.train.peak_flops, run.model.dtype)
        part = devices.local_rows(run.data.batch_rows)
        batches = train_batches(run.data.pack, run.data, step, part)
        made = Report(run_dir, run_dir.path.name, step, lineage.stop, flops, peak) if first else Silence()
        with made as report:
            _updates(run, devices, lineage, schedule, manifest.row_tokens, state, step, batches, report, checkpoints)
        checkpoints.wait()


@contextlib.contextmanager
def _claimed(run: RunConfig, run_dir: RunDir, lineage: Lineage) -> Iterator[None]:
    """The directory is this run's, and held by it, for all of its processes. Raises ValueError in each if they do not agree.

    The first alone writes; the others look, so that what is refused is refused by all.
    """
    first = processes.first()
    settings = json.dumps([to_dict(run), dataclasses.asdict(lineage), str(run_dir.path)])
    processes.agree('start all with the same command', config=settings)
    run_dir.claim(run, lineage, write=first)
    with run_dir.held() if first else contextlib.nullcontext():
        processes.meet('claimed')
        processes.agree('it has to be on a disk that all of them share', workdir=run_dir.holder())
        yield


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _fresh(model: ModelConfig, optim: OptimConfig, seed: int, devices: Devices) -> TrainState:
    """Made where it lies: no device and no host has all of it, unless the mesh is one device."""
    return devices.keep(init_state(model, optimizer(optim), seed))


def named_pack(run: RunConfig) -> str:
    """`data.pack`. Raises ValueError if it is empty."""
    if not run.data.pack:
        raise ValueError('data.pack is empty; give --config.data.pack=DIR, a folder that smelt pack wrote')
    return run.data.pack


def branch_updates(run: RunConfig, row_tokens: int, tokens: int) -> int:
    """Updates of a branch of `tokens` tokens, rounded up."""
    return math.ceil(tokens / (run.data.batch_rows * row_tokens))


def _require_rows_for_branches(run: RunConfig, manifest: Manifest) -> None:
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


def _updates(
    run: RunConfig,
    devices: Devices,
    lineage: Lineage,
    schedule: optax.Schedule,
    row_tokens: int,
    state: TrainState,
    start: int,
    batches: Iterator[tuple[int, np.ndarray, Batch]],
    report: Report | Silence,
    checkpoints: Checkpoints,
) -> None:
    update = make_step(run.model, run.loss, run.optim, devices)
    watch = _Watch(report, run.train.log_every, lineage.stop, run.data.batch_rows * row_tokens)
    for step, (_, row_ids, batch) in zip(range(start, lineage.stop), batches, strict=False):
        state, metrics = update(state, devices.batch(batch, run.data.batch_rows), jnp.float32(schedule(step)))
        # The update before is looked at while this one runs: the device never waits for the check.
        watch.look()
        done = step + 1
        watch.follow(done, row_ids, metrics)
        if step == start:
            watch.look()  # waits for the compilation and the first update
            report.start_clock()
        if done % run.train.save_every == 0 or done in run.train.branch_steps or done == lineage.stop:
            watch.look()  # nothing is saved that has not been found finite
            watch.require_finite(state, done, row_ids)
            checkpoints.save(done, state)


class _Watch:
    """Looks at the metrics of an update once it is done: stops the run on a number that is none, logs when it is time."""

    def __init__(self, report: Report | Silence, log_every: int, stop: int, tokens: int) -> None:
        self._report, self._log_every, self._stop, self._tokens = report, log_every, stop, tokens
        self._followed: tuple[int, np.ndarray, Metrics] | None = None
        self._finite: dict[str, float] = {}

    def follow(self, step: int, row_ids: np.ndarray, metrics: Metrics) -> None:
        """An update was started that leads to `step`."""
        self._followed = (step, row_ids, metrics)

    def look(self) -> None:
        """Waits for the followed update, if it was not looked at yet. Raises NonFiniteError."""
        if self._followed is None:
            return
        step, row_ids, metrics = self._followed
        self._followed = None
        values = {name: float(value) for name, value in metrics.items()}
        if not (math.isfinite(values['loss']) and math.isfinite(values['grad_norm'])):
            self._stop_here(f'step {step}: loss {values["loss"]}, gradient norm {values["grad_norm"]}', row_ids)
        self._finite = values
        self._report.step(step, self._tokens)
        if step % self._log_every == 0 or step == self._stop:
            self._report.log(step, {**values, 'tokens_seen': step * self._tokens})

    def require_finite(self, state: TrainState, step: int, row_ids: np.ndarray) -> None:
        """Raises NonFiniteError if the update to `step`, from a finite loss and gradient, led to numbers that are none."""
        if not _all_finite(state):
            self._stop_here(f'step {step}: its update made parameters or moments that are not finite', row_ids)

    def _stop_here(self, what: str, row_ids: np.ndarray) -> NoReturn:
        raise NonFiniteError(
            f'{what}. Last finite metrics: {self._finite or "none"}. Rows of the batch: {row_ids.tolist()}. '
            f'The last checkpoint is from before; look at these rows, or lower optim.peak_lr'
        )


@jax.jit
def _all_finite(state: TrainState) -> jax.Array:
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(state)]))
