"""Whether recording the calls of a region pays."""

from autograd_opt.graph.tape cimport Tape
from autograd_opt.record.resting cimport Rests


cdef class Balance(Rests):
    cdef Py_ssize_t patience
    cdef Tape last                       # of the latest call that was recorded, until it is taken into account
    cdef Py_ssize_t cost                 # of its recording
    cdef int begin(self, Tape tape) except -1
    cdef int end(self, Tape tape) except -1
    cdef int learn(self, Py_ssize_t merged) except -1
