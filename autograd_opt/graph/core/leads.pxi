# Which nodes a run with targets executes: a mark for each record number that can be among them.
#
# Part of node.pyx.

@cython.final
cdef class Leads:
    """The targets of a run, and the nodes on a way to one; asked by `leads_on`."""

    def __cinit__(self, int64_t low, int64_t high):
        self.low, self.high = low, max(low, high)
        self.marks = <unsigned char *>PyMem_Calloc(self.high - low + 1, 1)
        if self.marks == NULL:
            raise MemoryError()

    def __dealloc__(self):
        PyMem_Free(self.marks)
