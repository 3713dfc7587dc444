"""The nodes of a tape's leaves: tensors that it has not computed itself."""

from cpython.object cimport PyObject

from autograd_opt.graph.node cimport Node
from autograd_opt.graph.tape cimport Tape

cdef Node leaf(Tape tape, object t)
cdef Node adopt(Tape tape, object t, Node node)
cdef Node elsewhere(Tape tape, object t)
cdef int describe(Node node, object t) except -1
cdef PyObject *leaf_tensor(Node node) except? NULL
