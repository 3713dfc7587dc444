"""Run an ordinary `backward`, or an ordinary `grad`: of tensors that this graph has computed, nothing out of the ordinary.

What they do is what `backward.backward` and `backward.grad` do then, without the questions that the arguments of a
general call raise.  Anything that is not as here goes there, before anything has been done.
"""

import sys

import torch

from cpython.object cimport PyObject
from libc.stdint cimport uint32_t

from autograd_opt.abi import torch_private as private
from autograd_opt.abi.ctorch cimport (
    ao_builtin0, ao_contiguous, ao_dtype, ao_frame, ao_frame_back, ao_frame_done, ao_frame_t, ao_get, ao_is_leaf,
    ao_is_view, ao_memory, ao_method, ao_method0, ao_needs_grad, ao_plain, ao_use_reads,
)
from autograd_opt.abi.function_switch cimport functions_off, functions_on
from autograd_opt.abi.tensor_info import reads_address
from autograd_opt.engine.executor cimport run as run_task
from autograd_opt.engine.hot cimport NLL
from autograd_opt.engine.kernels cimport (
    CPU, Tensor, get_hooks, transforms_active,
)
from autograd_opt.engine.leaf_gradients cimport hookless
from autograd_opt.engine.task cimport GraphTask
from autograd_opt.graph.handles cimport handle, held_node
from autograd_opt.graph.node cimport (
    EXPOSED, LEAF, MARK, NOWHERE, REQUIRES_GRAD, WRITTEN_OP, Node, is_custom, ordinary, shape_of, version_of,
)
from autograd_opt.graph.plain_values cimport is_float
from autograd_opt.graph.runs import Run
from autograd_opt.graph.runs import _local as running
from autograd_opt.graph.runs import finish as finish_run
from autograd_opt.graph.tape cimport Tape, active_tape
from autograd_opt.graph.thread_state cimport recording, set_paused
from autograd_opt.record.arguments cimport MODE
from autograd_opt.record.unrecorded cimport handed_out

ao_use_reads(reads_address())
cdef object accumulate_leaf = None       # engine/accumulate.py
cdef object shared_ones = None           # cotangents.shared_ones
cdef object own_memory = None            # own_memory.own_memory
cdef object unused = None                # backward.unused
cdef object anomaly_enabled = private.is_anomaly_enabled
cdef object grad_enabled = private.is_grad_enabled
cdef object is_older_batch = private.functorch.is_legacy_batchedtensor
cdef object set_grad_enabled = private.set_grad_enabled
cdef object dispatch_modes = private.len_torch_dispatch_stack
cdef object Guard = private.DisableTorchFunction
cdef object Enabled = private.EnableTorchFunction
cdef object push = private.push_on_torch_function_stack
cdef object pop = private.pop_torch_function_stack
cdef object lazy_clone = private.lazy_clone
cdef object clone_method = private.TensorBase.__dict__["clone"]
cdef double FRAMES = 0.4                 # a nested run deeper than this part of the recursion limit goes on in its own thread
cdef enum:
    DEPTH = 40                           # as many nested runs share one thread at most
cdef dict _ones = {}                     # dtype -> the number one on the CPU, which no user ever sees


def install_entry(accumulate, ones, memory, missing):
    """What a run needs of other modules; done once at import."""
    global accumulate_leaf, shared_ones, own_memory, unused
    accumulate_leaf, shared_ones, own_memory, unused = accumulate, ones, memory, missing
    if ao_builtin0(dispatch_modes) == 0:
        for dtype in (torch.float32, torch.float64):
            _ones[dtype] = torch.ones((), dtype=dtype, device=CPU)


cdef object seed_of(Tape tape, Node root):
    """The cotangent of a scalar: the very same tensor for each run where the rule only reads it."""
    cdef object one
    if root.op.hot != NLL or root.hooks is not None or root.device is not CPU:
        return ones_of(tape, root)
    one = _ones.get(root.dtype)
    if ao_builtin0(dispatch_modes) != 0:
        if one is not None:
            try:
                return ao_method0(lazy_clone, one)       # what a mode sees it may keep and write
            except RuntimeError:
                pass
        return shared_ones(tape, root.shape, root.dtype, root.device)
    if one is None:
        one = _ones[root.dtype] = torch.ones((), dtype=root.dtype, device=CPU)
    return one


cdef object ones_of(Tape tape, Node root):
    """`shared_ones` for a scalar."""
    cdef object key = (root.shape, root.dtype, root.device), known = tape.seeds.get(key), one
    if known is not None and version_of((<tuple>known)[0]) == <uint32_t>(<tuple>known)[1]:
        return (<tuple>known)[0]
    one = _ones.get(root.dtype) if root.device is CPU and ao_builtin0(dispatch_modes) == 0 else None
    if one is None:
        return shared_ones(tape, root.shape, root.dtype, root.device)
    one = ao_method(clone_method, one, ())
    if tape.optimize:
        tape.seeds[key] = (one, version_of(one))
    return one


cdef bint usual_root(Tape tape, object t, Node node) except -1:
    """Is `t` a recorded tensor, unchanged since?"""
    return node.tape_id == tape.id and node.tensor == <PyObject *>t and node.index >= 0 and (node.view is None or not tape.late) \
        and node.flags & (LEAF | REQUIRES_GRAD | NOWHERE | EXPOSED) == REQUIRES_GRAD and node.op is not WRITTEN_OP \
        and version_of(t) == node.version and ao_plain(t)


def backward_usual(tensors, given=None, bint retain=False):
    """Run `backward` of distinct tensors where it is an ordinary one; False, with nothing done, where it is not.

    `given`: a cotangent, or a sequence of them with one or None for each tensor.
    """
    cdef size_t before
    cdef Tape tape = active_tape()
    cdef Node node
    cdef list roots = [], cotangents = [], stack
    cdef tuple several = tuple(tensors) if type(tensors) is tuple or type(tensors) is list else (tensors,)
    cdef Py_ssize_t i, n = len(several)
    cdef bint each = type(given) is tuple or type(given) is list
    if tape is None or recording() != <PyObject *>tape or n == 0 or given is not None and not given_each(given, n) \
            and (each or n > 1) or ao_builtin0(anomaly_enabled) is True:
        return False
    graph = tape.graph()
    if graph is None or graph.anomaly or tape.optimize and (graph.verify_each or not graph.default_passes):
        return False
    stack = getattr(running, "stack", None)
    if stack is None or stack or given is not None and transforms_active():
        return False
    before = functions_off()
    try:
        for i in range(n):
            node = held_node(several[i]) if is_custom(several[i]) else None
            if node is None or node in roots or not usual_root(tape, several[i], node):
                return False
            cotangent = given[i] if each else given
            if type(cotangent) is tuple or type(cotangent) is list:
                return False                 # which torch refuses
            if cotangent is not None:
                cotangent = cotangent_of(tape, several[i], node, cotangent)
            elif len(<tuple>node.shape) == 0 and is_float(node.dtype):
                cotangent = seed_of(tape, node) if n == 1 else ones_of(tape, node)
            if cotangent is None:
                return False
            roots.append(node)
            cotangents.append(cotangent)
    finally:
        functions_on(before)
    run_to(None, graph, tape, roots, cotangents, stack, retain, False)
    return True


cdef object on_plain_values(GraphTask task, list roots, list cotangents, list targets, list stack, bint handed_on=False):
    """Execute with nothing recorded; torch functions are off.  The run is left on `stack`, unless it fails."""
    cdef bint accumulate = targets is None
    grads = ao_builtin0(grad_enabled)
    run = Run(task, roots, targets, accumulate)
    if handed_on:
        run.handed_on = True
    stack.append(run)
    set_paused(1)
    try:
        if grads is True:
            set_grad_enabled(False)
        return run_task(task, roots, cotangents, targets, accumulate, accumulate_leaf)
    except BaseException:
        stack.pop()
        raise
    finally:
        set_paused(0)
        if ao_builtin0(grad_enabled) is not grads:
            set_grad_enabled(grads)


cdef object UNSEEN = object()
"""What is said of a leaf that nothing in the graph reads."""


cdef object bare_target(Tape tape, object t):
    """The node of a tensor without hooks, computed here or a leaf; None where more has to be asked, or UNSEEN."""
    cdef Node node = held_node(t) if is_custom(t) else None
    if node is not None and not node.flags & LEAF:
        return node if node.tape_id == tape.id and node.tensor == <PyObject *>t and node.index >= 0 \
            and node.flags & (REQUIRES_GRAD | EXPOSED) == REQUIRES_GRAD and node.op is not WRITTEN_OP \
            and node.op.name != "output" and node.op.name != "view_apart" and version_of(t) == node.version else None
    if is_custom(t):
        if not hookless(t):
            return None
    elif not ordinary(t) or not ao_needs_grad(t) or not ao_is_leaf(t) or t.__dict__.get("_leaf_hooks"):
        return None
    if ao_is_view(t) or ao_get(get_hooks, t) is not None:
        return None
    node = tape.leaf_of(<PyObject *>t)
    if node is None:
        return UNSEEN if not is_custom(t) or getattr(t, MARK, False) is True else None
    return node if node.index >= 0 and node.flags & (LEAF | REQUIRES_GRAD) == LEAF | REQUIRES_GRAD else None


cdef list bare_targets(Tape tape, object tensors):
    """The nodes of distinct tensors without hooks, None for one that the graph has not seen; None where one is another."""
    cdef list found = []
    cdef set seen = set()
    for x in tensors if type(tensors) is tuple or type(tensors) is list else (tensors,):
        node = bare_target(tape, x) if isinstance(x, Tensor) else None
        if node is None or node in seen:
            return None
        if node is UNSEEN:
            node = None
        else:
            seen.add(node)
        found.append(node)
    return found if found else None


cpdef bint expanded(object g) except -1:
    """Are two elements of `g` one place in memory?"""
    if ao_plain(g) and ao_contiguous(g):
        return False
    with Guard():
        return g.layout is torch.strided and any([s == 0 and n > 1 for s, n in zip(g.stride(), g.shape)])


cpdef bint spared(list results, list cotangents, bint create_graph) except -1:
    """May merging have spared a sum or product that torch returns?

    Then a gradient is expanded, a root's, or there twice, or in a run that records nothing it is a view.
    """
    cdef set seen = {<size_t><PyObject *>g for g in cotangents}
    for g in results:
        if g is None:
            continue
        if type(g) is not Tensor and not is_custom(g) or not ao_plain(g) or <size_t><PyObject *>g in seen or expanded(g) \
                or not create_graph and ao_is_view(g):
            return True
        seen.add(<size_t><PyObject *>g)
    return False


cpdef bint too_deep() except -1:
    """Would one more nested run endanger this thread's stack?"""
    cdef list stack = getattr(running, "stack", None)
    cdef ao_frame_t frame
    cdef Py_ssize_t left
    if not stack:
        return False
    if len(stack) >= DEPTH:
        return True
    left = <Py_ssize_t>(FRAMES * <double>sys.getrecursionlimit())
    frame = ao_frame()
    while frame != NULL and left > 0:
        frame, left = ao_frame_back(frame), left - 1
    if frame != NULL:
        ao_frame_done(frame)
    return left <= 0


cdef bint plain_cotangent(object g) except -1:
    """True for a plain tensor that is no batch of the older kind, which `gradcheck` and `jacobian(vectorize=True)` make."""
    return ao_plain(g) and (ao_memory(g) != NULL or not is_older_batch(g))


cdef object cotangent_of(Tape tape, object t, Node node, object given):
    """What an ordinary run from `t` starts with: ones for a scalar, or the one tensor that is given; None for others."""
    if type(given) is tuple or type(given) is list:
        if len(given) != 1:
            return None
        given = given[0]
    if given is None:
        return ones_of(tape, node) if not len(<tuple>node.shape) and is_float(node.dtype) else None
    return given if ordinary(given) and plain_cotangent(given) and ao_dtype(given) is node.dtype and ao_dtype(t) is node.dtype \
        and shape_of(given) == shape_of(t) == node.shape and node.op is not WRITTEN_OP else None


cdef bint given_each(object given, Py_ssize_t n) except -1:
    """Is there a cotangent, or None, for each of `n` roots?"""
    return (type(given) is tuple or type(given) is list) and len(given) == n


def grad_usual(outputs, inputs, given, retain, bint create_graph, bint allow_unused):
    """`grad` of distinct recorded tensors; None, with nothing done, where one is another.

    The targets are leaves, or computed here; a run on plain values may be one inside another, which merges nothing.
    """
    cdef size_t before
    cdef Tape tape = active_tape()
    cdef Node node
    cdef list roots = [], cotangents = [], targets, stack, results
    cdef Py_ssize_t i, handed
    cdef tuple several = tuple(outputs) if type(outputs) is tuple or type(outputs) is list else (outputs,)
    cdef bint each = len(several) > 1 and given is not None
    if tape is None or recording() != <PyObject *>tape or not several or ao_builtin0(anomaly_enabled) is True \
            or tape.histories is not None or each and not given_each(given, len(several)):
        return None
    for t in several:
        if not is_custom(t):
            return None
    graph, stack = tape.graph(), getattr(running, "stack", None)
    if graph is None or graph.anomaly or stack is None or transforms_active() \
            or (stack or tape.running or create_graph) and (graph.released is not None or too_deep()):
        return None
    before = functions_off()
    try:
        for t in several:
            node = handle(tape, t)           # first: the root may be a leaf that nothing has read, and a target
            if node in roots:
                return None
            roots.append(node)
        targets = bare_targets(tape, inputs)
        if targets is None:
            return None
        for i in range(len(several)):
            node = roots[i]
            if node.index < 0 or not node.flags & REQUIRES_GRAD or node.op.name == "view_apart":
                return None
            cotangent = cotangent_of(tape, several[i], node, (given[i],) if each else given)
            if cotangent is None:
                return None
            cotangents.append(cotangent)
    finally:
        functions_on(before)
    handed = tape.merges.handed
    if create_graph:
        results = recorded_run(targets, graph, tape, roots, cotangents, stack, retain is None or bool(retain))
    else:
        results = run_to(targets, graph, tape, roots, cotangents, stack, bool(retain), False)
        handed_out(results)
    tape.let_go_unread(roots)
    tape.let_go_unread(targets)
    if (tape.merges.twins if create_graph else tape.merges.handed != handed) and spared(results, cotangents, create_graph):
        results = own_memory(tape, roots, cotangents, targets, results, create_graph)
    if not allow_unused:
        for i in range(len(results)):
            if results[i] is None:
                raise unused(i)
    return tuple(results)


cdef int ended(Tape tape, object run, bint retain) except -1:
    """After the engine's loop: note that a run has freed the graph, and call what waits for its end."""
    if not retain:
        tape.consumed = True
    if run.callbacks:
        finish_run(run)
    return 0


cdef list recorded_run(list targets, object graph, Tape tape, list roots, list cotangents, list stack, bint retain):
    """The cotangents of `targets`, with every operation of the rules recorded; nothing merges."""
    cdef GraphTask task = GraphTask.__new__(GraphTask, tape, retain, True, False)
    cdef list results
    task.shares = graph.merges
    grads, enabled = ao_builtin0(grad_enabled), Enabled()
    run = Run(task, roots, targets, False)
    stack.append(run)
    tape.fixed += 1
    try:
        enabled.__enter__()
        push(MODE)
        try:
            if grads is not True:                        # a mode is asked about every change
                set_grad_enabled(True)
            results = run_task(task, roots, cotangents, targets, False, accumulate_leaf)
        finally:
            pop()
            enabled.__exit__(None, None, None)
            if ao_builtin0(grad_enabled) is not grads:
                set_grad_enabled(grads)
        ended(tape, run, retain)
    finally:
        stack.pop()
        tape.fixed -= 1
    return results


cpdef list run_for_torch(Tape tape, list roots, list cotangents, list targets, bint retain, bint onward, bint everything):
    """The cotangents of leaves in an ordinary run that is part of one of torch's; None, with nothing done, in another.

    `onward`: they go on in torch's engine, and nobody is given them as they are.  `everything`: they are all leaves.
    """
    cdef list stack
    graph, stack = tape.graph(), getattr(running, "stack", None)
    if graph is None or graph.anomaly or graph.released is not None or stack is None or stack \
            or ao_builtin0(anomaly_enabled) is True or transforms_active():
        return None
    return run_to(targets, graph, tape, roots, cotangents, stack, retain, True, onward, everything)


cdef list run_to(list targets, object graph, Tape tape, list roots, list cotangents, list stack, bint retain, bint handed_on,
                 bint onward=False, bint everything=False):
    """The cotangents of `targets` in an ordinary run, with the passes before it and the callbacks after it.

    Without `targets`, the gradients are accumulated into the leaves.
    """
    cdef size_t before
    cdef GraphTask task
    cdef list results
    cdef bint asks = targets is not None or tape.merges.merging != 0
    tape.fixed += 1                      # passes and proofs hold record numbers; callbacks come after the engine's loop
    try:
        task = GraphTask.__new__(GraphTask, tape, retain, False,
                                 asks and not tape.running and graph.prepare(roots, targets, not retain))
        task.shares, task.onward, task.everything = asks and graph.merges, onward, everything
        before = functions_off()
        try:
            results = on_plain_values(task, roots, cotangents, targets, stack, handed_on)
        finally:
            functions_on(before)
        run = stack[len(stack) - 1]
        try:
            ended(tape, run, retain)
        finally:
            stack.pop()
    finally:
        tape.fixed -= 1
    return results
