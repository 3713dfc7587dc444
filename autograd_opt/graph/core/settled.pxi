# Whether the numbers given while recording already say all that the default passes would find.

cdef bint is_settled(Tape tape) except -1:
    """Would the passes merge what is merged already, and nothing else?

    They would where each call was asked for in the value table, which compares exactly what the
    pass for common subexpressions compares.  In doubt the answer is no.
    """
    cdef Py_ssize_t i
    cdef Node node
    cdef Op op
    if tape.consumed or tape.epoch or tape.layouts:
        return False
    for i in range(tape.n):
        node = <Node>tape.nodes[i]
        op = node.op
        if node.flags & (PINNED | NO_MERGE | EXPOSED | OVERWRITTEN | FREED | SAME):
            return False
        if node.flags & LEAF:
            if node.view is not None:
                return False
            continue
        if not op.flags & PURE or op.flags & (MULTI | VIEW) or op is OUTPUT_OP or node.more is not None \
                or node.view is not None:
            return False
    return True
