"""Which nodes hand their cotangent to their leader."""

import torch

from cpython.object cimport PyObject
from libc.stdint cimport uint32_t

from autograd_opt.graph.node cimport (
    DEAD, EXPOSED, FREED, MERGED, NEEDS_ANS, NO_MERGE, OVERWRITTEN, PINNED, REQUIRES_GRAD, SAME, SCALAR0, SCALAR1, Node,
    commutes, end, operand_of, version_of,
)
cimport cython


cdef bint narrows(Node node) except -1:
    """Does a gradient leave `node` in a wider type than its own?

    Twins that round a float64 to float16, say, each send their cotangent on, to be summed where
    the bits are, as torch does.
    """
    cdef Node x = node.in0
    if x is None or x.dtype is None or node.dtype is None or x.dtype is node.dtype or not node.flags & x.flags & REQUIRES_GRAD:
        return False
    return torch.finfo(node.dtype).bits < torch.finfo(x.dtype).bits


cdef bint intact(Node node) except -1:
    """Is everything that the rules of `node` have saved unwritten, and not exposed?"""
    if node.x0 is not None and not node.flags & SCALAR0:
        if node.in0.flags & EXPOSED or version_of(node.x0) != node.v0:
            return False
    if node.x1 is not None and not node.flags & SCALAR1:
        if node.in1.flags & EXPOSED or version_of(node.x1) != node.v1:
            return False
    if node.flags & NEEDS_ANS:
        value = <object>node.tensor if node.tensor != NULL else node.value
        if value is None or version_of(value) != node.version:
            return False
    if node.saved_more is not None:
        if node.saved_more[3] is not None and any([version_of(t) != version for t, version in node.saved_more[3]]):
            return False
        for other, t, version in zip(node.more, node.saved_more[0], node.saved_more[1]):
            if other is not None and t is not None:
                if (<Node>other).flags & EXPOSED or version_of(t) != version:
                    return False
    return True


@cython.no_gc
@cython.final
cdef class Merges:
    """The merged nodes of one graph, decided before each run."""

    cdef int resolve(self, PyObject **nodes, Py_ssize_t n, Py_ssize_t changes, dict captured) except -1:
        """Decide which nodes hand their cotangent to their leader in the next run.

        Incremental: nodes recorded since the last time, or all of them once a hook, a write,
        an escape or a request for an intermediate's own gradient may have changed the answer.
        """
        cdef Py_ssize_t i
        cdef Node node
        if captured is not None or changes != self.resolved_changes:
            self.resolved = 0
        for i in range(self.resolved, n):
            node = <Node>nodes[i]
            if node.leader is not None:
                if self.mergeable(node, captured):
                    node.flags |= MERGED
                else:
                    node.flags &= ~<uint32_t>MERGED
        self.resolved = 0 if captured is not None else n
        self.resolved_changes = changes
        return 0

    cdef int mergeable(self, Node node, dict captured) except -1:
        """May `node` hand its cotangent to its leader?

        Both must be whole and nobody's own business, and each pair of operands must end at
        one node: a merge below that was refused refuses those above it.
        """
        cdef Node leader = node.leader
        cdef uint32_t never = PINNED | NO_MERGE | EXPOSED | DEAD | OVERWRITTEN
        if node.flags & SAME and leader is end(operand_of(node)):
            # handed on as the rule would; the cotangent of the operand is the same whole, whichever way its parts come
            return not ((node.flags | leader.flags) & (never | FREED) or leader.index < 0
                        or captured is not None and node.index in captured) and intact(node)
        if (node.flags | leader.flags) & (never | FREED) or leader.index < 0 or leader.index >= node.index:
            return 0
        if captured is not None and (node.index in captured or leader.index in captured):
            return 0
        if not intact(leader) or not intact(node) or narrows(node):
            return 0
        if node.more is not None or leader.more is not None:
            mine, theirs = node.operands, leader.operands
            if len(mine) != len(theirs):
                return 0
            return all([end(<Node>a) is end(<Node>b) for a, b in zip(mine, theirs)])
        if end(node.in0) is end(leader.in0) and end(node.in1) is end(leader.in1):
            return 1
        return commutes(node) and end(node.in0) is end(leader.in1) and end(node.in1) is end(leader.in0)
