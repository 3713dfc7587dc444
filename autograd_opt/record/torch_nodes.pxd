"""What nodes of torch's save."""

cpdef bint saves(function) except -1
cdef bint is_unknown(kind) except -1
cpdef bint keeps_nothing(list functions) except -1
cpdef str name_of(last)
cdef set saved_operands(list functions)
