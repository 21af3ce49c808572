"""Work in chunks of a size that does not depend on the machine, over its cores, results in the order of the work."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar('T')

# Threads, since numpy works without the interpreter's lock while it computes on a chunk; a fork of a process that has others
# (jax has) could hang, and a spawned one would import everything anew.


def over_cores(work: Callable[[slice], T], count: int, size: int) -> list[T]:
    """`work` of the slices of `count` items, `size` each."""
    parts = [slice(start, min(start + size, count)) for start in range(0, count, size)]
    if len(parts) < 2:
        return [work(part) for part in parts]
    with ThreadPoolExecutor(cores()) as pool:
        return list(pool.map(work, parts))


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count() or 1
