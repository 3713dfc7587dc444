"""Blocks of memory for a graph's arrays, kept from graph to graph.

A graph is opened and left in every training step, and its arrays grow. From 1 KiB on the C library's allocator first
puts together all small blocks that were given back (`malloc_consolidate`), which takes longer than all else that
opening a graph does. So a few blocks of each size, a power of two, wait here for the next graph.
"""

from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from libc.string cimport memcpy

cdef extern from *:
    """
    #ifdef __SANITIZE_ADDRESS__
    #define AO_KEPT 0                    /* what uses a block that was given back is to be seen */
    #else
    #define AO_KEPT 4
    #endif
    """
    int KEPT "AO_KEPT"                   # of each size, at most

cdef enum:
    SMALLEST = 8                         # of the blocks that are kept, as powers of two: 256 bytes to 64 KiB
    LARGEST = 16
cdef void *spare[17][4]                  # by size, up to LARGEST
cdef int count[17]                       # how many of each size there are


cdef inline int power_of(size_t size) noexcept:
    """The power of two that a block of `size` bytes has at least."""
    cdef int power = SMALLEST
    while (<size_t>1 << power) < size:
        power += 1
    return power


cdef void *take(size_t size) except NULL:
    """A block of at least `size` bytes, whatever they hold."""
    cdef int power = power_of(size)
    cdef void *block
    if power <= LARGEST and count[power]:
        count[power] -= 1
        return spare[power][count[power]]
    block = PyMem_RawMalloc(<size_t>1 << power)
    if block == NULL:
        raise MemoryError()
    return block


cdef void give(void *block, size_t size) noexcept:
    """Take back a block that was given for `size` bytes; NULL is none."""
    cdef int power = power_of(size)
    if block != NULL and power <= LARGEST and count[power] < KEPT:
        spare[power][count[power]] = block
        count[power] += 1
    else:
        PyMem_RawFree(block)


cdef void *grown(void *block, size_t size, size_t new) except NULL:
    """A block of `new` bytes with what the block of `size` bytes holds, which is given back."""
    cdef void *larger = take(new)
    memcpy(larger, block, size)
    give(block, size)
    return larger
