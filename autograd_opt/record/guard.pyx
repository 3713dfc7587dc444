"""Switch torch functions off while a tape reads, computes or records, and on again around what is the user's."""

cimport cython

from autograd_opt.abi import torch_private as private
from autograd_opt.abi.ctorch cimport ao_builtin0, ao_call, ao_grad_on, ao_method, ao_method0, ao_use_reads
from autograd_opt.abi.tensor_info import reads_address
from autograd_opt.graph.tape cimport Tape, active_tape, recording, set_paused
from autograd_opt.record.arguments cimport MODE, mode_innermost

ao_use_reads(reads_address())
cdef object guard_enter = private.DisableTorchFunction.__dict__["__enter__"]
cdef object guard_exit = private.DisableTorchFunction.__dict__["__exit__"]
cdef object all_disabled = private.is_torch_function_all_disabled
cdef object Disabled = private.DisableTorchFunction
cdef object Enabled = private.EnableTorchFunction
cdef object push = private.push_on_torch_function_stack
cdef object pop = private.pop_torch_function_stack
cdef object mode_count = private.len_torch_function_stack
cdef object grad_enabled = private.is_grad_enabled
cdef object set_grad = private.set_grad_enabled
cdef tuple NOTHING = (None, None, None)


cdef object enter(Tape tape):
    """Switch torch functions off; return what `leave` needs, None where they are off already.

    The tape's own switch cannot be entered twice, so a region inside a region takes part in
    the outer one, or a switch of its own where user code has turned torch functions on.
    """
    cdef object switch
    if tape.guarded:
        if ao_builtin0(all_disabled) is True:
            return None
        switch = private.DisableTorchFunction()
    else:
        tape.guarded = True
        switch = tape.guard
    ao_method0(guard_enter, switch)
    return switch


cdef int leave(Tape tape, object switch) except -1:
    """Switch torch functions on again, given what `enter` has returned."""
    if switch is None:
        return 0
    if switch is tape.guard:
        tape.guarded = False
    ao_method(guard_exit, switch, NOTHING)
    return 0


cdef bint set_grad_mode(bint on) except -1:
    """Switch grad mode by torch's own function, of which no mode is told; return what it was."""
    cdef bint before = ao_grad_on(grad_enabled)
    cdef object switch
    if before != on:
        switch = Disabled()
        ao_method0(guard_enter, switch)
        try:
            ao_call(set_grad, (on,), None)
        finally:
            ao_method(guard_exit, switch, NOTHING)
    return before


@cython.final
cdef class user_state:
    """The state that user code expects, called from inside a kernel's guard or a run."""
    cdef object enabled, guard
    cdef Tape tape
    cdef int paused
    cdef bint resumed, grad_mode

    def __enter__(self):
        self.tape = active_tape()
        self.resumed = self.tape is not None and recording() == NULL
        if self.tape is not None and self.tape.guarded:      # what is called here is recorded by the usual ways
            self.guard, self.tape.guard, self.tape.guarded = self.tape.guard, Disabled(), False
        if self.resumed:
            self.paused = set_paused(0)
        self.grad_mode = ao_grad_on(grad_enabled)
        if not mode_innermost():
            self.enabled = Enabled()
            self.enabled.__enter__()
            push(MODE)

    def __exit__(self, *exc):
        if self.enabled is not None:
            pop()
            self.enabled.__exit__(*exc)
        set_grad_mode(self.grad_mode)
        if self.guard is not None:
            self.tape.guard, self.tape.guarded = self.guard, True
        if self.resumed:
            set_paused(self.paused)


@cython.final
cdef class without_modes:
    """Inside, only the classes of tensors are asked about torch functions, and `instead`, if there is one.

    `own`: only this library's mode is out, and the user's are asked as in torch.
    """
    cdef bint own
    cdef object instead
    cdef list popped
    cdef Py_ssize_t inside

    def __init__(self, bint own=False, instead=None):
        self.own, self.instead = own, instead

    def __enter__(self):
        cdef Py_ssize_t i
        self.popped, self.inside = [ao_builtin0(pop) for _ in range(<Py_ssize_t>ao_builtin0(mode_count))], 0
        for i in range(len(self.popped) - 1, -1, -1):
            if self.own and self.popped[i] is not MODE:
                push(self.popped[i])
                self.inside += 1
        if self.instead is not None:
            push(self.instead)
            self.inside += 1

    def __exit__(self, *exc):
        cdef Py_ssize_t i
        for i in range(self.inside):
            pop()
        for i in range(len(self.popped) - 1, -1, -1):
            push(self.popped[i])
