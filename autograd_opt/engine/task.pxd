"""Hold the state of one backward run, and hand cotangents on to the nodes that wait for them."""

cimport cython
from libc.stdint cimport int64_t, uint32_t

from autograd_opt.engine.frontier cimport Frontier
from autograd_opt.graph.node cimport Leads, Node
from autograd_opt.graph.tape cimport Tape

cdef enum:
    FILLED = 3                   # of a cotangent: fresh, and just as a kernel has left it


@cython.final
cdef class GraphTask:
    cdef Tape tape
    cdef readonly int64_t id
    cdef readonly bint create_graph, retain, merge
    cdef Frontier frontier
    cdef dict overflow           # index -> cotangent, where an outer run holds the slot
    cdef bint fresh              # is the cotangent being handed on memory of this run's own?
    cdef bint solid              # and is it just as a kernel has left it, contiguous?
    cdef bint inplace            # may sums be made in place?  Not where torch transforms functions
    cdef bint direct             # may a recorded run use the rules in C?  Not where torch transforms functions either
    cdef size_t before           # what torch functions were before a rule in C, which switches them off
    cdef dict due                # node -> the leaves that it is the last to send to, where hooks see the order; or None
    cdef list turns              # the record numbers of these nodes, the next last
    cdef set waiting             # record numbers of these leaves, which are not in the heap
    cdef dict captures           # index -> list of positions in `captured`
    cdef dict places             # position in `captured` -> which output, where the node has several
    cdef readonly set undefined  # positions in `captured` that a run has come to without any cotangent
    cdef readonly list captured
    cdef Leads needed            # which nodes to execute, or None for all
    cdef bint accumulate
    cdef object accumulator      # engine/accumulate.py
    cdef readonly Py_ssize_t executed
    cdef Node running            # whose rule or hooks are being called, for the text of an error
    cdef bint own                # is what sends now reached itself, or only through a twin?
    cdef public bint anomaly
    cdef readonly object batch   # vectorized.Batch, where each cotangent stands for many
    cdef public bint calls       # are Functions called at targets too, as by `backward(inputs=)`?
    cdef public bint everything  # are all leaves captured, and nothing else?
    cdef public bint onward      # go captured cotangents on in torch's engine, so that nobody is given them as they are?
    cdef public object pairs     # the saved-tensor hooks from before this node, where user code has changed them; or None
    cdef public bint shares      # may one view serve the rules of several runs?
    cdef readonly list callbacks
    cdef dict collected          # operand number -> cotangent, while post-hooks wait for them
    cdef object whole, part      # the latest cotangent of a mean, and its share of one element
    cdef object parts
    cdef uint32_t whole_version
    cdef readonly list means     # all such shares, or None: a hook must not write one

    cdef Node aim(self, Node node)
    cdef int send(self, Node node, object g, int fresh) except -1
    cdef int put(self, Node node, object g, int fresh) except -1
    cdef bint shows(self, Node node, object t) except -1
    cdef bint hands_out(self, Node node) except -1
    cdef object add(self, object old, object g)
    cdef object take(self, Node node)
    cdef int abandon(self) except -1
    cdef bint pending(self, Node node) except -1
    cpdef bint wants(self, Node node) except -1
    cdef bint leads(self, Node node) except -1
    cdef int send_fixed(self, Node node, Node operand, object g, uint32_t fix) except -1
    cdef int deliver(self, Node node, Node operand, object g) except -1
    cdef int send_part(self, Node output, Node parent, object g) except -1
