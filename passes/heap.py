"""Large blocks of memory that come back: the C library is told to keep what a large graph turns over.

glibc hands blocks of more than 32 MiB, and any free end of its heap above 64 MiB,
back to the kernel, which gives them out again page by page, each zeroed at its
first use. Reading and writing a graph of a million nodes turns over 180 MB: 32,000
page faults, a fifth of its time, where 100,000 nodes have none.
"""

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["LARGE", "blocks_kept"]

LARGE = 200_000
"""Graphs of fewer nodes change nothing: their blocks stay with the process anyway."""
NODE_BYTES = 256
"""What reading and writing turn over for each node, rounded up."""
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Parameters of `mallopt`, from malloc.h."""
USUAL_MMAP_THRESHOLD = 32 << 20
"""Where glibc's own adjustment ends in a process that has freed a block as large."""
MOST = 2**31 - 1

_kept = 0


@contextmanager
def blocks_kept(nodes: int) -> Iterator[None]:
    """Within, blocks for a graph of so many nodes come from the heap; what is freed stays with the process.

    At most 256 bytes for each node of the largest graph seen stay. `AUTOGRAD_OPT_KEEP_HEAP=0`,
    a small graph, or another C library than glibc: nothing happens.

    Examples
    --------
    >>> with blocks_kept(10):
    ...     pass
    """
    global _kept
    mallopt = None if nodes < LARGE or os.environ.get("AUTOGRAD_OPT_KEEP_HEAP") == "0" else _mallopt()
    if mallopt is None:
        yield
        return
    _kept = min(max(_kept, NODE_BYTES * nodes), MOST)
    mallopt(TRIM_THRESHOLD, _kept)
    mallopt(MMAP_THRESHOLD, _kept)
    try:
        yield
    finally:
        mallopt(MMAP_THRESHOLD, USUAL_MMAP_THRESHOLD)


def _mallopt() -> Any:
    if not sys.platform.startswith("linux"):
        return None
    library = ctypes.CDLL(None)
    return library.mallopt if hasattr(library, "gnu_get_libc_version") else None
