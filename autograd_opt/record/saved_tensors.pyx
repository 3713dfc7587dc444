"""Saved-tensor hooks: what `torch.autograd.graph.saved_tensors_hooks` does to values saved here.

While a pair of hooks is on, every tensor that a rule saves goes through the pack hook when
the operation is recorded, and through the unpack hook when a backward run reads it.
"""

import functools
import threading
from operator import is_not

import torch

cimport cython
from libc.stdint cimport uint32_t

from autograd_opt import errors
from autograd_opt.abi import torch_private as private
from autograd_opt.abi.ctorch cimport ao_call, ao_method0, ao_use_reads
from autograd_opt.abi.tensor_info import reads_address
from autograd_opt.graph import refusals
from autograd_opt.graph.handles cimport handle
from autograd_opt.graph.node cimport REQUIRES_GRAD, Node, version_of
from autograd_opt.graph.runs import _local as running
from autograd_opt.graph.tape cimport Tape, active_tape, tape_here
from autograd_opt.graph.thread_state cimport recording
from autograd_opt.graph.thread_state import excluded_autograd, set_saving_hooks
from autograd_opt.graph.tensor import connected
from autograd_opt.record.guard cimport set_grad_mode, user_state

ao_use_reads(reads_address())
cdef object Tensor = torch.Tensor
cdef object Guard = private.DisableTorchFunction
cdef object detach_method = private.TensorBase.__dict__["detach"]
cdef object top_hooks = private.top_saved_tensors_default_hooks


class Entered(threading.local):
    """The pairs of saved-tensor hooks that are on in a thread, the innermost last."""

    def __init__(self):
        self.pairs = []

    def enter(self, pack_hook, unpack_hook):
        private.push_saved_tensors_default_hooks(pack_hook, unpack_hook)
        self.pairs.append((pack_hook, unpack_hook))
        set_saving_hooks(1)

    def leave(self):
        private.pop_saved_tensors_default_hooks()
        if self.pairs:
            self.pairs.pop()
        # torch's own stack says whether one is left: pairs may also be pushed and popped past these methods
        set_saving_hooks(int(private.top_saved_tensors_default_hooks(True) is not None))

    def changed(self, before, task):
        """Note the pairs from before user code that has changed them: the end of its node brings them back."""
        now = self.pairs
        if (before or now) and task.pairs is None and (len(before) != len(now) or any(map(is_not, before, now))):
            task.pairs = before

    def restore(self, before):
        """What user code called in a run has entered or left is undone, as in torch."""
        same = 0
        while same < len(before) and same < len(self.pairs) and before[same] is self.pairs[same]:
            same += 1
        while len(self.pairs) > same:
            self.leave()
        for i in range(same, len(before)):
            self.enter(*before[i])
            self.pairs[i] = before[i]


ENTERED = Entered()


cdef object current():
    """The innermost backward run of this thread."""
    cdef list runs = getattr(running, "stack", None)
    return runs[len(runs) - 1] if runs else None


@cython.final
cdef class AtHome:
    """A hook, run under the graph's modes also when torch calls it inside an opaque call."""

    def __init__(self, hook):
        self.hook = hook

    def __call__(self, value):
        cdef object run = None if active_tape() is None else current()
        if run is None:
            return self.under_modes(value)
        pairs = list(ENTERED.pairs)
        try:
            return self.under_modes(value)
        finally:
            ENTERED.changed(pairs, run.task)

    cdef object under_modes(self, object value):
        """Call the hook where a graph records, if there is one."""
        if recording() != NULL or active_tape() is None:
            return self.hook(value)
        with excluded_autograd(), user_state():
            return self.hook(value)


@cython.final
cdef class Packed:
    """What a pack hook returned, and whose value it stands for."""

    def __init__(self, unpack, held, node):
        self.unpack, self.held, self.node = unpack, held, node

    cpdef object value(self):
        """Ask the unpack hook; under `create_graph` the result is connected to its node."""
        cdef object run = current()
        if run is not None and run.task.create_graph:
            return self.seen_by_user()
        return self.unpacked(run)

    cpdef object seen_by_user(self):
        """What `ctx.saved_tensors` shows: it belongs to its node in every kind of run, as in torch."""
        cdef object t = self.unpacked(current())
        return connected(t, self.node) if self.node is not None and self.node.flags & REQUIRES_GRAD else t

    cdef object unpacked(self, object run):
        """What the unpack hook gives; the same for every slice of the batch of a run."""
        cdef object batch = None if run is None else run.task.batch, t
        cdef user_state state = user_state.__new__(user_state)
        state.begin()
        try:
            if batch is None:
                t = self.unpack(self.held)
            else:
                with batch.left():
                    t = self.unpack(self.held)
        finally:
            state.end()
        if not isinstance(t, Tensor):
            raise errors.ArgumentTypeError(
                f"Output of saved tensor unpack_hook expected to be a Tensor but got result of type {type(t).__name__}"
            )
        return t


class SavedTensor:
    """A tensor that torch's own Python code saves (the arguments of a checkpoint)."""

    def __init__(self, t):
        cdef Tape tape = tape_here()
        cdef Node node
        with Guard():
            node = handle(tape, t)
        self.node, self.version = node, version_of(t)
        self.packed = pack(t, node)
        if type(self.packed) is not Packed:                 # it is held here, and by the graph once it is used
            tape.let_go_unread((node,))

    def unpack(self):
        """The tensor, or what the hooks made of it, connected to its node."""
        if type(self.packed) is Packed:
            return self.packed.seen_by_user()
        if version_of(self.packed) != self.version:
            raise errors.InplaceError(errors.at(
                "one of the variables needed for gradient computation has been modified by an inplace operation: "
                "an argument of a checkpoint. Write to a clone() instead"
            ))
        return self.packed


def make_saved_tensor(original):
    """`original` outside any context, this module's class inside."""
    def make(t, is_output):
        if recording() == NULL:
            return original(t, is_output)
        if t.is_inference():
            raise refusals.inference_saved()
        return SavedTensor(t)
    return make


cpdef object pack(object t, Node node, bint is_output=False):
    """Hand `t`, whose node is `node`, to the innermost pack hook; `t` itself where there is none."""
    cdef object hooks = innermost_hooks()
    return t if hooks is None else packed(<tuple>hooks, t, node, is_output)


cdef object innermost_hooks():
    """The innermost pair of hooks, or None."""
    return ao_call(top_hooks, (False,), None)


cdef object packed(tuple hooks, object t, Node node, bint is_output):
    """`pack` by a pair of hooks that has been looked up."""
    cdef uint32_t before = version_of(t)
    cdef object given = ao_method0(detach_method, t) if is_output else t, held
    cdef bint grad = set_grad_mode(False)
    cdef user_state state = user_state.__new__(user_state)
    state.begin()
    try:
        held = hooks[0](given)
    finally:
        state.end()
        set_grad_mode(grad)
    if version_of(t) != before:
        raise errors.GraphError(errors.at(
            "A saved tensor pack hook is modifying its input in place. Tensors provided as input to pack hook cannot "
            "be modified by in-place operations as this can lead to unexpected side-effects: write to a clone()"
        ))
    return Packed(hooks[1], held, node)


@functools.cache
def saving_order(name, count):
    """In which order torch saves the tensors among the first `count` operands of an operator: by their names."""
    packet = getattr(torch.ops.aten, name, None)
    for overload in () if packet is None else packet.overloads():
        arguments = getattr(packet, overload)._schema.arguments
        names = [a.name for a in arguments if str(a.type) in ("Tensor", "Optional[Tensor]")]
        if len(names) >= count:
            return tuple(sorted(range(count), key=names.__getitem__))
    return tuple(range(count))


cdef object pack_extra(tuple hooks, object extra):
    """Pack the tensors that a kernel saved for its rule besides its operands."""
    if isinstance(extra, (tuple, list)):
        return type(extra)([pack_extra(hooks, e) for e in extra])
    return packed(hooks, extra, None, False) if isinstance(extra, Tensor) else extra


def unpack_extra(extra):
    """What `pack_extra` was given."""
    if isinstance(extra, (tuple, list)):
        return type(extra)([unpack_extra(e) for e in extra])
    return extra.value() if type(extra) is Packed else extra
