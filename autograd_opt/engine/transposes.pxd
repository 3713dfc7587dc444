"""Tell transposes of matrices, whose cotangents are made turned, as in torch."""

from autograd_opt.graph.node cimport Node

cdef bint exchanged(Node node) except -1


cdef inline bint turned_view(Node node) except -1:
    """True if this is the transpose of a matrix: its cotangent is made turned, that of the matrix is row-major."""
    return node.view is not None and len(<tuple>node.shape) == 2 and exchanged(node)
