"""The node of a tensor: made on demand with its source line, and told when the tensor dies."""

from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF

from autograd_opt.abi.ctorch cimport ao_try_attr
from autograd_opt.graph.node cimport NODE, Node
from autograd_opt.graph.tape cimport Tape


cdef inline Node held_node(object t):
    """Return the node that a tensor holds; None where it holds none."""
    cdef PyObject *p = ao_try_attr(t, NODE)
    cdef object found
    if p == NULL:
        return None
    found = <object>p
    Py_DECREF(found)
    return <Node>found


cdef Node handle(Tape tape, object t)
cdef int attach(Tape tape, Node node, object tensor) except -1
cdef int release_handle(Tape tape, object t) except -1
cpdef wrote(t)
