"""Codes of the operators that the engine tells apart, in the order of `HOT` in `ops/table.py`; cases without a rule in C."""

from autograd_opt.graph.node cimport SCALAR1, Node, attribute

cdef enum Hot:
    NONE, ADD, SUB, MUL, NEG, DIV, POW, EXP, LOG, SIN, COS, SQRT, SQUARE, RECIPROCAL, ABS, TANH, SIGMOID, RELU, \
        SOFTMAX, LOG_SOFTMAX, SUM, MEAN, MATMUL, MM, RESHAPE, SQUEEZE, TRANSPOSE, TURN, MIRROR, COPY, INDEX, SELECT, NARROW, \
        TANH_BACK, SIGMOID_BACK, LINEAR, ADDMM, WHERE, CAT, STACK, UNBIND, SPLIT, \
        AXES, NLL


cdef inline bint scaled(Node node) except -1:
    """Is the second operand of this sum or difference multiplied by anything but the integer 1?"""
    if node.attrs is None:
        return False
    alpha = attribute(node, "alpha")
    return type(alpha) is not int or alpha != 1


cdef inline bint numbered(Node node) except -1:
    """Is the exponent of this power a number other than 0?"""
    return node.in1 is None and node.flags & SCALAR1 != 0 and (type(node.x1) is int or type(node.x1) is float) \
        and node.x1 != 0
