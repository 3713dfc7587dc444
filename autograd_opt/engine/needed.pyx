"""The nodes on the ways from the roots of a run to its targets."""

from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy

from autograd_opt.engine.frontier cimport Frontier, close_frontier, open_frontier, pop, push
from autograd_opt.graph.node cimport LEAF, MERGED, MULTI, NOWHERE, REQUIRES_GRAD, Leads, Node
from autograd_opt.graph.tape cimport Tape


cdef enum Mark:
    ON_THE_WAY = 1               # what `leads_on` asks
    REACHED = 2                  # from a root
    TO_A_MAKER = 4


cdef Leads needed_for(Tape tape, list roots, dict targets, set makers, bint merge):
    """Find the nodes on a path from a root to a target.

    A path to one output of an operation may come through another one: in torch the operation itself, of `makers`,
    is where such paths end.
    """
    cdef Node node
    cdef Leads found
    cdef int64_t low, high, i
    if not targets:
        return Leads(0, 0)
    ends = makers.union(targets) if makers else targets
    low, high = min(ends), max(ends)
    for node in roots:
        high = max(high, node.index)
    found = Leads(low, high + 1)
    reach(tape, found, roots, merge)
    for i in targets:
        found.marks[i - low] |= ON_THE_WAY
    lead(tape, found, ON_THE_WAY, merge)
    if makers:
        for i in makers:
            if not found.marks[i - low] & ON_THE_WAY:
                found.marks[i - low] |= TO_A_MAKER
        lead(tape, found, TO_A_MAKER, merge)
        for i in range(found.high - low):
            if found.marks[i] & TO_A_MAKER and i + low not in makers:
                found.marks[i] |= ON_THE_WAY
    return found


cdef bint intermediate(inputs) except -1:
    """Is any of these nodes something other than a leaf?"""
    cdef Node node
    for other in inputs:
        node = other
        if node is not None and not node.flags & LEAF:
            return True
    return False


cdef set makers_of(list inputs):
    """Indices of the operations of several outputs, one node in torch, of which `inputs` holds some."""
    cdef Node node
    cdef set found = set()
    for node in inputs:
        if node is not None and node.in0 is not None and node.in0.op.flags & MULTI:
            from autograd_opt.graph.hooks import common_node
            if common_node(node) is not None:
                found.add(node.in0.index)
    return found


cdef list called_at(list inputs):
    """Indices of the Functions of several outputs of which `inputs` holds some."""
    cdef Node node
    return [node.in0.index for node in inputs if node is not None and node.op == "output" and node.in0.op.functions]


cdef int touch(Frontier *f, Leads found, Node node) except -1:
    """Put a node that is reached for the first time among those to go on from."""
    if node.index < 0 or node.index < found.low or node.index >= found.high or found.marks[node.index - found.low] & REACHED:
        return 0
    found.marks[node.index - found.low] |= REACHED
    return push(f, node.index)


cdef int reach(Tape tape, Leads found, list roots, bint merge) except -1:
    """Mark what a cotangent can come to, none of it below the lowest target."""
    cdef Frontier f
    cdef Node node, other
    open_frontier(&f)
    try:
        for node in roots:
            touch(&f, found, node)
        while f.count:
            node = <Node>tape.nodes[pop(&f)]
            if node.flags & NOWHERE:
                continue                 # no cotangent goes on from here
            if node.more is not None:
                for other in node.more:
                    if other is not None and other.flags & REQUIRES_GRAD:
                        touch(&f, found, other)
            else:
                if node.in0 is not None and node.in0.flags & REQUIRES_GRAD:
                    touch(&f, found, node.in0)
                if node.in1 is not None and node.in1.flags & REQUIRES_GRAD:
                    touch(&f, found, node.in1)
            if merge and node.flags & MERGED:
                touch(&f, found, node.leader)
    finally:
        close_frontier(&f)
    return 0


cdef inline bint marked(Leads found, Node node, unsigned char mark) noexcept:
    """True if a gradient goes on to this operand, and it is marked."""
    return node is not None and node.flags & REQUIRES_GRAD and found.low <= node.index < found.high \
        and found.marks[node.index - found.low] & mark


cdef int lead(Tape tape, Leads found, unsigned char mark, bint merge) except -1:
    """Mark what was reached and leads to a marked node."""
    cdef Node node, leader
    cdef int64_t i = -1, n = found.high - found.low
    cdef bint leads
    cdef uint64_t eight
    while i + 1 < n:
        i += 1
        while i + 8 <= n:
            memcpy(&eight, found.marks + i, 8)
            if eight != 0:
                break
            i += 8
        if i >= n:
            break
        if not found.marks[i] & REACHED or found.marks[i] & mark:
            continue
        node = <Node>tape.nodes[found.low + i]
        if node.flags & NOWHERE:
            continue
        leads = False
        if node.more is None:
            leads = marked(found, node.in0, mark) or marked(found, node.in1, mark)
        else:
            for other in node.more:
                if marked(found, other, mark):
                    leads = True
                    break
        if not leads and merge and node.flags & MERGED:
            leader = node.leader
            leads = found.low <= leader.index < found.high and found.marks[leader.index - found.low] & mark
        if leads:
            found.marks[i] |= mark
    return 0
