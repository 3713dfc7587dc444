"""Whether numbering values pays in the graphs that are opened at one place of a program."""

from autograd_opt.graph.tape cimport Tape


cdef class Rests:
    cdef Py_ssize_t losses               # turns in a row in which the work did not pay
    cdef Py_ssize_t resting, rest        # turns that are still to rest, and how many rest next
    cdef Py_ssize_t shortest, longest
    cdef void last_for(self, Py_ssize_t shortest, Py_ssize_t longest) noexcept
    cdef bint take(self) noexcept
    cdef void win(self) noexcept
    cdef void lose(self, Py_ssize_t patience) noexcept


cdef bint rests(object place) except -1
cdef int learn_graph(object place, Tape tape) except -1
cdef int forget_graphs() except -1
