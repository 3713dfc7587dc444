"""Call torch's own modules without the interpreter between `module(x)` and what it computes."""

cdef bint calls_lost() except -1
cdef int look_for_tools() except -1
