"""A thread's state: which tape records in it, and autograd's dispatch keys around calls that torch itself differentiates."""

cimport cython
from cpython.object cimport PyObject
from libc.stdint cimport uint16_t

from contextlib import contextmanager

from autograd_opt.abi import torch_private as private
from autograd_opt.abi.ctorch cimport ao_builtin0, ao_key_off, ao_set_key_off, ao_use_reads
from autograd_opt.abi.function_switch cimport functions_off, functions_on
from autograd_opt.abi.tensor_info import reads_address
from autograd_opt.graph.node cimport TapeBase

cdef extern from *:
    """
    static AO_THREAD PyObject *ao_active = NULL;   /* the Tape recording in this thread */
    static AO_THREAD int ao_paused = 0;
    static AO_THREAD int ao_saving_hooks = 0;      /* 1 while a pair of saved-tensor hooks is in place */
    """
    PyObject *ao_active
    int ao_paused
    int ao_saving_hooks

ao_use_reads(reads_address())

cdef object is_excluded = private.dispatch_tls_is_dispatch_key_excluded
cdef object set_excluded = private.dispatch_tls_set_dispatch_key_excluded
cdef object grad_enabled = private.is_grad_enabled
cdef object set_grad_enabled = private.set_grad_enabled
cdef tuple KEYS = tuple([private.DispatchKey.__members__[name] for name in (
    "AutogradFunctionality", "AutogradOther", "AutogradNestedTensor", "ADInplaceOrView")])
"""What torch excludes below autograd: the first stands for the keys of all devices, the last is for views and writes."""
cdef enum:
    VIEWS = 3                            # the place of the last, before which all are autograd's
cdef uint16_t[4] NUMBERS
NUMBERS[0], NUMBERS[1], NUMBERS[2], NUMBERS[VIEWS] = [int(key) for key in KEYS]
cdef tuple ASKED = tuple([(key,) for key in KEYS]), OUT = tuple([(key, True) for key in KEYS]), IN = tuple([(key, False) for key in KEYS])


# The tape that records in this thread. ---------------------------------------------------
cdef PyObject *active() noexcept:
    """The tape that records in this thread, or would if it were not paused: borrowed, or NULL."""
    return ao_active


cdef int forget_active(PyObject *tape) noexcept:
    """Let this tape, which ends, be the one of this thread no more."""
    global ao_active
    if ao_active == tape:
        ao_active = NULL
    return 0


cdef PyObject *recording() noexcept:
    """The tape that records in this thread now, borrowed, or NULL."""
    return NULL if ao_paused else ao_active


cdef int set_paused(int value) noexcept:
    global ao_paused
    cdef int old = ao_paused
    ao_paused = value
    return old


def pause():
    """Stop recording in this thread; returns what `resume` needs."""
    return set_paused(1)


def resume(int old):
    """Restore what `pause` or `resume` returned; returns the state until now."""
    return set_paused(old)


def get_active():
    """The Tape that records in this thread, or would if it were not paused; None without one."""
    return None if ao_active == NULL else <TapeBase>ao_active


def get_recording():
    """The Tape that records in this thread now, or None."""
    return None if ao_paused or ao_active == NULL else <TapeBase>ao_active


def set_active_tape(TapeBase tape):
    """Make `tape` (held by its graph) the one recording in this thread; None for none."""
    global ao_active
    ao_active = NULL if tape is None else <PyObject *>tape


def saving_hooks():
    """How many pairs of saved-tensor hooks are in place in this thread."""
    return ao_saving_hooks


def set_saving_hooks(int depth):
    """Say how many are in place; the active tape learns whether there are any."""
    global ao_saving_hooks
    ao_saving_hooks = depth
    if ao_active != NULL:
        (<TapeBase>ao_active).plain = depth == 0


# The calls that torch differentiates. ------------------------------------------------------
@cython.final
cdef class included_autograd:
    """A guard that undoes, for a while, the exclusion of autograd's dispatch keys."""

    cdef int enter(self) except -1:
        cdef int i
        self.excluded = 0
        for i in range(VIEWS):
            if ao_key_off(is_excluded, <tuple>ASKED[i], NUMBERS[i]):
                self.excluded |= 1 << i
                ao_set_key_off(set_excluded, <tuple>IN[i], NUMBERS[i], False)
        return 0

    cdef int leave(self) except -1:
        cdef int i
        for i in range(VIEWS):
            if self.excluded & 1 << i:
                ao_set_key_off(set_excluded, <tuple>OUT[i], NUMBERS[i], True)
        return 0


cdef int exclude_autograd() except -1:
    """Exclude autograd's dispatch keys; return which of them were in, for `include_autograd`."""
    cdef int i, included = 0
    for i in range(VIEWS):
        if not ao_key_off(is_excluded, <tuple>ASKED[i], NUMBERS[i]):
            included |= 1 << i
            ao_set_key_off(set_excluded, <tuple>OUT[i], NUMBERS[i], True)
    return included


cdef int include_autograd(int included) except -1:
    """Include these keys again."""
    cdef int i
    for i in range(VIEWS):
        if included & 1 << i:
            ao_set_key_off(set_excluded, <tuple>IN[i], NUMBERS[i], False)
    return 0


cdef bint exclude_views() except -1:
    """Exclude the dispatch key for views and writes, too; True if it was in."""
    if ao_key_off(is_excluded, <tuple>ASKED[VIEWS], NUMBERS[VIEWS]):
        return False
    ao_set_key_off(set_excluded, <tuple>OUT[VIEWS], NUMBERS[VIEWS], True)
    return True


cdef int include_views() except -1:
    """Include it again."""
    ao_set_key_off(set_excluded, <tuple>IN[VIEWS], NUMBERS[VIEWS], False)
    return 0


@contextmanager
def excluded_autograd():
    """Inside a context: exclude autograd's dispatch keys again, where an opaque call had included them."""
    included = exclude_autograd()
    try:
        yield
    finally:
        include_autograd(included)


@cython.final
cdef class torch_autograd:
    """Inside a context: torch's own autograd for one call, no recording, no torch functions.

    With `functions=True` torch functions stay seen, for a mode that the caller puts in place.
    """

    def __init__(self, bint grad=True, bint functions=False):
        self.grad, self.functions = grad, functions

    def __enter__(self):
        self.paused = set_paused(1)
        if self.functions:
            self.guard = private.EnableTorchFunction()
            self.guard.__enter__()
        else:
            self.before = functions_off()
        self.included = included_autograd.__new__(included_autograd)
        self.included.enter()
        self.mode = ao_builtin0(grad_enabled)
        if self.mode != self.grad:                   # a mode is asked about every change
            set_grad_enabled(self.grad)

    def __exit__(self, *exc):
        if ao_builtin0(grad_enabled) != self.mode:
            set_grad_enabled(self.mode)
        self.included.leave()
        if self.functions:
            self.guard.__exit__(*exc)
        else:
            functions_on(self.before)
        set_paused(self.paused)
