"""The node of a tensor: made on demand with its source line, and told when the tensor dies."""

from autograd_opt.graph.node cimport Node
from autograd_opt.graph.tape cimport Tape

cdef Node handle(Tape tape, object t)
cdef int attach(Tape tape, Node node, object tensor) except -1
cdef int release_handle(Tape tape, object t) except -1
cpdef wrote(t)
