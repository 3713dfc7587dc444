"""Saved-tensor hooks: what `torch.autograd.graph.saved_tensors_hooks` does to values saved here."""

cimport cython

from autograd_opt.graph.node cimport Node

@cython.final
cdef class AtHome:
    cdef object hook
    cdef object under_modes(self, object value)

@cython.final
cdef class Packed:
    cdef object unpack, held
    cdef public Node node
    cpdef object value(self)
    cpdef object seen_by_user(self)
    cdef object unpacked(self, object run)

cpdef object pack(object t, Node node, bint is_output=*)
cdef object innermost_hooks()
cdef object packed(tuple hooks, object t, Node node, bint is_output)
cdef object pack_extra(tuple hooks, object extra)
