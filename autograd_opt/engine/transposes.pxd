"""Tell transposes of matrices, whose cotangents are made turned, as in torch."""

from autograd_opt.graph.node cimport Node

cdef bint exchanged(Node node) except -1


cdef inline bint turned_view(Node node) except -1:
    """True if this matrix has the strides of a transpose: its cotangent is made turned, that of the matrix is row-major."""
    return (node.in0 is not None or node.in1 is not None) and node.more is None and len(<tuple>node.shape) == 2 \
        and exchanged(node)
