"""Run calls that record nothing: torch's own call, and a note of the views that it has made.

Where gradients are off, or no operand takes part in differentiation, there is nothing to follow.  With value
numbers such a call may still be worth a node, since an equal one finds its value; whether it ever does is
learned for each place of the program (`settled`).  Nothing of a write is recorded then either, so that its operands
need no nodes: what the tape knows of the memory it finds out of date by itself, by version or by the note.
"""

import torch

from cpython.object cimport PyObject
from libc.stdint cimport uint32_t

from autograd_opt.abi import torch_private as private
from autograd_opt.abi.ctorch cimport (
    ao_call, ao_casts, ao_dtype, ao_get, ao_is_inference, ao_is_leaf, ao_is_view, ao_needs_grad, ao_own, ao_plain,
    ao_start, ao_strided, ao_use_reads,
)
from autograd_opt.abi.tensor_info cimport same_memory
from autograd_opt.abi.tensor_info import reads_address
from autograd_opt.graph.handles cimport geometry, handle, move, release_handle, wrote
from autograd_opt.graph.node cimport (
    ELEMENTWISE, NOWHERE, REDUCES, REQUIRES_GRAD, CustomTensor, Node, Op, PlainTensor as Tensor, ordinary, shape_of, version_of,
)
from autograd_opt.graph.tape cimport Tape, active_tape
from autograd_opt.graph.thread_state cimport recording, torch_autograd
from autograd_opt.ops.binding cimport placed
from autograd_opt.record.arguments cimport (
    grad_on, is_tensor, lend_all, lent, none_follows, own_tensor, plain_argument, tracked,
)
from autograd_opt.record.guard cimport enter, leave
from autograd_opt.record.new_memory cimport call_alone
from autograd_opt.record.sites cimport settled

ao_use_reads(reads_address())
cdef object count_write = torch.autograd.graph.increment_version
cdef object any_autocast = private.is_any_autocast_enabled
cdef object is_inference = private.TensorBase.__dict__["is_inference"]
cdef object get_data = private.TensorBase.__dict__["data"]
cdef object get_base = ao_own(private.base_property)
cdef object is_shared_copy = private.is_cow_tensor
cdef object set_version = private.set_version_counter
cdef set OPERATOR_KINDS = {private.OpOverload, private.OpOverloadPacket, private.TorchBindOpOverload}


cpdef object run_raw(object func, object args, object kwargs):
    """Call `func` with every torch-function route switched off."""
    cdef PyObject *tp = recording()
    cdef Tape tape
    if tp == NULL:
        return func(*args, **kwargs)
    tape = <Tape>tp
    if kwargs and "out" in kwargs:
        own_memory(kwargs["out"])
    kwargs = placed(func, kwargs)
    switch = enter(tape)
    try:
        r = ao_call(binding_of(func), tuple(args), kwargs)
        started(r)
        return r
    finally:
        leave(tape, switch)


cpdef object detached(t):
    """An alias of `t`, of any layout, as a plain tensor."""
    d = t.detach()
    if type(d) is not Tensor:
        d.__class__ = Tensor
    return d


cdef object binding_of(object func):
    """What an operator of `torch.ops` calls, whose Python code has looked at the arguments before it came to the mode."""
    return private.direct(func) if type(func) in OPERATOR_KINDS else func


cpdef int own_memory(object t) except -1:
    """Let a tensor that may be given another size, or several, share memory with no clone: torch cannot resize that."""
    if isinstance(t, (tuple, list)):
        for one in t:
            own_memory(one)
    elif is_tensor(t):
        with private.DisableTorchFunction():
            if t.layout is torch.strided and is_shared_copy(t):
                t.data_ptr()
    return 0


cdef int started(object r, object kept=None) except -1:
    """Let what a call has made begin at version 0, as in torch, whose kernels' own writes are not counted.

    `kept` is for the rule: it may hold an output, or another tensor in its memory, which has the same counter.
    """
    cdef Py_ssize_t holders = 0 if kept is None else 2
    if type(r) is Tensor or type(r) is CustomTensor:
        ao_start(r, 1 + holders, copies_in(kept, r))
    elif isinstance(r, (tuple, list)):
        for t in r:
            if type(t) is Tensor or type(t) is CustomTensor:
                ao_start(t, 2 + holders, copies_in(kept, t))
    return 0


cdef int fresh(object r) except -1:
    """`started` for what a call makes of strided operands: the counter of a result without strides is nobody else's."""
    started(r)
    if type(r) is Tensor and not ao_strided(r) and not ao_is_inference(is_inference, r) and version_of(r) > 0:
        set_version((r,), (0,))
    return 0


cdef Py_ssize_t copies_in(object kept, object t) except -1:
    """How many other tensors of what is kept lie in the memory of `t`."""
    cdef Py_ssize_t n = 0
    if type(kept) is tuple:
        for other in <tuple>kept:
            n += copies_in(other, t)
        return n
    return type(kept) is Tensor and kept is not t and same_memory(kept, t)


cdef object shown(object r):
    """A result as eager mode shows it: not as a view of memory that only torch's kernel knows."""
    if isinstance(r, (tuple, list)):
        return type(r)([shown(t) for t in r])
    return ao_get(get_data, r) if is_tensor(r) and ao_is_view(r) else r


cdef object as_view(object base, object r):
    """The result of a view, which under a dispatch mode is none of `base` in torch's eyes where torch composes it."""
    if type(r) is tuple or type(r) is list:
        return type(r)([as_view(base, t) for t in r])
    if type(r) is not Tensor or r is base or ao_is_view(r) or not ao_strided(r) or ao_dtype(r) is not ao_dtype(base) \
            or r.is_conj() != base.is_conj() or r.is_neg() != base.is_neg() \
            or private.storage_id(r.untyped_storage()) != private.storage_id(base.untyped_storage()):
        return r
    return base.as_strided(r.shape, r.stride(), r.storage_offset())


cdef int note_view(object r) except -1:
    """Remember when views of a constant were made: it may come to require grad."""
    for t in r if isinstance(r, (tuple, list)) else (r,):
        if type(t) is Tensor and not ao_is_inference(is_inference, t) and ao_is_view(t):
            t._made = version_of(t)
    return 0


cpdef int handed_out(list gradients) except -1:
    """Give gradients that are views of what a graph has computed their node: they require grad because their base does."""
    for t in gradients:
        if type(t) is Tensor and ao_is_view(t) and type(ao_get(get_base, t)) is CustomTensor:
            set_apart(t, None)
    return 0


cdef Op APART = None


def install(Op apart):
    """Take the operator of views made under no_grad (`record/views.py`); done once at import."""
    global APART
    APART = apart


cpdef bint of_a_leaf(object below) except -1:
    """Is the base of a view a leaf of torch's own that requires grad?"""
    return type(below) is not CustomTensor and ao_strided(below) and ao_needs_grad(below) and ao_is_leaf(below)


cdef bint torchs_own(object r) except -1:
    """Is a result, or each of several, a view of a leaf of torch's own?"""
    if type(r) is tuple or type(r) is list:
        for t in r:
            if not torchs_own(t):
                return False
        return len(r) > 0
    return type(r) is Tensor and ao_is_view(r) and ao_strided(r) and of_a_leaf(ao_get(get_base, r))


cdef bint set_apart(object r, object source) except -1:
    """`views.set_apart`; a view that begins at memory of one dtype, with strides, gets its node here.

    Of a view of a leaf of torch's own torch says all of it already: that gets its node when something reads it.
    """
    cdef object below
    cdef Tape tape
    cdef Node node
    cdef dict where
    if torchs_own(r):
        return True
    if type(r) is Tensor and ao_is_view(r) and ao_strided(r) and not ao_is_inference(is_inference, r):
        below = ao_get(get_base, r)
        tape = active_tape()
        if tape is not None and (source is None or not ao_is_view(source)) and ao_strided(below) and ao_dtype(r) is ao_dtype(below) and ao_dtype(r).is_floating_point:
            with private.DisableTorchFunction():
                node = handle(tape, below)
                if not node.flags & REQUIRES_GRAD:
                    return False
                where = geometry(r, below)
                where["unrecorded"] = True
                move(APART, node, where, r).mark(NOWHERE)
            return True
    from autograd_opt.record.views import set_apart as in_python
    return in_python(r, source)


cdef object unrecorded(Tape tape, object func, tuple args, dict kwargs):
    """The call of torch's own, for arguments of which `none_follows`."""
    cdef object r
    cdef size_t switch
    cdef bint new
    lend_all(tape, args, kwargs)
    if not args or not is_tensor(args[0]):
        kwargs = placed(func, kwargs)
    switch = enter(tape)
    try:
        r = call_alone(binding_of(func), args, kwargs if kwargs else None, &new)
        if new:
            return r
        if type(r) is not Tensor or not ao_is_view(r):
            fresh(r)
        return shown_views(r, args, kwargs)
    finally:
        leave(tape, switch)


cdef object FOLLOWED = object()
"""What is said, in place of a result, of a call of which something is to be recorded."""


cdef object by_itself(Tape tape, object func, tuple args, dict kwargs, bint carries, bint numbers):
    """The result of a call of which nothing is recorded; FOLLOWED, with nothing done, for any other.

    Parameters
    ----------
    carries : may a gradient go through its result?
    numbers : is its value worth a number where that has saved something?
    """
    if none_follows(tape, args, kwargs, carries and grad_on()):
        return FOLLOWED if numbers and tape.optimize and not settled() else unrecorded(tape, func, args, kwargs)
    return sparse_call(func, args, kwargs) if sparse_alone(args, kwargs) else FOLLOWED


cdef bint sparse_alone(tuple args, dict kwargs) except -1:
    """Are gradients off, and is an operand without strides all that stands against `unrecorded`?"""
    cdef bint found = False
    if grad_on() or ao_casts(any_autocast):
        return False
    for x in args if not kwargs else (*args, *kwargs.values()):
        if ordinary(x):
            if not ao_plain(x):
                if ao_strided(x):
                    return False                 # nested, or a tensor inside a transform
                found = True
        elif not plain_argument(x):
            return False
    return found


cdef object sparse_call(object func, tuple args, dict kwargs):
    """torch's call with autograd's keys in: below them, kernels of other layouts count their own writes."""
    cdef object r
    lent(args, kwargs)
    if not args or not is_tensor(args[0]):
        kwargs = placed(func, kwargs)
    with torch_autograd(False):
        r = ao_call(binding_of(func), args, kwargs if kwargs else None)
    if type(r) is not Tensor or ao_is_view(r):
        set_apart(r, None)
    return r


cdef inline object shown_views(object r, tuple args, dict kwargs):
    """The result as eager mode shows it, with a note of the views in it, since their base may come to require grad."""
    if type(r) is Tensor or type(r) is CustomTensor:
        return noted_view(r, r, args, kwargs) if ao_is_view(r) else r
    if isinstance(r, (tuple, list)) and len(r) and (type(r[0]) is Tensor or type(r[0]) is CustomTensor) and ao_is_view(r[0]):
        return noted_view(r, r[0], args, kwargs)
    return r


cdef object noted_view(object r, object first, tuple args, dict kwargs):
    cdef object below = ao_get(get_base, first), source
    cdef Tape tape
    cdef bint follows_none
    for x in args:
        if first is x:
            return r                             # the operand itself
    if not lies_in(below, args) and not (kwargs and lies_in(below, tuple(kwargs.values()))):
        return shown(r)
    tape = active_tape()
    source = args[0] if args and is_tensor(args[0]) else None
    follows_none = grad_on() or tape is None or not tracked(tape, below) \
        and (source is None or source is below or not tracked(tape, source))
    below = None                                 # whether a base is hidden memory is told by its references
    if not follows_none:
        set_apart(r, source)
    else:
        note_view(r)
    return r


cdef bint lies_in(object below, object args) except -1:
    """Is the base of a view one of these tensors, or the base of one?"""
    for x in args:
        if is_tensor(x):
            if x is below or ao_is_view(x) and ao_get(get_base, x) is below:
                return True
        elif (type(x) is tuple or type(x) is list) and lies_in(below, x):
            return True
    return False


cpdef object written(object func, tuple args, object kwargs):
    """Call `func`, which writes its first argument, or each tensor of that list, without a record."""
    cdef Tape tape = active_tape()
    cdef object r, targets
    cdef size_t switch
    cdef list versions
    cdef Py_ssize_t i
    if tape is None:
        return func(*args, **kwargs)
    lent(args, kwargs)
    switch = enter(tape)
    try:
        if args and (type(args[0]) is list or type(args[0]) is tuple):
            targets = args[0]
            versions = [version_of(t) if is_tensor(t) and not ao_is_inference(is_inference, t) else None for t in targets]
        else:
            targets, versions = args[:1], [None] * len(args[:1])
        r = func(*args, **kwargs) if kwargs else ao_call(func, args, None)
        for i in range(len(versions)):
            if is_tensor(targets[i]):
                wrote(targets[i])
                if versions[i] is not None and version_of(targets[i]) == <uint32_t>versions[i]:
                    count_write(targets[i])          # which the kernel of a GradScaler does not
        return r
    finally:
        leave(tape, switch)


cdef bint unfollowed(Tape tape, tuple args, dict kwargs) except -1:
    """Does no gradient follow a write to the first argument, or to the tensors of that list?"""
    if not args or ao_casts(any_autocast):
        return False
    if type(args[0]) is list or type(args[0]) is tuple:
        for t in args[0]:
            if not own_tensor(t):
                return False
    elif not own_tensor(args[0]):
        return False
    return none_follows(tape, args, kwargs, True)


cdef object into(Tape tape, object func, tuple args, dict kwargs):
    """A call with `out=`, a tensor, that no gradient follows; None where more has to be asked."""
    cdef object out = kwargs["out"], before, r
    cdef size_t switch
    if not ordinary(out) or not ao_plain(out) or ao_is_view(out) or ao_casts(any_autocast) or not none_follows(tape, args, kwargs, grad_on()):
        return None
    lend_all(tape, args, kwargs)
    switch = enter(tape)
    try:
        if is_shared_copy(out):
            out.data_ptr()                       # memory that a clone shares cannot be given another size
        before = shape_of(out)
        r = ao_call(func, args, kwargs)
        wrote(out)
        if shape_of(out) != before:
            from autograd_opt.record.leaves import remade
            remade(out, None)
        return r
    finally:
        leave(tape, switch)


cdef object COPIES = frozenset("clone cast contiguous to_float to_double to_half to_bfloat16".split())


cdef bint without_history(Op op, tuple operands) except -1:
    """Are these inference tensors alone?  torch's autograd does not see a kernel on them, even where they require grad.

    What torch makes of several kernels (a clone is a copy into a usual tensor) it may see; so it may what has a number.
    """
    if not op.flags & (ELEMENTWISE | REDUCES) or op.name in COPIES:
        return False
    for t in operands:
        if not is_tensor(t) or not ao_is_inference(is_inference, t):
            return False
    return True
