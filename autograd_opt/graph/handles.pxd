"""The node of a tensor: made on demand with its source line, and told when the tensor dies."""

from cpython.object cimport PyObject

from autograd_opt.abi.ctorch cimport ao_held
from autograd_opt.graph.node cimport NODE, Node, Op
from autograd_opt.graph.tape cimport Tape


cdef inline Node held_node(object t):
    """Return the node that a tensor holds; None where it holds none."""
    cdef PyObject *p = ao_held(t, NODE)
    return None if p == NULL else <Node><object>p


cdef Node handle(Tape tape, object t)
cdef Node over(Tape tape, Op op, Node below, dict attrs, object t)
cdef int attach(Tape tape, Node node, object tensor) except -1
cdef int attach_strided(Tape tape, Node node, object tensor) except -1
cdef int release_handle(Tape tape, object t) except -1
cpdef dict geometry(view, base)
cpdef Node move(Op op, Node below, dict attrs, t)
cpdef wrote(t)
