"""The host process: its memory allocator."""

import ctypes
import os
import sys

_M_TRIM_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -4, -8  # malloc.h
_MADV_HUGEPAGE = 14  # sys/mman.h
_HUGE_PAGE = 1 << 21
_RESERVED = 8 << 30  # address space; memory is taken only where it is touched


def keep_freed_memory() -> bool:
    """Tells glibc to keep freed buffers for the next use, in huge pages, instead of giving them back to the kernel.

    XLA on CPU allocates the temporaries of a step anew each time. By default glibc maps each large buffer afresh, and the
    kernel clears its pages one fault at a time: docs/performance.md has what that costs. Call it before jax starts its
    threads. Returns whether there was a glibc to tell; elsewhere nothing happens.
    """
    if not sys.platform.startswith('linux'):
        return False
    try:
        libc = ctypes.CDLL('libc.so.6')
        mallopt, malloc, free, madvise = libc.mallopt, libc.malloc, libc.free, libc.madvise
    except (OSError, AttributeError):
        return False
    # One arena, the heap, never trimmed: the arenas of threads are cut into 64 MB, and what is larger is mapped afresh.
    kept = [mallopt(_M_ARENA_MAX, 1), mallopt(_M_TRIM_THRESHOLD, -1), mallopt(_M_MMAP_MAX, 0)]
    malloc.restype, malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    free.restype, free.argtypes = None, [ctypes.c_void_p]
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    # The heap grows by this much and takes it back at once, with the wish for huge pages attached.
    size = min(_RESERVED, os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') // 2)
    if address := malloc(size):
        aligned = -(-address // _HUGE_PAGE) * _HUGE_PAGE
        madvise(aligned, (address + size - aligned) // _HUGE_PAGE * _HUGE_PAGE, _MADV_HUGEPAGE)
        free(address)
    return all(kept)
