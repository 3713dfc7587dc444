"""Nodes of torch's own graphs: which tensors they can save and have saved, and which of them comes first."""

from autograd_opt.abi import torch_private as private
from autograd_opt.abi.ctorch cimport ao_get, ao_needs_grad, ao_own, ao_use_reads
from autograd_opt.abi.tensor_info import reads_address

ao_use_reads(reads_address())
cdef object get_grad_fn = ao_own(private.TensorBase.__dict__["grad_fn"])
cdef object saved_fields = private.saved_fields
cdef dict _saving = {}                 # name of a class of nodes -> can they save tensors?


cpdef bint saves(function) except -1:
    """True if torch has saved a tensor in one of its functions; one that was written since cannot be read, and is one."""
    try:
        for name in saved_fields(type(function)):
            if held(getattr(function, name, True)):
                return True
    except RuntimeError:
        return True
    return False


cdef bint held(object value) except -1:
    """Is a saved field a tensor, or has it one in it?"""
    return any([held(v) for v in value]) if isinstance(value, (tuple, list)) else value is not None


cpdef str name_of(last):
    """The name of torch's last node of a call, remembered with whether such a node can save tensors."""
    name = last.name()
    if name not in _saving:
        _saving[name] = name == "CppFunction" or bool(saved_fields(type(last)))
    return name


def saves_values(name):
    """True if a node of torch's of this name, met as the last of a call, can save tensors."""
    return _saving.get(name, True)


def stages(outputs, bint in_turn=True):
    """An order of a call's results in which one that another is computed from comes first; None where none is.

    `in_turn`: one thread has made torch's functions, which are then numbered from below to above.
    """
    cdef dict functions = {}, rank = {}
    cdef list stack, last = []
    cdef set seen = set()
    cdef Py_ssize_t k
    cdef bint within = False, done
    cdef object lowest = 0
    for k, o in enumerate(outputs):
        if ao_needs_grad(o) and ao_get(get_grad_fn, o) is not None:
            functions[ao_get(get_grad_fn, o)] = k
    if len(functions) < 2:
        return None
    if in_turn:
        lowest = min([private.sequence_nr(function) for function in functions])
    for root in functions:
        stack = [(root, False)]
        while stack:
            function, done = stack.pop()
            if done and function in functions:
                last.append(function)
            if done or function in seen or in_turn and private.sequence_nr(function) < lowest:
                continue
            seen.add(function)
            stack.append((function, True))
            for below in <tuple>function.next_functions:
                function = (<tuple>below)[0]
                if function is not None:
                    within = within or function in functions
                    stack.append((function, False))
    if not within:
        return None
    for k, function in enumerate(last):
        rank[function] = k
    return sorted(range(len(outputs)), key=lambda k: rank.get(ao_get(get_grad_fn, outputs[k]), -1))
