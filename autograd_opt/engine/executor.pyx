"""GraphExecutor: the one backward loop.

A `GraphTask` is one run.  Nodes wait in a heap and leave it by descending record number,
so every consumer of a node has run before the node does, without counting dependencies.
Cotangents wait in the node itself; a run inside a run (a hook that calls backward) finds
the slot taken and keeps its own beside it.
"""

import torch

from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.math cimport fabs, frexp
from libc.stdint cimport int64_t, uint32_t

from autograd_opt.abi import torch_private as private
from autograd_opt.abi.ctorch cimport (
    ao_builtin0, ao_casts, ao_contiguous, ao_dtype, ao_get, ao_is_leaf, ao_is_neg, ao_is_view, ao_is_zero, ao_method,
    ao_method0, ao_needs_grad, ao_own, ao_strided, ao_bend, ao_into, ao_pair, ao_product, ao_single, ao_start,
    ao_try_attr, ao_direct_nll_back, ao_mm, ao_nll_back, ao_sum_first, ao_threshold, ao_threshold_into, ao_turned_mm,
    ao_use_reads,
)
from autograd_opt.graph.node cimport (
    AGAIN, CONTIGUOUS, DEAD, EXPOSED, FREED, FRESH, INNER, LEAF, MERGED, MULTI, NEEDS_ANS, NO_MERGE, ONCE, PACKED,
    OVERWRITTEN, PINNED, REACHED_DIRECTLY, REDUCES, REQUIRES_GRAD, SCALAR0, SCALAR1, UNBROADCAST0,
    UNBROADCAST1, UNBROADCASTN, Leads, Node, Op, Vjp, awaits, followed, is_custom, leads_on, shape_of, unbroadcast,
    version_of,
)
from autograd_opt.graph.handles cimport handle
from autograd_opt.graph.plain_values cimport is_float, number_arguments, same_device
from autograd_opt.graph.tape cimport Tape, active_tape, recording, set_paused
from autograd_opt.graph.values cimport live_value, value_of
from autograd_opt import errors
from autograd_opt.graph import refusals
from autograd_opt.engine.hooks import after, at_root, before, prepare
from autograd_opt.abi.kernel_names import INTO, PAIRS, PRODUCTS, SINGLES
from autograd_opt.abi.tensor_info import reads_address
from autograd_opt.abi.tensor_info cimport sole_owner
from autograd_opt.record.recorder cimport KERNELS, Kernel, fast_binary, fast_unary, inner_view, record
from autograd_opt.engine.frontier cimport Frontier, close_frontier, open_frontier, pop, push
from autograd_opt.engine.leaf_gradients cimport hookless, write_grad
from autograd_opt.engine.needed cimport needed_for
from autograd_opt.graph.runs import Run
from autograd_opt.graph.runs import _local as running
from autograd_opt.graph.runs import finish as finish_run
from autograd_opt.record.saved_tensors import ENTERED, Packed, unpack_extra

cdef extern from "Python.h":
    Py_ssize_t Py_REFCNT(object o)

ao_use_reads(reads_address())
cdef object base = private.TensorBase
# their places among the kernels that are called by their C++ entry
cdef int NEG_K = SINGLES.index("neg"), SIN_K = SINGLES.index("sin"), COS_K = SINGLES.index("cos")
cdef int MUL_K = PAIRS.index("mul"), DIV_K = PAIRS.index("div"), ADD_K = PAIRS.index("add")
cdef int TANH_BACK_K = PAIRS.index("tanh_backward"), SIGMOID_BACK_K = PAIRS.index("sigmoid_backward")
cdef int IMUL_K = INTO.index("mul_"), IDIV_K = INTO.index("div_"), IADD_K = INTO.index("add_"), ISUB_K = INTO.index("sub_")
cdef int ADDCMUL_K = PRODUCTS.index("addcmul_"), ADDCDIV_K = PRODUCTS.index("addcdiv_")
cdef object mul = base.__dict__["mul"]
cdef object add = base.__dict__["add"]
cdef object iadd = base.__dict__["add_"]
cdef object neg = base.__dict__["neg"]
cdef object get_dtype = ao_own(base.__dict__["dtype"])
cdef object get_hooks = base.__dict__["_backward_hooks"]
cdef object is_neg = base.__dict__["is_neg"]
cdef object is_zero = base.__dict__["_is_zerotensor"]     # torch's zeros without memory
cdef object Tensor = torch.Tensor
cdef object Parameter = torch.nn.Parameter
cdef object summed = base.__dict__["sum"]
cdef object sum_to_size = base.__dict__["sum_to_size"]
cdef int64_t _tasks = 0

cdef object transform_level = private.maybe_current_level
cdef bint _native = True
cdef enum:
    FILLED = 3               # of a cotangent: fresh, and just as a kernel has left it


class Contribution:
    """The cotangents of one multi-output node, by output number."""
    __slots__ = ("parts",)

    def __init__(self, n):
        self.parts = [None] * n


cdef class GraphTask:
    """One backward run over a tape."""
    cdef Tape tape
    cdef readonly int64_t id
    cdef readonly bint create_graph, retain, merge
    cdef Frontier frontier
    cdef dict overflow           # index -> cotangent, where an outer run holds the slot
    cdef bint fresh              # is the cotangent being handed on memory of this run's own?
    cdef bint solid              # and is it just as a kernel has left it, contiguous?
    cdef bint inplace            # may sums be made in place?  Not where torch transforms functions
    cdef bint direct             # may a recorded run use the rules in C?  Not where torch transforms functions either
    cdef object guard            # switches torch functions off for a rule in C
    cdef dict due                # node -> the leaves that it is the last to send to, where hooks see the order; or None
    cdef set waiting             # record numbers of these leaves, which are not in the heap
    cdef dict captures           # index -> list of positions in `captured`
    cdef dict places             # position in `captured` -> which output, where the node has several
    cdef readonly set undefined  # positions in `captured` that a run has come to without any cotangent
    cdef readonly list captured
    cdef Leads needed            # which nodes to execute, or None for all
    cdef bint accumulate
    cdef object accumulator      # engine/accumulate.py
    cdef readonly Py_ssize_t executed
    cdef bint own                # is what sends now reached itself, or only through a twin?
    cdef public bint anomaly
    cdef readonly object batch   # vectorized.Batch, where each cotangent stands for many
    cdef public bint calls       # are Functions called at targets too, as by `backward(inputs=)`?
    cdef public object pairs     # the saved-tensor hooks from before this node, where user code has changed them; or None
    cdef public bint shares      # may one view serve the rules of several runs?
    cdef readonly list callbacks
    cdef dict collected          # operand number -> cotangent, while post-hooks wait for them
    cdef object whole, part      # the latest cotangent of a mean, and its share of one element
    cdef object parts
    cdef uint32_t whole_version
    cdef readonly list means     # all such shares, or None: a hook must not write one

    def __cinit__(self, Tape tape, bint retain, bint create_graph, bint merge, batch=None):
        global _tasks
        _tasks += 1
        self.id = _tasks
        self.tape = tape
        self.retain, self.create_graph, self.merge = retain, create_graph, merge
        open_frontier(&self.frontier)
        self.overflow = {}
        self.batch = batch
        self.inplace = not create_graph and batch is None and transform_level() is None
        self.direct = create_graph and batch is None and transform_level() is None
        if self.direct:
            self.guard = private.DisableTorchFunction()
        self.callbacks = []
        self.places = {}
        self.undefined = set()
        self.accumulate = True

    def __dealloc__(self):
        close_frontier(&self.frontier)

    # Input buffers.
    cdef Node aim(self, Node node):
        """Where a cotangent for `node` goes: itself, the leader it was merged into, or None."""
        if self.merge and node.flags & MERGED:
            if self.needed is not None and not leads_on(self.needed, node.leader.index):
                return None              # as written, this run does not come here either
            if node.flags & FREED and node.task != self.id and not stateless(node):
                raise refusals.freed(node)
            if not self.retain and self.own:
                self.tape.spend_twin(node, self.id, self.needed)
            node = node.leader
        elif self.own:
            node.flags |= REACHED_DIRECTLY
        if self.needed is not None and not self.leads(node):
            return None
        if node.index < 0:
            raise refusals.freed(node)
        return node

    cdef int send(self, Node node, object g, int fresh) except -1:
        """Add cotangent `g` to what is waiting for `node`.

        `fresh`: is its memory this run's own?  FILLED where a kernel has just made it, contiguous.
        """
        node = self.aim(node)
        return 0 if node is None else self.put(node, g, fresh)

    cdef int put(self, Node node, object g, int fresh) except -1:
        cdef object old
        if node.cotangent == NULL:
            Py_INCREF(g)
            node.cotangent = <PyObject *>g
            node.task = self.id
            node.live += 1               # pending: what it saved must not go
            node.flags &= ~<uint32_t>(FRESH | CONTIGUOUS)
            if fresh:
                node.flags |= FRESH | CONTIGUOUS if fresh == FILLED else FRESH
            return 0 if self.due is not None and node.index in self.waiting else push(&self.frontier, node.index)
        if node.task == self.id:
            old = <object>node.cotangent
            if g is None:
                return 0
            node.flags &= ~<uint32_t>CONTIGUOUS
            if old is None:
                Py_INCREF(g)
                node.cotangent = <PyObject *>g
                node.flags = node.flags | FRESH if fresh else node.flags & ~<uint32_t>FRESH
                return 0
            if self.inplace and not sparse(g) and not sparse(old):
                if (node.flags & FRESH or Py_REFCNT(old) == 2 and alone(old, g)) and not self.shows(node, old):
                    ao_into(IADD_K, iadd, old, (g,))
                    return 0
                g = ao_into(IADD_K, iadd, g, (old,)) if fresh and alike(g, old) and not self.shows(node, g) \
                    else ao_pair(ADD_K, add, old, (g,))
                node.flags |= FRESH
            else:
                g = self.add(old, g)
            node.cotangent = NULL
            Py_DECREF(old)               # `old` still holds it
            Py_INCREF(g)
            node.cotangent = <PyObject *>g
            return 0
        if node.index not in self.overflow:
            self.overflow[node.index] = g
            node.live += 1
            return 0 if self.due is not None and node.index in self.waiting else push(&self.frontier, node.index)
        old = self.overflow[node.index]
        if g is not None:
            self.overflow[node.index] = g if old is None else self.add(old, g)
        return 0

    cdef bint shows(self, Node node, object t) except -1:
        """Would a sum made in `t` be a view that the user sees, while torch's is none?"""
        return self.captures is not None and ao_is_view(t) and node.index in self.captures

    cdef object add(self, object old, object g):
        """old + g, in memory of its own; dense where one of them is."""
        if not self.create_graph and sparse(old) and not sparse(g):
            return g + old
        return old + g

    cdef object take(self, Node node):
        cdef object g
        if node.task == self.id and node.cotangent != NULL:
            g = <object>node.cotangent
            node.cotangent = NULL
            Py_DECREF(g)
            self.fresh = node.flags & FRESH != 0
            self.solid = node.flags & CONTIGUOUS != 0
            node.flags &= ~<uint32_t>(FRESH | CONTIGUOUS)
            return g
        self.fresh = self.solid = False
        return self.overflow.pop(node.index)

    def abandon(self):
        """After an exception: leave no cotangent behind."""
        cdef Node node
        if self.due is not None:
            for i in self.waiting:
                if self.pending(<Node>self.tape.nodes[<int64_t>i]):
                    push(&self.frontier, i)
        while self.frontier.count:
            self.frontier.count -= 1
            if self.frontier.heap[self.frontier.count] < self.tape.n:
                node = <Node>self.tape.nodes[self.frontier.heap[self.frontier.count]]
                node.flags &= ~<uint32_t>REACHED_DIRECTLY
                self.tape.decrement(node)
                if node.task == self.id and node.cotangent != NULL:
                    node.flags &= ~<uint32_t>(FRESH | CONTIGUOUS)
                    g = <object>node.cotangent
                    node.cotangent = NULL
                    Py_DECREF(g)
        self.overflow.clear()

    def run(self, list roots, list cotangents, inputs=None, bint accumulate=True, accumulator=None):
        """Execute from `roots`; with `inputs` (nodes) only what they need, capturing theirs."""
        cdef Node node
        cdef Py_ssize_t i
        self.accumulate = accumulate
        self.accumulator = accumulator
        cdef bint frees = not (self.retain or self.create_graph)
        self.tape.running += 1
        self.tape.retention.freeing += frees
        if frees and self.tape.retention.kept_bytes > 0:
            self.tape.retention.evict(self.tape.retention.budget())
        try:
            return self.execute(roots, cotangents, inputs)
        finally:
            self.tape.running -= 1
            self.tape.retention.freeing -= frees
            self.tape.floor = min(self.tape.floor, self.tape.n + 64)

    cdef object execute(self, list roots, list cotangents, inputs):
        cdef Node node
        cdef Py_ssize_t i
        if inputs is not None:
            self.captures = {}
            self.captured = [None] * len(inputs)
            for i, node in enumerate(inputs):
                if node is not None and node.index >= 0:
                    if hooked_above(node):
                        self.places[i] = node.attrs["i"]     # hooks of all outputs are called where the operation is
                        node = node.in0
                    self.captures.setdefault(node.index, []).append(i)
        if self.merge:
            resolve(self, self.captures if inputs is not None and intermediate(inputs) else None)
        if inputs is not None:
            ends = self.captures if not self.calls else {**self.captures, **dict.fromkeys(called_at(inputs))}
            self.needed = needed_for(self.tape, roots, ends, makers_of(inputs), self.merge)
        if self.tape.heard:
            self.find_last(roots)
        try:
            self.own = True
            for node, g in zip(roots, cotangents):
                if len(roots) == 1 and self.needed is not None and not self.leads(node) \
                        and not (self.merge and node.flags & MERGED):
                    try:
                        at_root(node, g, self)
                    finally:
                        if self.pairs is not None:
                            self.restore_pairs()
                else:
                    self.send(node, g, False)
            while self.frontier.count:
                node = <Node>self.tape.nodes[pop(&self.frontier)]
                if node.flags & LEAF and self.frontier.count and self.beside(node.index) and not self.in_turn(node):
                    self.neighbours(node.index)
                else:
                    self.visit(node)
                    if self.due is not None:
                        self.visit_leaves(node)
            for i in sorted(self.due or (), reverse=True):       # nothing has come from their last node
                self.visit_leaves(<Node>self.tape.nodes[<int64_t>i])
        except BaseException:
            self.abandon()
            raise
        return self.captured

    cdef bint pending(self, Node node):
        """Does a cotangent of this run wait for `node`?"""
        return node.task == self.id and node.cotangent != NULL or node.index in self.overflow

    cdef int find_last(self, list roots) except -1:
        """For each leaf, the node that sends it its last cotangent: torch writes its `.grad` there and then.

        Without this a leaf waits for its record number, that of its first use, which may lie many steps back.
        """
        cdef Node node, other
        cdef dict last = {}
        cdef set seen = set()
        cdef list stack = [n.leader if self.merge and (<Node>n).flags & MERGED else n for n in roots]
        while stack:
            node = <Node>stack.pop()
            if node.index in seen or node.index < 0:
                continue
            seen.add(node.index)
            for n in node.operands:
                if n is None or not followed(<Node>n):
                    continue
                other = (<Node>n).leader if self.merge and (<Node>n).flags & MERGED else <Node>n
                if self.needed is not None and not leads_on(self.needed, other.index):
                    continue
                if not other.flags & LEAF:
                    stack.append(other)
                elif other.index >= 0 and node.index < last.get(other.index, self.tape.n):
                    last[other.index] = node.index
        self.due, self.waiting = {}, set(last)
        for leaf, index in last.items():
            self.due.setdefault(index, []).append(leaf)
        return 0

    cdef int visit_leaves(self, Node user) except -1:
        """Visit the leaves for which `user` was the last to send something, in torch's order."""
        found = self.due.pop(user.index, None)
        if found is None:
            return 0
        order = [n.index for n in user.operands if n is not None and (<Node>n).index in found]
        left = [i for i in dict.fromkeys([*order, *found]) if self.pending(<Node>self.tape.nodes[<int64_t>i])]
        for i in waiting_order(left, user) if len(left) > 1 else left:
            self.visit(<Node>self.tape.nodes[<int64_t>i])
        return 0

    cdef int visit(self, Node node) except -1:
        """Take what waits for `node`, and go on from there."""
        g = self.take(node)
        try:
            return self.step(node, g)
        finally:
            self.tape.decrement(node)
            if self.pairs is not None:
                self.restore_pairs()

    cdef int restore_pairs(self) except -1:
        """What user code has entered or left stays so for the rest of its node, as in torch."""
        before, self.pairs = self.pairs, None
        ENTERED.restore(before)
        return 0

    cdef bint beside(self, int64_t index):
        """Is the next that waits the leaf recorded just before leaf `index`: are both operands of one operation?"""
        return self.frontier.heap[0] == index - 1 and (<Node>self.tape.nodes[index - 1]).flags & LEAF != 0

    cdef bint in_turn(self, Node bias):
        """Are these the weight and the bias of a linear layer, which torch visits in this order?"""
        cdef Node user, other
        cdef int64_t index = bias.index
        if index + 1 == self.tape.n:
            return False
        if index > 1:
            other = <Node>self.tape.nodes[index - 2]
            if other.flags & LEAF and (self.overflow or other.cotangent != NULL and other.task == self.id):
                return False             # it waits, too
        user = <Node>self.tape.nodes[index + 1]
        return user.more is not None and user.op.name == "linear" and user.more[2] is bias

    cdef int neighbours(self, int64_t last) except -1:
        """Visit leaves that wait side by side, in torch's order."""
        cdef int64_t index, first = last
        while self.frontier.count and self.beside(first):
            first = pop(&self.frontier)
        left = waiting_order(list(range(first, last + 1)),
                             None if last + 1 == self.tape.n else <Node>self.tape.nodes[last + 1])
        try:
            while left:
                self.visit(<Node>self.tape.nodes[left.pop(0)])
        except BaseException:
            for index in left:
                push(&self.frontier, index)       # for `abandon`
            raise
        return 0

    cdef int capture(self, Node node, object g) except -1:
        for i in self.captures[node.index]:
            part = g.parts[self.places[i]] if i in self.places else g
            self.captured[i] = part
            if node.hooks is None and type(part) is Tensor:
                ao_start(part, 4, 0)                    # `captured`, and the frames up to `visit`
            if type(part) is Tensor and not self.create_graph and self.batch is None and ao_is_view(part):
                part._made = version_of(part)        # a view of the user's, although nobody has seen its base
            if part is None:
                self.undefined.add(i)
        return 0

    cdef int step(self, Node node, object g) except -1:
        """Run the hooks of `node`, then its rule, and send the results on."""
        cdef Op op = node.op
        self.own = bool(node.flags & REACHED_DIRECTLY)
        node.flags &= ~<uint32_t>REACHED_DIRECTLY
        cdef bint wanted = self.captures is not None and node.index in self.captures, further = False
        if wanted:
            self.fresh = self.solid = False
            further = not node.flags & LEAF and self.beyond(node)
            if further:                  # as in torch, the hooks of what the run goes on from come later
                self.capture(node, g)
        if node.hooks is not None and not hooked_above(node):
            self.fresh = self.solid = False      # a hook may have kept it
            g = before(node.hooks, node, g, self)
        if wanted and not further:
            self.capture(node, g)
            return 0
        if node.flags & LEAF:
            if self.accumulate and node.flags & REQUIRES_GRAD:
                if node.hooks is None and g is not None and not self.create_graph \
                        and write_grad(node, g, Py_REFCNT(g) <= 2, self.fresh, self.solid):
                    return 0
                self.accumulator(self, node, g, Py_REFCNT(g) <= 2)   # 2: `visit`, and this frame
            return 0
        self.executed += 1
        if node.flags & DEAD and not node.flags & FREED and not stateless(node):
            raise refusals.dropped(node)
        if node.flags & FREED and not stateless(node):
            raise refusals.freed(node)
        try:
            if self.needed is not None and op.several:
                whole(self, node)
            if node.hooks is None:
                self.differentiate(node, op, g)
            else:
                self.with_hooks(node, op, g)
        except Exception as error:
            refusals.locate(error, node)
            raise
        if not self.retain and self.own:
            self.tape.spend(node)
            self.tape.drain()
        return 0

    cdef int with_hooks(self, Node node, Op op, object g) except -1:
        """Differentiate a node whose own hooks see its cotangents before and after."""
        cdef Py_ssize_t i
        hooks = node.hooks
        g = prepare(hooks, node, g, self)
        if not hooks.post:
            self.differentiate(node, op, g)
            return 0
        self.collected = {}
        try:
            self.differentiate(node, op, g)
            collected = self.collected
        finally:
            self.collected = None
        operands = node.operands
        results = after(hooks, node, tuple([collected.get(i) for i in range(len(operands))]), g, self)
        for i in range(len(operands) - 1, -1, -1):
            if i < len(results) and operands[i] is not None and (results[i] is not None or self.wants(<Node>operands[i])):
                self.deliver(node, <Node>operands[i], results[i])
        return 0

    cdef bint beyond(self, Node node):
        """Does a captured node also lead to another one, or is it called for its own sake?"""
        if self.accumulate or self.calls and node.op.functions:
            return True
        for n in node.operands:
            if n is not None and self.leads(<Node>n):
                return True
        return False

    cdef int differentiate(self, Node node, Op op, object g) except -1:
        cdef Vjp vjp
        cdef Node other
        cdef Py_ssize_t i
        if undefined(op, g):
            return self.pass_nothing(node, op)
        if op.hot and _native and self.collected is None and not self.anomaly:
            if self.inplace and native(self, node, op, g) or self.direct and recorded(self, node, op, g):
                return 0
        if op.joint is not None:
            return self.joint(node, op, g)
        operands = node.more if node.more is not None else (node.in0, node.in1)
        for i in range(len(operands) - 1, -1, -1):
            other = operands[i]
            if not self.wants(other) or op.vjps[i] is None:      # in this order: there may be fewer rules than places
                continue
            vjp = <Vjp>op.vjps[i]
            result = self.call(node, vjp, g)
            if self.anomaly:
                refusals.check_nan(result, node, i)
            self.send_fixed(node, other, result, node.flags & unbroadcast(i))
        return 0

    cdef int pass_nothing(self, Node node, Op op) except -1:
        """No cotangent has come: as in torch, the operands are visited all the same, for their hooks and Functions."""
        cdef Node other
        cdef Py_ssize_t i
        if self.collected is not None:
            return 0
        operands = node.more if node.more is not None else (node.in0, node.in1)
        for i in range(len(operands) - 1, -1, -1):
            other = operands[i]
            if self.wants(other) and (op.joint is not None or op.vjps[i] is not None):   # in this order, as above
                self.deliver(node, other, None)
        return 0

    cdef bint wants(self, Node node):
        """Is a cotangent of this operand asked for?"""
        if not followed(node):
            return False
        return self.needed is None or self.leads(node) or self.merge and node.flags & MERGED

    cdef bint leads(self, Node node):
        """In a run with targets: is `node` one, or on a way to one?"""
        return leads_on(self.needed, node.index)

    cdef object call(self, Node node, Vjp vjp, object g):
        """Call one rule with what it names."""
        cdef list args = [g]
        cdef int code
        for c in vjp.codes:
            code = c
            args.append(argument(self, node, code))
        if vjp.attributes:
            attrs = node.attrs or {}
            defaults = node.op.attributes
            kwargs = {a: attrs[a] if a in attrs else defaults[a] for a in vjp.attributes}
        else:
            kwargs = {}
        if self.batch is not None:
            return self.batch.call(vjp.fn, args, kwargs)
        return vjp.fn(*args, **kwargs) if kwargs else vjp.fn(*args)

    cdef int joint(self, Node node, Op op, object g) except -1:
        """A rule that returns the cotangents of all operands at once."""
        cdef Node other
        cdef Py_ssize_t i
        operands = node.more if node.more is not None else (node.in0, node.in1)
        for other in <tuple>operands:
            if op.functions or followed(other):
                break
        else:
            return 0                     # every operand leads nowhere, and nothing was saved
        results = self.call(node, <Vjp>op.joint, g)
        if results is None:
            return self.pass_nothing(node, op)
        for i in range(len(operands) - 1, -1, -1):
            other = operands[i]
            if not followed(other):
                continue
            if i < len(results) and results[i] is not NotImplemented:      # an operand that nothing leads to
                if self.anomaly:
                    refusals.check_nan(results[i], node, i)
                self.send_fixed(node, other, results[i], node.flags & unbroadcast(i))
        return 0

    cdef int send_fixed(self, Node node, Node operand, object g, uint32_t fix) except -1:
        """Bring `g` to the operand's shape, where broadcasting changed it, and to its dtype."""
        cdef Py_ssize_t i
        if g is None:
            return self.deliver(node, operand, None) if self.collected is None and self.wants(operand) else 0
        if self.anomaly:
            refusals.check_nan(g, node)
        if self.inplace and isinstance(g, Tensor) and ao_is_zero(is_zero, g):
            self.inplace = False             # zeros without memory, and what is made of them, cannot be written
        if fix or operand.dtype is not None and isinstance(g, Tensor) and dtype_of(g) is not operand.dtype:
            g = fit(self, g, operand)
        if self.collected is not None:
            operands = node.operands
            for i in range(len(operands) - 1, -1, -1):
                if operands[i] is operand and i not in self.collected:
                    self.collected[i] = g
                    return 0
        return self.deliver(node, operand, g)

    cdef int deliver(self, Node node, Node operand, object g) except -1:
        if operand.op.flags & MULTI:
            return self.send_part(node, operand, g)
        return self.send(operand, g, False)

    cdef int send_part(self, Node output, Node parent, object g) except -1:
        cdef object whole
        i = output.attrs["i"]
        if self.merge and parent.flags & MERGED:         # while this output of it was not merged: its twin is gone
            if self.needed is not None and not leads_on(self.needed, parent.leader.index):
                return 0
            if parent.flags & FREED and parent.task != self.id and not stateless(parent):
                raise refusals.freed(parent)
            if not self.retain and self.own:
                self.tape.spend_twin(parent, self.id, self.needed)
            parent = parent.leader
        if self.needed is not None and not self.leads(parent):
            return 0
        if parent.index < 0:
            raise refusals.freed(parent)
        if parent.cotangent != NULL and parent.task == self.id:
            whole = <object>parent.cotangent
        elif parent.index in self.overflow:
            whole = self.overflow[parent.index]
        else:
            whole = Contribution(len(parent.shape))
            if parent.cotangent == NULL:
                Py_INCREF(whole)
                parent.cotangent = <PyObject *>whole
                parent.task = self.id
            else:
                self.overflow[parent.index] = whole
            parent.live += 1
            push(&self.frontier, parent.index)
        if self.own:
            parent.flags |= REACHED_DIRECTLY
        old = whole.parts[i]
        if g is not None:
            whole.parts[i] = g if old is None else self.add(old, g)
        return 0


cdef bint alone(object old, object g) except -1:
    """True if `old`, which nobody else holds, may be written: it is the only tensor over its memory."""
    return type(old) is Tensor and type(g) is Tensor and ao_dtype(old) is ao_dtype(g) \
        and ao_strided(old) and ao_strided(g) \
        and ao_contiguous(old) and not ao_is_neg(is_neg, old) \
        and not ao_is_zero(is_zero, old) \
        and not old.is_complex() and sole_owner(old) \
        and shape_of(old) == shape_of(g)


cdef inline bint sparse(object g) except -1:
    return not ao_strided(g)


cdef bint alike(object a, object b) except -1:
    """True if both are of one shape and dtype: either may be added to the other."""
    return type(a) is Tensor and type(b) is Tensor and ao_dtype(a) is ao_dtype(b) \
        and shape_of(a) == shape_of(b)


include "core/passing.pxi"
include "core/replay.pxi"
include "core/native.pxi"
include "core/layers.pxi"
include "core/gates.pxi"
include "core/recorded.pxi"
include "core/entry.pxi"
