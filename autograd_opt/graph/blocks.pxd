"""Blocks of memory for a graph's arrays, kept from graph to graph."""

cdef void *take(size_t size) except NULL
cdef void give(void *block, size_t size) noexcept
cdef void *grown(void *block, size_t size, size_t new) except NULL
