"""Tell transposes of matrices, whose cotangents are made turned, as in torch."""

from autograd_opt.engine.hot cimport AXES, MIRROR, TRANSPOSE, TURN
from autograd_opt.graph.node cimport ELEMENTWISE, REDUCES, Node, attribute

cdef enum:
    FAR = 16                             # steps back that are looked at

cdef object SPELLINGS = frozenset("T H mH".split())


cdef bint exchanged(Node node) except -1:
    """True if axes are exchanged an odd number of times on the way to this matrix; what goes element by element keeps strides."""
    cdef bint odd = False
    cdef int steps = 0
    while node.more is None and len(<tuple>node.shape) == 2 and steps < FAR:
        steps += 1
        if node.view is not None and node.in0 is not None and turns(node):
            odd = not odd
            node = node.in0
        elif node.op.flags & ELEMENTWISE and node.in1 is not None and (node.in0 is None or node.in0.shape != node.shape):
            node = node.in1
        elif node.in0 is not None and (node.op.flags & ELEMENTWISE or node.op.flags & REDUCES
                                       and node.dtype is not node.in0.dtype):        # a cast
            node = node.in0
        else:
            break
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
