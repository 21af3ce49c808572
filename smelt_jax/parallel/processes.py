"""Many processes, one run."""

import atexit
import hashlib
import os
import sys
import time
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from smelt_jax.parallel.company import Company
from smelt_jax.parallel.rollcall import roll_call

NEWS_SECONDS = 1.0  # in which the news of a process that is gone has come
_joined = False
_company: Company | None = None  # of those that were given HOST:PORT


def first() -> bool:
    """Whether this is the process that writes what is written once."""
    return jax.process_index() == 0


def meet(where: str) -> None:
    """Waits until every process is here."""
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices(where)


def agree(remedy: str, **facts: str) -> None:
    """Raises ValueError, in every process, if one of them has other `facts` than process 0, naming both. They have parted then:
    it is the end of a run."""
    if jax.process_count() == 1:
        return
    digests_X = [hashlib.sha256(fact.encode()).digest()[:4] for fact in facts.values()]
    own_X = np.array([int.from_bytes(digest, 'little') for digest in digests_X], np.uint32)
    all_PX = np.asarray(multihost_utils.process_allgather(own_X))
    for name, digest_P in zip(facts, all_PX.T, strict=True):
        others = [str(number) for number in np.flatnonzero(digest_P != digest_P[0])]
        if others:
            part()  # all have heard it: that one says so first and ends must not end the others
            raise ValueError(f'process {", ".join(others)} has another {name} than process 0; {remedy}')


def start(coordinator: str, process_id: int | None, process_count: int | None, timeout_seconds: int) -> None:
    """Joins the processes of a run. To be called before anything else asks jax for devices.

    Args:
      coordinator: HOST:PORT of process 0; `auto` finds everything out from the cluster (TPU pods, Slurm, MPI, …); '' is a run
        of one process.
      process_id, process_count: which one this is, of how many, with HOST:PORT.
      timeout_seconds: how long a process that is not there, or gone, is waited for.

    Raises:
      ValueError: what is given does not make sense, or a process did not come; the line names it.
    """
    global _joined, _company
    named = bool(coordinator) and coordinator != 'auto'
    if not named and (process_id is not None or process_count is not None):
        raise ValueError(f'{process_id=} and {process_count=} go with --coordinator=HOST:PORT of process 0')
    if not coordinator:
        return
    given: dict[str, Any] = {}
    if named:
        if process_id is None or process_count is None or not 0 <= process_id < process_count:
            raise ValueError(
                f'--coordinator={coordinator} with {process_id=} and {process_count=}: give every process the number of '
                f'them all, and an id from 0 to one less'
            )
        peers = roll_call(coordinator, process_id, process_count, timeout_seconds)
        _company = Company(peers, process_count, timeout_seconds)
        atexit.register(_company.leave)
        given = {'coordinator_address': coordinator, 'process_id': process_id, 'num_processes': process_count}
    _joined = True
    # Its handler would swallow SIGTERM, and wait for somebody to ask about it.
    jax.config.update('jax_enable_preemption_service', False)
    try:
        # On a cluster jax's own heartbeat finds one that dies later, ends the others, and names it.
        jax.distributed.initialize(
            **given, initialization_timeout=timeout_seconds, heartbeat_timeout_seconds=timeout_seconds
        )
    except ValueError as error:
        if named:
            raise
        raise ValueError(
            f'--coordinator=auto: jax knows no cluster here ({error}); give HOST:PORT of process 0'
        ) from None


def look_around() -> None:
    """Before this process says that it has failed: another one's death may be the cause. If so, this ends here, naming it."""
    if _joined:
        time.sleep(NEWS_SECONDS)


def part() -> None:
    """All end now, at the same point, each by itself: whatever its exit code, none is missed by the others."""
    global _joined
    if not _joined:
        return
    meet('all end here')
    if _company:
        _company.leave()
    jax.distributed.shutdown()
    _joined = False


def end(code: int) -> int:
    """The exit code, of a program that ends now. One of many that has failed does not come back: it would wait for others
    that wait for it. It dies at once instead, so that they know."""
    if code and _joined:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code
