"""Find the entry of a call in the value table."""

from autograd_opt.graph.node cimport Node, Op
from autograd_opt.graph.tape cimport Tape
from autograd_opt.graph.value_table cimport Entry

cdef Entry *key_of(Tape tape, Op op, Py_ssize_t count, Node na, Node nb, Node nc, tuple operands, dict attrs,
                   bint req, bint grad) except? NULL
cdef Entry *key_of_all(Tape tape, Op op, list nodes, tuple operands, dict attrs, bint req, bint grad) except? NULL
