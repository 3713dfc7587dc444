"""Whether recording the calls of a region pays."""

cimport cython

from autograd_opt.graph import tensor as leaves
from autograd_opt.graph.node cimport ELEMENTWISE, LEAF, REQUIRES_GRAD, CustomTensor, Node
from autograd_opt.graph.tape cimport Tape
from autograd_opt.record.resting cimport Rests


cdef enum:
    SHORTEST = 64                        # calls that run as written before one is recorded to look again
    LONGEST = 1024                       # the same after many looks
    # Nanoseconds by which a recorded call is slower than torch, or faster, forward and backward, with small operands.
    CALL = 100000                        # slower: a graph, a node of torch's, a run of torch's engine that enters a graph
    INPUT = 2000                         # slower: each leaf that requires grad
    OTHER = 4000                         # slower: each operation that is not elementwise
    ELEMENTWISE_ONE = 1200               # faster: each elementwise operation, which is recorded by compiled code
    REPEATED = 2000                      # faster: each node of a run inside the function that keeps the graph for another
    SAVED = 10000                        # faster: an operation that is not run
    BYTES = 5                            # so many of a result that is not computed again are a nanosecond


@cython.final
cdef class Balance(Rests):
    """Whether a region's calls save more time than recording takes, by what was counted in those that were recorded.

    After `patience` calls in a row that did not, calls run as written; after 64 of these, later after up to 1024, one is
    recorded to look again.  Counts decide, with fixed estimates of what each costs or saves, and no clock: a program
    computes the same bits in each of its runs.
    """

    def __init__(self, patience):
        self.patience = patience
        self.last_for(SHORTEST, LONGEST)

    def rests(self, args):
        """True for a call that runs as written."""
        if self.resting == 0 or leaves.made:             # a leaf that torch does not know of would lose its gradient
            return False
        for a in args:
            if type(a) is CustomTensor:
                return False
        return self.take()

    cdef int begin(self, Tape tape) except -1:
        """Count a call that has just been recorded; the one before, if its results live on, is taken as it is by now."""
        cdef Node node
        cdef Py_ssize_t i, cost = 0
        if self.last is not None:
            self.learn(max(self.last.merges.twins, self.last.merges.handed))
        self.last, self.cost = tape, CALL - REPEATED * tape.executed
        if SAVED * tape.hits >= CALL + OTHER * (tape.n + tape.dropped):
            self.cost = 0                # whatever the operations are
        elif tape.n:
            for i in range(tape.n):
                node = <Node>tape.nodes[i]
                if node.flags & LEAF:
                    cost += INPUT if node.flags & REQUIRES_GRAD else 0
                elif node.op.flags & ELEMENTWISE:
                    cost -= ELEMENTWISE_ONE
                elif node.op.name != "output":           # one of an operation's results
                    cost += OTHER
            self.cost += cost * (tape.n + tape.dropped) // tape.n        # those dropped were of the same kinds
        return 0

    cdef int end(self, Tape tape) except -1:
        """Take a call into account that nobody holds any more, backward runs included."""
        if self.last is tape:
            self.learn(tape.merges.handed)
        return 0

    cdef int learn(self, Py_ssize_t merged) except -1:
        """Did the latest call save more than its recording took?"""
        cdef Tape tape = self.last
        self.last = None
        if SAVED * (tape.hits + merged) + tape.reused_bytes // BYTES >= self.cost:
            self.win()
        else:
            self.lose(self.patience)
        return 0
