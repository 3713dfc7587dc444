"""Nodes of torch's own graphs: which tensors they can save and have saved, and which of them comes first."""

from autograd_opt.abi import torch_private as private
from autograd_opt.abi.ctorch cimport ao_get, ao_is_view, ao_needs_grad, ao_own, ao_use_reads
from autograd_opt.abi.tensor_info import reads_address

ao_use_reads(reads_address())
cdef object get_grad_fn = ao_own(private.TensorBase.__dict__["grad_fn"])
cdef object get_base = ao_own(private.base_property)
cdef object saved_fields = private.saved_fields
cdef object ACCUMULATE = private.functions.AccumulateGrad
cdef dict fields_of = {}               # a class of nodes -> how the operands are read that such a node saves; None: not known
cdef dict every_field = {}             # a class of nodes -> how all is read that such a node saves; None: not known
cdef dict _saving = {}                 # name of a class of nodes -> can they save tensors?


cpdef bint saves(function) except -1:
    """True if torch has saved a tensor in one of its functions; one that was written since cannot be read, and is one."""
    cdef object kind = type(function)
    cdef list fields
    if kind not in every_field:
        names = saved_fields(kind)
        every_field[kind] = [ao_own(getattr(kind, name)) for name in names] \
            if not is_unknown(kind) and all([hasattr(kind, name) for name in names]) else None
    fields = every_field[kind]
    if fields is None:
        return True
    try:
        for field in fields:
            if held(ao_get(field, function)):
                return True
    except RuntimeError:
        return True
    return False


cdef bint is_unknown(kind) except -1:
    """Is this the class that torch shows of nodes written in C++ elsewhere, of which nothing can be read?"""
    return kind.__name__ == "CppFunction"


cpdef bint keeps_nothing(list functions) except -1:
    """Has torch saved no tensor in these functions and those below them, so that a run can follow one that frees the graph?"""
    cdef set seen = set()
    while functions:
        function = functions.pop()
        if function is None or type(function) is ACCUMULATE or function in seen:
            continue
        seen.add(function)
        if saves(function):
            return False
        for below in <tuple>function.next_functions:
            functions.append((<tuple>below)[0])
    return True


cdef bint held(object value) except -1:
    """Is a saved field a tensor, or has it one in it?"""
    return any([held(v) for v in value]) if isinstance(value, (tuple, list)) else value is not None


cdef list operands_of(object function):
    """How the operands are read that a node of torch's saves; None where that cannot be told."""
    cdef object kind = type(function)
    if kind not in fields_of:
        if is_unknown(kind) or not hasattr(function, "next_functions"):
            fields_of[kind] = None
        else:
            fields_of[kind] = [ao_own(getattr(kind, name)) for name in saved_fields(kind) if hasattr(kind, name)
                               and getattr(getattr(function, name), "grad_fn", None) is not function]
    return fields_of[kind]


cdef int note_saved(object value, set saved) except -1:
    """Add the id of a saved tensor, and of the one it is a view of; of each in a list of them."""
    if isinstance(value, (tuple, list)):
        for one in value:
            note_saved(one, saved)
    elif value is not None:
        saved.add(id(value))
        if ao_is_view(value):
            saved.add(id(ao_get(get_base, value)))
    return 0


cdef set saved_operands(list functions):
    """The ids of the tensors that these nodes and those below them have saved; None where that cannot be told."""
    cdef set seen = set(), saved = set()
    cdef list fields
    while functions:
        function = functions.pop()
        if function in seen:
            continue
        seen.add(function)
        try:
            fields = operands_of(function)
            if fields is None:
                return None
            for field in fields:
                note_saved(ao_get(field, function), saved)
        except RuntimeError:             # written since
            return None
        for below in <tuple>function.next_functions:
            function = (<tuple>below)[0]
            if function is not None and type(function) is not ACCUMULATE:
                functions.append(function)
    return saved


cpdef str name_of(last):
    """The name of torch's last node of a call, remembered with whether such a node can save tensors."""
    name = last.name()
    if name not in _saving:
        _saving[name] = is_unknown(type(last)) or bool(saved_fields(type(last)))
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
