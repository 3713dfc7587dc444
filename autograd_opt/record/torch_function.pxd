"""The torch-function mode of a context, and which route a callable takes."""

cdef dict handlers                       # a callable of torch's -> its route, or a handler in Python
cdef set plain_reads                     # properties that are no operation
cdef object handler_of(object func)
