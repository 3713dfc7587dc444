"""Tell transposes of matrices, whose cotangents are made turned, as in torch."""

from autograd_opt.engine.hot cimport AXES, MIRROR, TRANSPOSE, TURN
from autograd_opt.graph.node cimport Node, attribute

cdef object SPELLINGS = frozenset("T H mH".split())


cdef bint exchanged(Node node) except -1:
    """True if this is a view that exchanges axes an odd number of times."""
    cdef bint odd = False
    while node.view is not None and node.in0 is not None and turns(node):
        odd = not odd
        node = node.in0
    return odd


cdef bint turns(Node node) except -1:
    """True if this operation exchanges the two axes of a matrix."""
    cdef int hot = node.op.hot
    if hot == TURN or hot == MIRROR:
        return True
    if hot == TRANSPOSE:
        return (attribute(node, "dim0") - attribute(node, "dim1")) % 2 != 0
    if hot == AXES:
        return attribute(node, "dims")[0] % 2 != 0
    return not hot and node.op.name in SPELLINGS
