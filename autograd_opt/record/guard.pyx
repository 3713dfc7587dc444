"""Switch torch functions off while a tape reads, computes or records."""

from autograd_opt.abi import torch_private as private
from autograd_opt.abi.ctorch cimport ao_builtin0, ao_method, ao_method0
from autograd_opt.graph.tape cimport Tape

cdef object guard_enter = private.DisableTorchFunction.__dict__["__enter__"]
cdef object guard_exit = private.DisableTorchFunction.__dict__["__exit__"]
cdef object all_disabled = private.is_torch_function_all_disabled
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
