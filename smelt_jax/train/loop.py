"""The training loop of trunks and branches: resumes, steps, checks, reports, saves."""

import contextlib
import dataclasses
import functools
import json
import signal
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
import optax

from smelt_jax import stop
from smelt_jax.batch import Batch
from smelt_jax.budget.accounting import budget_of
from smelt_jax.config import RunConfig, to_dict
from smelt_jax.data.manifest import Manifest, open_pack
from smelt_jax.data.rows import RowOrder, require_steps, train_batches
from smelt_jax.model.config import ModelConfig
from smelt_jax.parallel import processes
from smelt_jax.parallel.devices import Devices
from smelt_jax.runs import Lineage, RunDir
from smelt_jax.train.checkpoints import Checkpoints
from smelt_jax.train.checks import check, named_pack, require_microbatches, require_rows_for_branches
from smelt_jax.train.config import OptimConfig
from smelt_jax.train.digest import look_over
from smelt_jax.train.optimizer import optimizer
from smelt_jax.train.peak import peak_flops
from smelt_jax.train.report import Report, Silence
from smelt_jax.train.schedule import trunk_schedule
from smelt_jax.train.stall import Stall
from smelt_jax.train.state import TrainState, init_state
from smelt_jax.train.step import make_step
from smelt_jax.train.watch import Watch, skipped_before
from smelt_jax.train.wishes import Wishes


def train(run: RunConfig, workdir: str, strict_restore: bool = False) -> RunDir:
    """Trains the trunk of `run` in `workdir`, from its last checkpoint if it has one, to `train.steps`.

    Args:
      strict_restore: a damaged checkpoint is an error; otherwise it is set aside, and the one before is taken.

    Raises:
      ValueError: the config, the pack or the workdir do not fit each other; nothing was written.
      NonFiniteError, DamagedError: see there.
      Stopped: by a signal; all that was done is saved.
    """
    run.check()
    manifest = open_pack(named_pack(run))
    require_rows_for_branches(run, manifest)
    run_dir = RunDir(workdir)
    lineage = Lineage('trunk', manifest.fingerprint, manifest.tokenizer_fingerprint, 0, run.train.steps)
    schedule = trunk_schedule(run.optim.peak_lr, run.optim.warmup_steps)
    fit(run, run_dir, lineage, schedule, manifest, lambda like: None, strict_restore)
    return run_dir


def fit(
    run: RunConfig,
    run_dir: RunDir,
    lineage: Lineage,
    schedule: optax.Schedule,
    manifest: Manifest,
    seed: Callable[[TrainState], TrainState | None],
    strict_restore: bool = False,
) -> None:
    """Updates `lineage.start` … `lineage.stop` of a trunk or a branch.

    Args:
      run, run_dir, lineage, schedule, manifest: of the run.
      seed: gives the state a fresh run starts from, for abstract shapes of it; None initialises parameters.
      strict_restore: see `train`.
    """
    check(run, manifest)
    devices = Devices.of(run.mesh)
    devices.check(run.model, data__batch_rows=run.data.batch_rows, heldout__batch_rows=run.heldout.batch_rows)
    require_microbatches(run, devices.count)
    require_steps(run.data.pack, run.data, lineage.start, lineage.stop)
    first = processes.first()
    pinned = run.train.branch_steps if lineage.kind == 'trunk' else ()
    with (
        stop.listening(),
        _claimed(run, run_dir, lineage),
        Checkpoints(run_dir, run.train.keep, pinned, strict=strict_restore) as checkpoints,
    ):
        latest = checkpoints.latest()
        if latest is not None and latest >= lineage.stop:
            return
        like = devices.placed(functools.partial(init_state, run.model, optimizer(run.optim), run.seed))
        if first and jax.device_count() > 1:
            stop.say(f'{run_dir.path}: {devices}')
        if found := checkpoints.restore_latest(like):
            step, state = found
            if first:
                stop.say(f'{run_dir.path}: going on from step {step}')
        else:
            # Fresh or restored, jit must see the same placement: else it compiles the step once more for a branch.
            step, state = lineage.start, seed(like) or _fresh(run.model, run.optim, run.seed, devices)
            if first and (lost := run_dir.metrics()):
                stop.say(
                    f'{run_dir.path}: there is no checkpoint; the run begins again at step {step}, and its metrics up to step '
                    f'{lost[-1]["step"]} are made anew'
                )

        flops = budget_of(run.model, manifest.train.mean_attended_keys).train_flops.total
        peak = peak_flops(run.train.peak_flops, run.model.dtype)
        part = devices.local_rows(run.data.batch_rows)
        batches = train_batches(run.data.pack, run.data, step, part, manifest.fingerprint)
        made = Report(run_dir, run_dir.path.name, step, lineage.stop, flops, peak) if first else Silence()
        order, size = RowOrder(manifest.train.rows, run.data.seed), run.data.batch_rows
        with stop.keeping(), Stall(run.train.stall_minutes, run_dir.path / 'stall.txt') as stall, made as report:
            for where, line in checkpoints.set_aside:
                report.incident(where, 'damaged', line, say=False)
            if found:
                report.incident(step, 'resumed', f'from step {step}', say=False)
            watch = Watch(
                report,
                run.train,
                run.optim.skip_nonfinite,
                lineage.stop,
                size * manifest.row_tokens,
                rows_of=lambda step: order.ids((step - 1) * size, step * size),
                skipped=skipped_before(run_dir.incidents(), step),
            )
            _updates(run, devices, lineage, schedule, state, step, batches, watch, report, checkpoints, stall)
            checkpoints.wait()
        if stop.asked() and jax.process_count() == 1:
            raise stop.Stopped(stop.asked(), f' at step {lineage.stop}, the last, which is saved')


@contextlib.contextmanager
def _claimed(run: RunConfig, run_dir: RunDir, lineage: Lineage) -> Iterator[None]:
    """The directory is this run's, and held by it, for all of its processes. Raises ValueError in each if they do not agree.

    The first alone writes; the others look, so that what is refused is refused by all.
    """
    first = processes.first()
    settings = json.dumps([to_dict(run), dataclasses.asdict(lineage), str(run_dir.path)])
    processes.agree('start all with the same command', config=settings)
    run_dir.claim(run, lineage, write=False)
    with run_dir.held() if first else contextlib.nullcontext():
        if first:
            run_dir.claim(run, lineage)
        processes.meet('claimed')
        processes.agree('it has to be on a disk that all of them share', workdir=run_dir.holder())
        yield


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _fresh(model: ModelConfig, optim: OptimConfig, seed: int, devices: Devices) -> TrainState:
    """Made where it lies: no device and no host has all of it, unless the mesh is one device."""
    return devices.keep(init_state(model, optimizer(optim), seed))


def _updates(
    run: RunConfig,
    devices: Devices,
    lineage: Lineage,
    schedule: optax.Schedule,
    state: TrainState,
    start: int,
    batches: Iterator[tuple[int, np.ndarray, Batch]],
    watch: Watch,
    report: Report | Silence,
    checkpoints: Checkpoints,
    stall: Stall,
) -> None:
    update = make_step(run.model, run.loss, run.optim, devices)
    wishes = Wishes(devices, run.train.save_minutes)
    done, to_stop = start, False

    def save() -> None:
        watch.look()  # nothing is saved that has not been found finite
        digests, finite = look_over(state)
        watch.require_finite(finite, done)
        report.flush()
        checkpoints.save(done, state, digests)
        wishes.saved(done)

    for step in range(start, lineage.stop):
        try:
            with stop.interruptible() if jax.process_count() == 1 else contextlib.nullcontext():
                _, _, batch = next(batches)
        except stop.Stopped:
            if done == start:
                raise
            to_stop = True
            break
        checkpoints.check()
        state, metrics = update(
            state, devices.batch(batch, run.data.batch_rows), jnp.float32(schedule(step)), *wishes.given()
        )
        stop.keep()
        # The update before is looked at while this one runs: the device never waits for the check.
        watch.look()
        done = step + 1
        watch.follow(done, metrics)
        if step == start:
            watch.look()  # waits for the compilation and the first update
            report.start_clock()
        stall.at(f'after step {done}')
        to_stop, to_save = wishes.heard(watch)
        if to_save or done % run.train.save_every == 0 or done in run.train.branch_steps or done == lineage.stop:
            save()
        if to_stop:
            break
    if to_stop:
        save()  # once: a step that is there already stays
        checkpoints.wait()
        report.incident(done, 'stopped', f'stopped at step {done}, which is saved', say=False)
        raise stop.Stopped(stop.asked() or signal.SIGTERM, f' at step {done}, which is saved', together=True)
