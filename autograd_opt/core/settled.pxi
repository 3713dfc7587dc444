# Whether the numbers given while recording already say all that the default passes would find.

cdef bint factor(Node node) noexcept:
    """A change of sign, or a product or quotient with a number: words that the rules of algebra combine."""
    return node.op.distinct or node.op.unit == 1 and node.flags & (SCALAR0 | SCALAR1) != 0


cdef bint is_settled(Tape tape) except -1:
    """Would the passes merge what is merged already, and nothing else?

    They would where each call was asked for in the value table, which compares exactly what the
    pass for common subexpressions compares, and where no rule of algebra applies: it takes
    two factors in a row, a number that leaves its operand as it is, or two ways to write one number.
    In doubt the answer is no.
    """
    cdef Py_ssize_t i
    cdef Node node, below
    cdef Op op
    cdef int numbers = 0         # bits: operators that were given a number
    cdef double number
    if tape.consumed or tape.epoch or tape.layouts:
        return False
    for i in range(tape.n):
        node = <Node>tape.nodes[i]
        op = node.op
        if node.flags & (PINNED | NO_MERGE | ESCAPED | OVERWRITTEN | SPENT | BY_RULE):
            return False
        if node.flags & LEAF:
            if node.view is not None:
                return False
            continue
        if not op.flags & PURE or op.flags & (MULTI | VIEW) or op is OUTPUT_OP or node.more is not None \
                or node.view is not None or op.values_only and not op.distinct:
            return False
        if factor(node):
            below = node.in0 if node.in0 is not None else node.in1
            if below is None or factor(below):
                return False
        if op.number_symbol and node.flags & (SCALAR0 | SCALAR1):
            value = node.x0 if node.flags & SCALAR0 else node.x1
            if type(value) is not float and (type(value) is not int or not -(1 << 53) < value < 1 << 53):
                return False
            number = value
            if number == op.unit or number == -op.unit:
                return False
            numbers |= 1 << (2 * op.unit + (op.flags & COMMUTATIVE != 0))
    return numbers & 3 != 3 and numbers >> 2 != 3        # plus and minus, times and over
