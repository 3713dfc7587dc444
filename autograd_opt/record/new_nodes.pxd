"""Write nodes: operands, what rules save, outputs, writes and values that others have computed."""

from libc.stdint cimport uint32_t

from autograd_opt.graph.node cimport Node, Op
from autograd_opt.graph.tape cimport Tape

cdef object owned(object value)
cdef dict own_attributes(dict attrs)
cdef uint32_t save(Tape tape, Node n, object t) except? 4294967295
cdef int save_few(Tape tape, Node node, Node na, Node nb, tuple operands, uint32_t mask, bint checked) except -1
cdef int save_all(Tape tape, Node node, list nodes, tuple operands, uint32_t mask, object extra, bint checked) except -1
cdef object device_of(Op op, list nodes, object r)
cdef Node fill(Tape tape, Op op, list nodes, tuple operands, dict attrs, bint req, object r, object extra=*)
cdef int pack_saved(Tape tape, Node node, object r) except -1
cdef object record_outputs(Tape tape, Op op, list nodes, tuple operands, dict attrs, bint req, object r, object extra=*)
cdef int copied_operands(Tape tape, object a, object b) except -1
