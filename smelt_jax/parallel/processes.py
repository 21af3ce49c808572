"""Many processes, one run."""

from typing import Any

import jax
from jax.experimental import multihost_utils

from smelt_jax.parallel.rollcall import roll_call


def first() -> bool:
    """Whether this is the process that writes what is written once."""
    return jax.process_index() == 0


def meet(where: str) -> None:
    """Waits until every process is here."""
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices(where)


def start(coordinator: str, process_id: int, process_count: int, timeout_seconds: int) -> None:
    """Joins the processes of a run. To be called before anything else asks jax for devices.

    Args:
      coordinator: HOST:PORT of process 0; `auto` finds everything out from the cluster (TPU pods, Slurm, MPI, …); '' is a run
        of one process.
      process_id, process_count: which one this is, of how many.
      timeout_seconds: how long a process that is not there, or gone, is waited for.

    Raises:
      ValueError: what is given does not make sense, or a process did not come; the line names it.
    """
    if not coordinator:
        return
    given: dict[str, Any] = {}
    if coordinator != 'auto':
        if not 0 <= process_id < process_count:
            raise ValueError(f'{process_id=} of {process_count=}: give --process_count, and an id from 0 to one less')
        roll_call(coordinator, process_id, process_count, timeout_seconds)
        given = {'coordinator_address': coordinator, 'process_id': process_id, 'num_processes': process_count}
    # One that dies later is found by its heartbeat: jax then ends the others, and names it.
    jax.distributed.initialize(
        **given, initialization_timeout=timeout_seconds, heartbeat_timeout_seconds=timeout_seconds
    )
