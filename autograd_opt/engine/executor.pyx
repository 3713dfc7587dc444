"""GraphExecutor: the one backward loop.

A `GraphTask` is one run.  Nodes wait in a heap and leave it by descending record number,
so every consumer of a node has run before the node does, without counting dependencies.
Cotangents wait in the node itself; a run inside a run (a hook that calls backward) finds
the slot taken and keeps its own beside it.
"""

from libc.stdint cimport int64_t, uint32_t

from autograd_opt.abi.ctorch cimport ao_is_view, ao_is_zero, ao_start, ao_use_reads
from autograd_opt.abi.function_switch cimport functions_off, functions_on
from autograd_opt.abi.tensor_info import reads_address
from autograd_opt.engine.arguments cimport call_rule
from autograd_opt.engine.frontier cimport pop, push
from autograd_opt.engine.hooks import after, at_root, before, prepare
from autograd_opt.engine.kernels cimport Tensor, is_zero
from autograd_opt.engine.leaf_gradients cimport write_grad
from autograd_opt.engine.leaf_order cimport beside, due_leaves, find_last, in_turn, take_neighbours
from autograd_opt.engine.needed cimport called_at, intermediate, makers_of, needed_for
from autograd_opt.engine.rules.native cimport native
from autograd_opt.engine.rules.recorded cimport recorded
from autograd_opt.engine.saved_values cimport require_unwritten, stateless
from autograd_opt.engine.spending cimport spend
from autograd_opt.engine.task import Contribution
from autograd_opt.engine.task cimport GraphTask
from autograd_opt.graph import refusals
from autograd_opt.graph.node cimport (
    DEAD, FREED, LEAF, MERGED, MULTI, REACHED_DIRECTLY, REQUIRES_GRAD, Node, Op, Vjp, followed, unbroadcast, version_of,
)
from autograd_opt.record.saved_tensors import ENTERED

cdef extern from "Python.h":
    Py_ssize_t Py_REFCNT(object o)

ao_use_reads(reads_address())
cdef bint _native = True


cpdef object run(GraphTask task, list roots, list cotangents, inputs, bint accumulate, accumulator):
    """Execute from `roots`; with `inputs` (nodes) only what they need, capturing theirs."""
    task.accumulate = accumulate
    task.accumulator = accumulator
    cdef bint frees = not (task.retain or task.create_graph)
    task.tape.running += 1
    task.tape.runs += 1
    task.tape.retention.freeing += frees
    if frees and task.tape.retention.kept_bytes > 0:
        task.tape.retention.evict(task.tape.retention.budget())
    try:
        return execute(task, roots, cotangents, inputs)
    finally:
        if task.retain and not task.create_graph:
            task.tape.executed += task.executed
        task.tape.running -= 1
        task.tape.retention.freeing -= frees
        task.tape.floor = min(task.tape.floor, task.tape.n + 64)


cdef object execute(GraphTask task, list roots, list cotangents, inputs):
    """Visit the nodes from `roots` on, the latest first."""
    cdef Node node
    if inputs is not None:
        find_captures(task, inputs)
    if task.merge:
        resolve(task, task.captures if inputs is not None and intermediate(inputs) else None)
    if inputs is not None and not task.everything:
        ends = task.captures if not task.calls else {**task.captures, **dict.fromkeys(called_at(inputs))}
        task.needed = needed_for(task.tape, roots, ends, makers_of(inputs), task.merge)
    if task.tape.heard:
        find_last(task, roots)
    try:
        task.own = True
        for node, g in zip(roots, cotangents):
            if task.inplace and isinstance(g, Tensor) and ao_is_zero(is_zero, g):
                task.inplace = False     # zeros without memory, and what is made of them, cannot be written
            if len(roots) == 1 and task.needed is not None and not task.leads(node) \
                    and not (task.merge and node.flags & MERGED):
                try:
                    at_root(node, g, task)
                finally:
                    if task.pairs is not None:
                        restore_pairs(task)
            else:
                task.send(node, g, False)
        while task.frontier.count:
            node = <Node>task.tape.nodes[pop(&task.frontier)]
            if task.turns is not None:
                visit_overdue(task, node.index)
            if node.flags & LEAF and task.frontier.count and beside(task, node.index) and not in_turn(task, node):
                visit_neighbours(task, node.index)
            else:
                visit(task, node)
                if task.due is not None:
                    visit_leaves(task, node)
        if task.turns is not None:
            visit_overdue(task, -1)
    except BaseException as error:
        task.abandon()
        if task.running is not None and isinstance(error, Exception):
            refusals.locate(error, task.running)
        raise
    return task.captured


cdef int find_captures(GraphTask task, list inputs) except -1:
    """Note where the cotangents of `inputs` are captured."""
    cdef Node node
    cdef Py_ssize_t i
    task.captures = {}
    task.captured = [None] * len(inputs)
    for i, node in enumerate(inputs):
        if node is not None and node.index >= 0:
            if hooked_above(node):
                task.places[i] = node.attrs["i"]     # hooks of all outputs are called where the operation is
                node = node.in0
            task.captures.setdefault(node.index, []).append(i)
    return 0


cdef int visit(GraphTask task, Node node) except -1:
    """Take what waits for `node`, and go on from there."""
    g = task.take(node)
    try:
        return step(task, node, g)
    finally:
        task.tape.decrement(node)
        if task.pairs is not None:
            restore_pairs(task)


cdef int visit_leaves(GraphTask task, Node user) except -1:
    """Visit the leaves for which `user` was the last to send something, in torch's order."""
    for i in due_leaves(task, user):
        visit(task, <Node>task.tape.nodes[<int64_t>i])
    return 0


cdef int visit_overdue(GraphTask task, int64_t index) except -1:
    """Visit leaves for which a node above `index` would have been the last: nothing came to it, or it was merged."""
    while task.turns and task.turns[len(task.turns) - 1] > index:
        visit_leaves(task, <Node>task.tape.nodes[<int64_t>task.turns.pop()])
    return 0


cdef int visit_neighbours(GraphTask task, int64_t last) except -1:
    """Visit leaves that wait side by side, in torch's order."""
    cdef int64_t index
    left = take_neighbours(task, last)
    try:
        while left:
            visit(task, <Node>task.tape.nodes[left.pop(0)])
    except BaseException:
        for index in left:
            push(&task.frontier, index)       # for `abandon`
        raise
    return 0


cdef int restore_pairs(GraphTask task) except -1:
    """What user code has entered or left stays so for the rest of its node, as in torch."""
    before, task.pairs = task.pairs, None
    ENTERED.restore(before)
    return 0


cdef int capture(GraphTask task, Node node, object g) except -1:
    """Keep a cotangent that the user has asked for."""
    for i in task.captures[node.index]:
        part = g.parts[task.places[i]] if i in task.places else g
        task.captured[i] = part
        if node.hooks is None and type(part) is Tensor:
            ao_start(part, 4, 0)                    # `captured`, and the frames up to `visit`
        if type(part) is Tensor and not task.create_graph and not task.onward and task.batch is None and ao_is_view(part):
            part._made = version_of(part)        # a view of the user's, although nobody has seen its base
        if part is None:
            task.undefined.add(i)
    return 0


cdef int step(GraphTask task, Node node, object g) except -1:
    """Run the hooks of `node`, then its rule, and send the results on."""
    cdef Op op = node.op
    task.own = bool(node.flags & REACHED_DIRECTLY)
    node.flags &= ~<uint32_t>REACHED_DIRECTLY
    cdef bint wanted = task.captures is not None and (node.flags & LEAF or not task.everything) \
        and node.index in task.captures, further = False
    if wanted:
        task.fresh = task.solid = False
        further = not node.flags & LEAF and beyond(task, node)
        if further:                  # as in torch, the hooks of what the run goes on from come later
            capture(task, node, g)
    if node.hooks is not None and not hooked_above(node):
        task.fresh = task.solid = False      # a hook may have kept it
        g = before(node.hooks, node, g, task)
    if wanted and not further:
        capture(task, node, g)
        return 0
    if node.flags & LEAF:
        if task.accumulate and node.flags & REQUIRES_GRAD:
            if node.hooks is None and g is not None and not task.create_graph and task.tape.histories is None \
                    and write_grad(node, g, Py_REFCNT(g) <= 2, task.fresh, task.solid):
                return 0
            task.accumulator(task, node, g, Py_REFCNT(g) <= 2)   # 2: `visit`, and this frame
        return 0
    task.executed += 1
    if node.flags & DEAD and not node.flags & FREED and not stateless(node):
        raise refusals.dropped(node)
    if node.flags & FREED and not stateless(node):
        raise refusals.freed(node)
    task.running = node
    if task.needed is not None and op.several:
        whole(task, node)
    if node.hooks is None:
        differentiate(task, node, op, g)
    else:
        with_hooks(task, node, op, g)
    task.running = None
    if not task.retain and task.own:
        spend(task.tape, node)
        task.tape.drain()
    return 0


cdef int with_hooks(GraphTask task, Node node, Op op, object g) except -1:
    """Differentiate a node whose own hooks see its cotangents before and after."""
    cdef Py_ssize_t i
    hooks = node.hooks
    g = prepare(hooks, node, g, task)
    if not hooks.post:
        differentiate(task, node, op, g)
        return 0
    task.collected = {}
    try:
        differentiate(task, node, op, g)
        collected = task.collected
    finally:
        task.collected = None
    operands = node.operands
    results = after(hooks, node, tuple([collected.get(i) for i in range(len(operands))]), g, task)
    for i in range(len(operands) - 1, -1, -1):
        if i < len(results) and operands[i] is not None \
                and (results[i] is not None and task.captures is None or task.wants(<Node>operands[i])):
            task.deliver(node, <Node>operands[i], results[i])
    return 0


cdef bint beyond(GraphTask task, Node node) except -1:
    """Does a captured node also lead to another one, or is it called for its own sake?"""
    if task.accumulate or task.calls and (node.op.functions or node.hooks is not None and node.hooks.post):
        return True
    for n in node.operands:
        if n is not None and task.leads(<Node>n):
            return True
    return False


cdef int differentiate(GraphTask task, Node node, Op op, object g) except -1:
    """Run the rules of `node`, in C where there are any, and send what they give."""
    cdef Vjp vjp
    cdef Node other
    cdef Py_ssize_t i
    if undefined(op, g):
        return pass_nothing(task, node, op)
    if op.hot and _native and task.collected is None and not task.anomaly:
        if task.inplace and native(task, node, op, g) or task.direct and recorded(task, node, op, g):
            return 0
    if op.joint is not None:
        return joint(task, node, op, g)
    operands = node.more if node.more is not None else (node.in0, node.in1)
    for i in range(len(operands) - 1, -1, -1):
        other = operands[i]
        if not task.wants(other) or op.vjps[i] is None:      # in this order: there may be fewer rules than places
            continue
        vjp = <Vjp>op.vjps[i]
        result = call_rule(task, vjp, node, g)
        if task.anomaly:
            refusals.check_nan(result, node, i)
        task.send_fixed(node, other, result, node.flags & unbroadcast(i))
    return 0


cdef int pass_nothing(GraphTask task, Node node, Op op) except -1:
    """No cotangent has come: as in torch, the operands are visited all the same, for their hooks and Functions."""
    cdef Node other
    cdef Py_ssize_t i
    if task.collected is not None:
        return 0
    operands = node.more if node.more is not None else (node.in0, node.in1)
    for i in range(len(operands) - 1, -1, -1):
        other = operands[i]
        if task.wants(other) and (op.joint is not None or op.vjps[i] is not None):   # in this order, as above
            task.deliver(node, other, None)
    return 0


cdef int joint(GraphTask task, Node node, Op op, object g) except -1:
    """A rule that returns the cotangents of all operands at once."""
    cdef Node other
    cdef Py_ssize_t i
    operands = node.more if node.more is not None else (node.in0, node.in1)
    for other in <tuple>operands:
        if op.functions or followed(other):
            break
    else:
        return 0                     # every operand leads nowhere, and nothing was saved
    results = call_rule(task, <Vjp>op.joint, node, g)
    if results is None:
        return pass_nothing(task, node, op)
    for i in range(len(operands) - 1, -1, -1):
        other = operands[i]
        if not followed(other):
            continue
        if i < len(results) and results[i] is not NotImplemented:      # an operand that nothing leads to
            if task.anomaly:
                refusals.check_nan(results[i], node, i)
            task.send_fixed(node, other, results[i], node.flags & unbroadcast(i))
    return 0


cdef inline bint undefined(Op op, object g) except -1:
    """Is there no cotangent at all for a rule?  A Function is called all the same."""
    if g is None:
        return not op.functions
    return op.flags & MULTI and not op.functions and type(g) is Contribution and not any([p is not None for p in g.parts])


cdef bint hooked_above(Node node) except -1:
    """Is this one output of several whose hooks the operation itself calls?"""
    return node.in0 is not None and node.in0.op.flags & MULTI and node.in0.hooks is not None and node.in0.hooks.outputs


cdef int resolve(GraphTask task, dict captured) except -1:
    """Decide which nodes merge in this run, with torch functions off: versions are read."""
    cdef size_t before = functions_off()
    try:
        return task.tape.resolve(captured)
    finally:
        functions_on(before)


cdef int whole(GraphTask task, Node node) except -1:
    """Is all that a node has saved unwritten?  torch asks also for what no rule of this run reads."""
    cdef size_t before
    for other in node.more if node.more is not None else (node.in0, node.in1):
        if other is not None and (<Node>other).flags & REQUIRES_GRAD and not task.wants(<Node>other):
            before = functions_off()                 # under a mode every read of a version would be a call
            try:
                require_unwritten(node)
            finally:
                functions_on(before)
            return 0
    return 0                             # every rule runs, and reads what it has saved


def use_native(bint on):
    """Run the rules written in C where they apply, or the table's everywhere; returns what was so far."""
    global _native
    cdef bint before = _native
    _native = on
    return before
