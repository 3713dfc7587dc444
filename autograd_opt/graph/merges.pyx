"""Which nodes hand their cotangent to their leader."""

from cpython.object cimport PyObject
from libc.stdint cimport uint32_t

from autograd_opt.graph.node cimport (
    DEAD, EXPOSED, FREED, MERGED, NO_MERGE, OVERWRITTEN, PINNED, SAME, Node, commutes, end, intact, narrows, operand_of,
)
cimport cython


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
