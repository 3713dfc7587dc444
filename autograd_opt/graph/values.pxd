"""When the value of a node can be handed out again, or be read in a rule."""

from autograd_opt.graph.node cimport Node, Op
from autograd_opt.graph.tape cimport Tape

cdef object known_value(Tape tape, Node first)
cdef object live_value(Tape tape, Node node)
cdef object left_over(Tape tape, Node first, object value)
cdef bint given_up(Tape tape, Node node, object clone) except -1
cdef object value_of(Tape tape, Op op, Node operand)
