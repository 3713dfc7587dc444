"""Call a rule of the operator table with the arguments that it names."""

from autograd_opt.engine.task cimport GraphTask
from autograd_opt.graph.node cimport Node, Vjp

cdef object call_rule(GraphTask task, Vjp vjp, Node node, object g)
cdef object read(GraphTask task, Node node, int i)
