"""Visit leaves in torch's order, where hooks or neighbours show it."""

from libc.stdint cimport int64_t

from autograd_opt.engine.frontier cimport pop
from autograd_opt.engine.task cimport GraphTask
from autograd_opt.graph.node cimport LEAF, MERGED, Node, followed, leads_on, operand_of


cdef int find_last(GraphTask task, list roots) except -1:
    """For each leaf, the node that sends it its last cotangent: torch writes its `.grad` there and then.

    Without this a leaf waits for its record number, that of its first use, which may lie many steps back.
    """
    cdef Node node, other
    cdef dict last = {}
    cdef set seen = set()
    cdef list stack = [n.leader if task.merge and (<Node>n).flags & MERGED else n for n in roots]
    while stack:
        node = <Node>stack.pop()
        if node.index in seen or node.index < 0:
            continue
        seen.add(node.index)
        for n in node.operands:
            if n is None or not followed(<Node>n):
                continue
            other = (<Node>n).leader if task.merge and (<Node>n).flags & MERGED else <Node>n
            if task.needed is not None and not leads_on(task.needed, other.index):
                continue
            if not other.flags & LEAF:
                stack.append(other)
            elif other.index >= 0:
                last[other.index] = min(node.index if other is n else as_written(<Node>n), last.get(other.index, task.tape.n))
    task.due, task.waiting = {}, set(last)
    for leaf, index in last.items():
        task.due.setdefault(index, []).append(leaf)
    task.turns = sorted(task.due)
    return 0


cdef int64_t as_written(Node node) except? -1:
    """The last node on the way from `node`, which is the leaf it was merged into, to that leaf: as a view of a view is."""
    cdef Node below = node
    while below is not None and below.flags & MERGED and below.leader is node.leader:
        node, below = below, operand_of(below)
    return node.index


cdef list due_leaves(GraphTask task, Node user):
    """Return the leaves for which `user` was the last to send something, in torch's order."""
    found = task.due.pop(user.index, None)
    if found is None:
        return []
    order = [n.index for n in user.operands if n is not None and (<Node>n).index in found]
    left = [i for i in dict.fromkeys([*order, *found]) if task.pending(<Node>task.tape.nodes[<int64_t>i])]
    return waiting_order(left, user) if len(left) > 1 else left


cdef bint beside(GraphTask task, int64_t index) except -1:
    """Is the next that waits the leaf recorded just before leaf `index`: are both operands of one operation?"""
    return task.frontier.heap[0] == index - 1 and (<Node>task.tape.nodes[index - 1]).flags & LEAF != 0


cdef bint in_turn(GraphTask task, Node bias) except -1:
    """Are these the weight and the bias of a linear layer, which torch visits in this order?"""
    cdef Node user, other
    cdef int64_t index = bias.index
    if index + 1 == task.tape.n:
        return False
    if index > 1:
        other = <Node>task.tape.nodes[index - 2]
        if other.flags & LEAF and (task.overflow or other.cotangent != NULL and other.task == task.id):
            return False             # it waits, too
    user = <Node>task.tape.nodes[index + 1]
    return user.more is not None and user.op.name == "linear" and user.more[2] is bias


cdef list take_neighbours(GraphTask task, int64_t last):
    """Take the leaves that wait side by side before leaf `last` from the frontier: all of them, in torch's order."""
    cdef int64_t first = last
    while task.frontier.count and beside(task, first):
        first = pop(&task.frontier)
    return waiting_order(list(range(first, last + 1)),
                         None if last + 1 == task.tape.n else <Node>task.tape.nodes[last + 1])


cdef list waiting_order(list leaves, Node user):
    """Leaves that one operation uses, in the order in which torch writes their `.grad`.

    torch's `linear` and `matmul` reshape some operand first, which therefore comes after the others.
    """
    if user is not None and len(leaves) < 4 and (user.op.name == "linear" or user.op.name == "matmul"):
        operands = [n for n in user.operands if n is not None]
        flat = len(operands[0].shape) == 2
        wanted = operands[2:] + (operands[:2] if flat else operands[1::-1])
        return list(dict.fromkeys([n.index for n in wanted if n.index in leaves] + leaves))
    return heap_order(leaves)


cdef list heap_order(list leaves):
    """The order in which torch takes what waits in a heap with one priority (`std::priority_queue`); empties `leaves`."""
    cdef Py_ssize_t hole, second
    cdef list out = []
    while leaves:
        out.append(leaves[0])
        last = leaves.pop()
        if not leaves:
            break
        hole = second = 0
        while second < (len(leaves) - 1) // 2:
            second = 2 * second + 2
            leaves[hole] = leaves[second]
            hole = second
        if len(leaves) % 2 == 0 and second == (len(leaves) - 2) // 2:
            second = 2 * second + 2
            leaves[hole] = leaves[second - 1]
            hole = second - 1
        leaves[hole] = last
    return out
