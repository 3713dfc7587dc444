"""One call of a region: what it hands out, and its part of a backward run of torch's engine."""

import math
from _thread import RLock

cimport cython
import torch
from torch.autograd import forward_ad

from autograd_opt import errors
from autograd_opt.abi import torch_private as private
from autograd_opt.abi.ctorch cimport ao_builtin0, ao_is_view, ao_memory, ao_method0, ao_use_reads
from autograd_opt.abi.function_switch cimport functions_off, functions_on
from autograd_opt.abi.tensor_info import reads_address
from autograd_opt.api.balance cimport Balance
from autograd_opt.api.region_results import exchanged, handed_out
from autograd_opt.engine import backward as engine
from autograd_opt.engine import torch_engine
from autograd_opt.engine.batched import Batch
from autograd_opt.engine.entry cimport plain_cotangent, run_for_torch
from autograd_opt.engine.leaf_order cimport heap_order
from autograd_opt.engine.kernels cimport Tensor, transforms_active
from autograd_opt.engine.own_memory import own_memory
from autograd_opt.graph import refusals
from autograd_opt.graph.boundary cimport (
    become_torchs, boundary, hand_over, kept_outside, lead_on, loosen, nodes_of, reached, reaches_all,
)
from autograd_opt.graph.node cimport MARK, NOWHERE, REQUIRES_GRAD, CustomTensor, Node, version_of
from autograd_opt.graph.tape cimport Held, Tape, active_tape
from autograd_opt.record.guard cimport set_grad_mode

ao_use_reads(reads_address())
cdef object detach = private.TensorBase.__dict__["detach"]
cdef object grad_enabled = private.is_grad_enabled
cdef object dispatch_modes = private.len_torch_dispatch_stack
cdef object hooks_in_place = private.top_saved_tensors_default_hooks
cdef object tracing = private.get_tracing_state
cdef object set_versions = private.set_version_counter
cdef object keeps_graph = private.get_current_graph_task_keep_graph
cdef object torch_executes = private.torch_executes_node
cdef dict arrangements = {}              # a number of leaves -> their order

cdef enum Arrival:
    NOT, ACCUMULATED, CAPTURED           # how a run of torch's engine that is under way comes to a function


cpdef bint runs_as_written() except -1:
    """True if a call here is torch's own: nothing follows it, a graph records it, or torch looks at its operations."""
    return ao_builtin0(grad_enabled) is not True or active_tape() is not None or ao_builtin0(dispatch_modes) != 0 \
        or transforms_active() or private.forward_level() >= 0 or hooks_in_place(True) is not None \
        or tracing() is not None


def made_here(t):
    """True if torch's graph cannot know of the leaf `t`, which `autograd_opt.tensor` has made."""
    return type(t) is CustomTensor and "_requires_grad" in t.__dict__ and "_made_here" in t.__dict__


cdef object refuse_leaf(object t):
    """Refuse a leaf that torch's graph does not know of."""
    raise errors.UnsupportedError(errors.at(
        f"a tensor made by autograd_opt.tensor, of shape {list(t.shape)}, was used in a region: torch's graph, of "
        "which a region is a node, has no place for its gradient; make it with torch.tensor(..., requires_grad=True)"
    ))


cdef bint goes_on(Node node) noexcept:
    """Does a gradient of this result go anywhere?  A view made under no_grad requires grad because its base does."""
    return node.flags & (REQUIRES_GRAD | NOWHERE) == REQUIRES_GRAD


@cython.final
cdef class Kept:
    """Releases a graph when the last node of torch's that is of it has gone."""
    cdef public object graph
    cdef Balance balance

    def __init__(self, graph, Balance balance=None):
        self.graph, self.balance = graph, balance

    def __del__(self):
        if self.balance is not None:
            self.balance.end(self.graph.tape)
        self.graph._release()


@cython.final
cdef class Call:
    """One recorded call, as its node in torch's graph holds it."""
    cdef public object graph
    cdef readonly Kept kept
    cdef readonly object lock
    cdef bint alone                      # is no other node of torch's, its derivative say, of the same graph?
    cdef set freed                       # ids of results from which no later run may start
    cdef list roots, leaves, inputs, outputs, written
    cdef Held held

    def __init__(self, graph, Kept kept=None, Balance balance=None):
        self.graph = graph
        self.kept = Kept(graph, balance) if kept is None else kept
        self.lock = RLock()
        self.alone = True

    def __del__(self):
        self.let_go()

    cdef int let_go(self) except -1:
        """Hold the results' nodes no more: what no other node of torch's holds is freed."""
        cdef Held held = self.held
        self.held = None
        if held is not None:
            held.__exit__()
        return 0

    # Forward -------------------------------------------------------------------------
    def results(self, list result, bint keeps=False):
        """(tensors to hand out, the recorded ones they stand for); called while the graph is open.

        If `keeps`, a tensor that is still held elsewhere than in `result` becomes an ordinary one where it is.
        """
        cdef size_t before = functions_off()
        try:
            return self.found(result, keeps)
        finally:
            functions_on(before)

    cdef tuple found(self, list result, bint keeps):
        """`results`, with torch functions off."""
        cdef Tape tape = self.graph.tape
        cdef Node node
        cdef dict found = {}, held = {}
        cdef list leaves, known, changed, written, originals, outputs, others
        leaves, self.inputs, written = boundary(tape)
        for t in self.inputs:
            if type(t) is CustomTensor and MARK in t.__dict__:
                if made_here(t):
                    refuse_leaf(t)
                become_torchs(t)
        t = None
        collect(result, found, held)
        for t in written:
            found.pop(id(t), None)
        t = None
        if keeps:
            kept = kept_outside(tape, held, written)
            if kept:
                for t in kept:
                    found.pop(id(t), None)
                written = [*written, *kept]
        originals = list(found.values())
        known = nodes_of(tape, originals)
        changed = nodes_of(tape, written)
        others = [hand_over(tape, t) for t in written]
        outputs = ordinary(originals, self.inputs)
        if keeps and self.kept.balance is not None:
            self.kept.balance.begin(tape)
        self.roots = known + changed
        self.written = [t for t, node in zip(written, changed) if goes_on(node)]
        self.lead_to(leaves)
        self.held = Held(self.roots)
        self.held.__enter__()
        del others
        return outputs, originals

    cdef int lead_to(self, list leaves) except -1:
        """Choose the leaves to which the results lead, in the order for torch's engine; no other gets a cotangent."""
        cdef list ways = [way or any([t is x for x in self.written])
                          for way, t in zip(reached(self.graph.tape, self.roots, leaves), self.inputs)]
        cdef list places
        if not all(ways):
            loosen(self.graph.tape, [node for node, way in zip(leaves, ways) if not way])
            leaves = [node for node, way in zip(leaves, ways) if way]
            self.inputs = [t for t, way in zip(self.inputs, ways) if way]
        places = arranged(len(leaves))
        self.leaves, self.inputs = [leaves[i] for i in places], [self.inputs[i] for i in places]
        return 0

    def published(self, list outputs):
        """The outputs, each with this call as its history where it requires grad; called outside of the graph."""
        cdef Node node
        cdef list follows = [goes_on(node) for node in self.roots]
        cdef list tracked
        if all(follows):
            tracked = outputs + self.written
        else:
            self.roots = [node for node, on in zip(self.roots, follows) if on]
            tracked = [t for t, on in zip(outputs, follows) if on] + self.written
        if not tracked:
            return outputs
        if any([ao_is_view(t) and any([t is x for x in self.inputs]) for t in self.written]):
            raise errors.UnsupportedError(errors.at(
                "a region has written a view that torch has computed, and what it is a view of cannot follow: write into "
                "a clone() of it, or leave the write out of the region"
            ))
        self.outputs = tracked
        versions = tuple([version_of(t) for t in self.written])
        grad = set_grad_mode(True)           # the function may have left it off
        try:
            lead_on(self.leaves, self.inputs)
            results = apply_region(self, *self.inputs)
        finally:
            set_grad_mode(grad)
        if versions:                         # torch counts the write that the region has made already
            set_versions(tuple(self.written), versions)
        self.outputs = self.written = self.inputs = None
        loosen(self.graph.tape, self.leaves)
        given = iter(results)
        return [next(given) if on else t for t, on in zip(outputs, follows)]

    # Backward ------------------------------------------------------------------------
    cdef list pulled_back(self, object node, tuple cotangents):
        """The cotangents of the leaves; `node` is torch's."""
        cdef bint recorded = ao_builtin0(grad_enabled) is True, retain = recorded or keeps_graph()
        cdef bint onward = True, whole = reaches_all()
        cdef list ways, roots = self.roots, wanted = self.leaves, given = list(cotangents), found
        if not whole:
            ways = [arrival(f) for f, _ in node.next_functions]
            onward, whole = CAPTURED not in ways, NOT not in ways
            if not whole:
                wanted = [n for n, way in zip(wanted, ways) if way != NOT]
        if any([g is None for g in given]):
            roots = [n for n, g in zip(roots, given) if g is not None]
            given = [g for g in given if g is not None]
        if not roots or not wanted:
            return [None] * len(self.leaves)
        with self.lock:
            if not self.alone and not retain:
                self.free_later(roots)
            found = self.run(roots, given, wanted, retain or not self.alone, recorded, onward, whole and self.alone)
        if whole:
            return found
        left = iter(found)
        return [next(left) if way != NOT else None for way in ways]

    cdef int free_later(self, list live) except -1:
        """Let no later run of torch's engine start at these results; this one may come to the graph again."""
        if self.freed is None:
            self.freed = set()
        for node in live:
            if id(node) in self.freed:
                raise refusals.freed(node)

        def free():
            self.freed.update([id(node) for node in live])
            if len(self.freed) == len(self.roots):
                self.let_go()

        private.execution_engine().queue_callback(free)
        return 0

    cdef list run(self, list roots, list given, list wanted, bint retain, bint recorded, bint onward, bint everything):
        """One backward run over the graph, entered again for it; `onward`: nobody is given the cotangents themselves.

        `everything`: `wanted` are all leaves there are.
        """
        cdef Tape tape = self.graph.tape
        cdef bint inside = active_tape() is tape
        cdef Py_ssize_t handed = tape.merges.handed
        cdef list found = None
        cdef Call call = None
        if not inside:
            self.graph.resume()
        try:
            if not recorded and plain(given):
                found = run_for_torch(tape, roots, given, wanted, retain, onward, everything)
            if found is None:
                given, levels = torch_engine.outside(given)
                if levels:
                    found = batch_run(tape, roots, given, wanted, retain, recorded, levels)
                else:
                    found = engine.execute(tape, roots, given, wanted, retain, recorded, False, handed_on=True)
            else:
                levels = None
            if (tape.merges.twins if recorded else tape.merges.handed != handed) and not levels:
                found = own_memory(tape, roots, given, wanted, found, recorded)
            if recorded:
                call = Call(self.graph, self.kept)
                call.alone = self.alone = False
                outputs, originals = call.results(found)
        finally:
            if not inside:
                self.graph.suspend()
        if call is not None:
            with private.temporarily_clear_interpreter_stack():
                made = {id(t): out for t, out in zip(originals, call.published(outputs))}
            found = [made.get(id(g), g) for g in found]
        elif not levels:
            set_apart(found)
        return [None if g is None else torch_engine.entered(g, levels) for g in found] if levels else found


cdef int set_apart(list found) except -1:
    """Copy what shows the memory of another gradient, whichever comes first: torch may keep each as some `.grad`."""
    cdef dict seen = {}
    cdef Py_ssize_t i
    cdef object g
    cdef size_t memory
    for i, g in enumerate(found):
        if g is None:
            continue
        memory = <size_t>ao_memory(g)
        if memory == 0 and g.layout is torch.strided:
            memory = private.storage_id(g.untyped_storage())
        if memory != 0 and seen.setdefault(memory, g) is not g and 0 not in g.stride():
            found[i] = g.clone()
    return 0


cdef list arranged(Py_ssize_t n):
    """In which order to hand `n` leaves to torch, so that its engine goes on to that which was used last first.

    So gradients arrive about as without a region, which is what `DistributedDataParallel` lays out its buckets for.
    """
    cdef list places = arrangements.get(n)
    cdef Py_ssize_t k
    if places is None:
        places = [0] * n
        for k, place in enumerate(heap_order(list(range(n)))):
            places[place] = n - 1 - k
        if len(arrangements) < 256:
            arrangements[n] = places
    return places


cdef int collect(list result, dict found, dict held) except -1:
    """The recorded tensors in a result by their ids, and how many references to each are in it and in `found`."""
    if len(result) == 1 and type(result[0]) is CustomTensor:
        found[id(result[0])] = result[0]
        held[id(result[0])] = 2
        return 0

    def met(t):
        held[id(t)] = held.get(id(t), 1) + 1
        return found.setdefault(id(t), t)

    exchanged(result, met)
    return 0


cdef list ordinary(list results, list leaves):
    """Ordinary tensors over the memory of results."""
    cdef set shared
    for t in results:
        if ao_is_view(t):
            shared = {<size_t>ao_memory(t) for t in results}
            if 0 in shared:
                return handed_out(results, leaves)
            leaves = [t for t in leaves if <size_t>ao_memory(t) in shared]
            if leaves or len(shared) < len(results):
                return handed_out(results, leaves)
            break                        # views of memory that nothing else shows
    return [ao_method0(detach, t) for t in results]


cdef bint plain(list given) except -1:
    """True if no transform is around these cotangents: each stands for itself."""
    if transforms_active() or private.forward_level() >= 0:
        return False
    for g in given:
        if type(g) is not Tensor or not plain_cotangent(g):
            return False
    return True


cdef int arrival(object function) except -1:
    """How the run of torch's engine that is under way comes to `function`."""
    if function is None:
        return NOT
    try:
        return ACCUMULATED if torch_executes(function) else NOT
    except RuntimeError:                 # a leaf, whose gradient the run is asked for
        return CAPTURED


cdef list batch_run(Tape tape, list roots, list cotangents, list targets, bint retain, bint recorded, list levels):
    """One run for all slices of cotangents that are batches of these levels of `vmap`; gives the slices stacked."""
    count = math.prod([level.size for level in levels])
    with private.temporarily_clear_interpreter_stack():
        cotangents = [g.reshape(count, *g.shape[len(levels):]) for g in cotangents]
        if recorded:
            return engine.in_slices(tape, roots, cotangents, targets, retain, recorded, True)
        return engine.execute(tape, roots, cotangents, targets, retain, recorded, False, Batch(count), handed_on=True)


class OptimizedRegion(torch.autograd.Function):
    """A region in torch's graph."""

    @staticmethod
    def forward(ctx, Call call, *leaves):
        """The results of `call`, which have been computed."""
        ctx.set_materialize_grads(False)
        ctx.call = call
        if call.written:
            dirty = [t for t in call.written if t.requires_grad]
            if dirty:
                ctx.mark_dirty(*dirty)
        return tuple(call.outputs)

    @staticmethod
    def backward(ctx, *cotangents):
        """The cotangents of the leaves."""
        cdef Call call = ctx.call
        return (None, *call.pulled_back(ctx, cotangents))


# past what torch's own `apply` does for transforms and for functions with a `setup_context`
cdef object apply_region = super(torch.autograd.Function, OptimizedRegion).apply
