"""Tensors that came to require grad by a write, whose views are older than that."""

cdef bint any_late() except -1
