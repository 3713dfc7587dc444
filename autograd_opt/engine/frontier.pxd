"""The nodes that a run has still to visit: a heap of their record numbers, the largest on top."""

from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from libc.stdint cimport int64_t

cdef struct Frontier:
    int64_t *heap
    Py_ssize_t count, capacity


cdef inline int open_frontier(Frontier *f) except -1:
    """Make an empty one, whose memory `close_frontier` gives back."""
    f.count, f.capacity = 0, 64
    f.heap = <int64_t *>PyMem_Malloc(f.capacity * sizeof(int64_t))
    if f.heap == NULL:
        raise MemoryError()
    return 0


cdef inline void close_frontier(Frontier *f) noexcept:
    """Give its memory back."""
    PyMem_Free(f.heap)


cdef inline int push(Frontier *f, int64_t index) except -1:
    """Add a record number."""
    cdef Py_ssize_t i = f.count, parent
    cdef int64_t *grown
    if i == f.capacity:
        grown = <int64_t *>PyMem_Realloc(f.heap, 2 * f.capacity * sizeof(int64_t))
        if grown == NULL:
            raise MemoryError()
        f.heap = grown
        f.capacity *= 2
    f.count += 1
    while i > 0:
        parent = (i - 1) >> 1
        if f.heap[parent] >= index:
            break
        f.heap[i] = f.heap[parent]
        i = parent
    f.heap[i] = index
    return 0


cdef inline int64_t pop(Frontier *f) noexcept:
    """Take the largest record number out; there must be one."""
    cdef int64_t top = f.heap[0], last
    cdef Py_ssize_t i = 0, child, n
    f.count -= 1
    n = f.count
    if n == 0:
        return top
    last = f.heap[n]
    while True:
        child = 2 * i + 1
        if child >= n:
            break
        if child + 1 < n and f.heap[child + 1] > f.heap[child]:
            child += 1
        if f.heap[child] <= last:
            break
        f.heap[i] = f.heap[child]
        i = child
    f.heap[i] = last
    return top
