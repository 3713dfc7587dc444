"""Hand on the results of rules in C, added to the sum that waits where there is one."""

from libc.stdint cimport uint32_t

from autograd_opt.engine.task cimport GraphTask
from autograd_opt.graph.node cimport Node

cdef bint tensor_like(object y) except -1
cdef bint dense(object g) except -1
cdef tuple beside(Node node, object g, object y)
cdef bint owns(GraphTask task, object g) except -1
cdef bint writable(GraphTask task, object g, Py_ssize_t held) except -1
cdef bint turns_into(GraphTask task, Node node, object g, object y) except -1
cdef bint adds(GraphTask task, Node target) except -1
cdef object times(bint into, object g, tuple y)
cdef int pass_on(GraphTask task, Node node, Node operand, object g, uint32_t fix, int fresh) except -1
cdef int pass_product(GraphTask task, Node node, Node operand, object g, object y, uint32_t fix, bint last) except -1
cdef int pass_quotient(GraphTask task, Node node, Node operand, object g, object y, uint32_t fix, bint last) except -1
cdef int pass_negated(GraphTask task, Node node, Node operand, object g, uint32_t fix, bint writable) except -1
cdef int pass_scaled(GraphTask task, Node node, Node operand, object t, object y, object factor) except -1
cdef int pass_mm(GraphTask task, Node node, Node operand, object x, object y, bint turned=*) except -1
cdef object share(GraphTask task, Node node, object g, object n)
