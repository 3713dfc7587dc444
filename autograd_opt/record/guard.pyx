"""Switch torch functions off while a tape reads, computes or records, and on again around what is the user's."""

cimport cython

from autograd_opt.abi import torch_private as private
from autograd_opt.abi.ctorch cimport (
    ao_all_off, ao_builtin0, ao_call, ao_grad_on, ao_knows_functions, ao_switch_functions, ao_use_reads,
)
from autograd_opt.abi.function_switch cimport functions_off, functions_on
from autograd_opt.abi.tensor_info import reads_address
from autograd_opt.graph.tape cimport active_tape
from autograd_opt.graph.thread_state cimport recording, set_paused
from autograd_opt.record.arguments cimport MODE, mode_innermost

ao_use_reads(reads_address())
cdef object all_disabled = private.is_torch_function_all_disabled
cdef object Enabled = private.EnableTorchFunction
cdef object push = private.push_on_torch_function_stack
cdef object pop = private.pop_torch_function_stack
cdef object mode_count = private.len_torch_function_stack
cdef object grad_enabled = private.is_grad_enabled
cdef object set_grad = private.set_grad_enabled
cdef enum:
    OUTER = 1                            # a bit of what `enter` returns: no other region of the tape is around this one


cdef size_t enter(Tape tape) except? 1:
    """Switch torch functions off; return what `leave` needs, 0 where they are off already.

    A region inside a region takes part in the outer one, or switches once more where user code has turned torch
    functions on.
    """
    if not tape.guarded:
        tape.guarded = True
        return functions_off() | OUTER
    return 0 if ao_all_off(all_disabled) else functions_off()


cdef int leave(Tape tape, size_t before) except -1:
    """Switch torch functions on again, given what `enter` has returned."""
    if before & OUTER:
        tape.guarded = False
        before ^= OUTER
    return functions_on(before) if before else 0


cdef bint set_grad_mode(bint on) except -1:
    """Switch grad mode by torch's own function, of which no mode is told; return what it was."""
    cdef bint before = ao_grad_on(grad_enabled)
    cdef size_t functions
    if before != on:
        functions = functions_off()
        try:
            ao_call(set_grad, (on,), None)
        finally:
            functions_on(functions)
    return before


@cython.final
cdef class user_state:
    """The state that user code expects, called from inside a kernel's guard or a run."""

    def __enter__(self):
        self.begin()

    def __exit__(self, *exc):
        self.end()

    cdef int begin(self) except -1:
        """Let torch functions be on, and this library's mode the innermost one."""
        self.tape = active_tape()
        self.resumed = self.tape is not None and recording() == NULL
        if self.tape is not None:        # what is called here is recorded by the usual ways
            self.guarded, self.tape.guarded = self.tape.guarded, False
        if self.resumed:
            self.paused = set_paused(0)
        self.grad_mode = ao_grad_on(grad_enabled)
        if ao_knows_functions():
            self.switch = ao_switch_functions(0)
            self.pushed = not mode_innermost()
        elif not mode_innermost():
            self.enabled = Enabled()
            self.enabled.__enter__()
            self.pushed = True
        if self.pushed:
            push(MODE)
        return 0

    cdef int end(self) except -1:
        """Let everything be as before."""
        if self.pushed:
            pop()
        if self.enabled is not None:
            self.enabled.__exit__(None, None, None)
        elif ao_knows_functions():
            ao_switch_functions(self.switch)
        set_grad_mode(self.grad_mode)
        if self.tape is not None:
            self.tape.guarded = self.guarded
        if self.resumed:
            set_paused(self.paused)
        return 0


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
