"""Ask about the arguments of a call, and about who sees it first; lend what others may write."""

from numbers import Integral, Number

import torch

from cpython.dict cimport PyDict_Next
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_GET_ITEM

from autograd_opt.abi import torch_private as private
from autograd_opt.abi.ctorch cimport ao_all_off, ao_builtin0, ao_call, ao_is_innermost, ao_knows_functions, ao_use_reads
from autograd_opt.abi.tensor_info import reads_address
from autograd_opt.graph.plain_values cimport deeper, shallower
from autograd_opt.graph.tape cimport active_tape
from autograd_opt.graph.leaf_nodes import unusual

ao_use_reads(reads_address())
cdef object grad_enabled = private.is_grad_enabled
cdef object all_disabled = private.is_torch_function_all_disabled
cdef object stack_size = private.len_torch_function_stack
cdef object stack_at = private.get_function_stack_at
cdef object MODE = None
cdef set plain_kinds = {int, float, bool, complex, str, type(None), type(Ellipsis), torch.Size, torch.dtype, torch.device,
                        torch.layout, torch.memory_format, torch.Generator}
"""Classes of arguments that hold no tensor and have no torch function."""


Uninitialized = torch.nn.parameter.UninitializedTensorMixin


cdef int install_mode(object mode) except -1:
    """Set the torch-function mode of this library."""
    global MODE
    MODE = mode
    return 0


cdef bint is_tensor(object t) except -1:
    cdef object kind = type(t)
    return kind is CustomTensor or kind is Tensor or kind is Parameter or \
        not (t is None or kind is float or kind is int or kind is bool) and isinstance(t, Tensor)


cdef bint holds_tracked(Tape tape, object t) except -1:
    """`tracked` for a tensor that is not plain and requires no grad itself: one kept from inside a transform may hold one."""
    cdef bint holds = private.unwrap_if_dead(t) is not t
    return holds and handle(tape, t).flags & REQUIRES_GRAD != 0 or tape.late and ao_is_view(t) and came_late(tape, t)


cdef bint came_late(Tape tape, object t) except -1:
    """Was the view `t` made before its base came to require grad?  Views of other kinds have no history to find."""
    return (type(t) is Tensor or not unusual(t)) and handle(tape, t).flags & REQUIRES_GRAD != 0


cdef bint foreign_kind(object x) except -1:
    if type(x) is tuple or type(x) is list:
        deeper()
        try:
            for y in x:
                if foreign(y):
                    return True
        finally:
            shallower()
        return False
    if isinstance(x, Tensor):
        return isinstance(x, Uninitialized)
    return type(x) not in plain_kinds and getattr(type(x), "__torch_function__", None) is not None


cdef bint foreigners(tuple args, dict kwargs) except -1:
    for x in args:
        if foreign(x):
            return True
    if kwargs:
        for x in kwargs.values():
            if foreign(x):
                return True
    return False


cdef enum:
    NESTED = 3                           # lists within lists are looked into so far for what torch takes for a number


cdef bint unusual_numbers(tuple args, dict kwargs) except -1:
    """Does a call name numbers of classes that are not Python's own, those of NumPy, say?  torch takes each for a number."""
    cdef Py_ssize_t i
    for i in range(len(args)):
        if holds_unusual(<object>PyTuple_GET_ITEM(args, i), False, NESTED):
            return True
    return kwargs is not None and any_unusual(kwargs, False)


cdef bint any_unusual(dict named, bint tensors) except -1:
    """`holds_unusual` of one of these values."""
    cdef PyObject *key
    cdef PyObject *x
    cdef Py_ssize_t i = 0
    while PyDict_Next(named, &i, &key, &x):
        if holds_unusual(<object>x, tensors, NESTED):
            return True
    return False


cdef inline bint holds_unusual(object x, bint tensors, int levels) except -1:
    """Is `x` a number of another class, or with `tensors` a tensor, or does it hold one?"""
    cdef object kind = type(x)
    return kind is not int and x is not None and kind is not float and kind is not bool \
        and (tensors or kind is not CustomTensor and kind is not Tensor and kind is not Parameter) \
        and unusual_kind(x, kind, tensors, levels)


cdef bint unusual_kind(object x, object kind, bint tensors, int levels) except -1:
    if kind is tuple or kind is list:
        if levels:
            for y in x:
                if holds_unusual(y, tensors, levels - 1):
                    return True
        return False
    return isinstance(x, Tensor) if tensors else kind not in plain_kinds and isinstance(x, Number)


cdef object plain(object x, bint tensors, int levels):
    """`x` with what `holds_unusual` finds as Python's own numbers."""
    cdef object kind = type(x)
    if kind is tuple or kind is list:
        return kind([plain(y, tensors, levels - 1) for y in x]) if levels else x
    if tensors:
        return x.item() if isinstance(x, Tensor) and x.dim() == 0 else x
    if kind in plain_kinds or not isinstance(x, Number):
        return x
    return int(x) if isinstance(x, Integral) else complex(x) if isinstance(x, complex) else float(x)


cdef tuple plain_numbers(tuple args, dict kwargs):
    """The same arguments with each number of another class as Python's own."""
    return plain(args, False, NESTED + 1), \
        None if kwargs is None else {name: plain(x, False, NESTED) for name, x in kwargs.items()}


cpdef dict plain_attributes(dict attrs):
    """The attributes of a call with each tensor of one number as that number, for which torch takes it.

    Raises
    ------
    TypeError : such a tensor requires grad, which would be lost; torch refuses it, too.
    """
    if not any_unusual(attrs, True):
        return attrs
    tape = active_tape()
    for name, x in attrs.items():
        if tape is not None and is_tensor(x) and x.dim() == 0 and tracked(tape, x):
            kind = "Parameter" if type(x) is Parameter else "Tensor"
            raise TypeError(f"argument '{name}' must be Number, not {kind}: a gradient would not reach it; "
                            f"{name}.item() is its value")
    return {name: plain(x, True, NESTED) for name, x in attrs.items()}


cdef bint inside_follows(Tape tape, object x, bint grad) except -1:
    cdef object kind = type(x)
    if kind is tuple or kind is list:
        deeper()
        try:
            for y in x:
                if follows(tape, y, grad):
                    return True
        finally:
            shallower()
        return False
    return not plain_argument(x)


cdef bint plain_argument(object x) except -1:
    """Is this an argument that holds no tensor and has no torch function?"""
    return plain_slice(x) if type(x) is slice else type(x) in plain_kinds


cdef bint none_follows(Tape tape, tuple args, dict kwargs, bint grad) except -1:
    """`follows` of no argument."""
    for x in args:
        if follows(tape, x, grad):
            return False
    if kwargs:
        for x in kwargs.values():
            if follows(tape, x, grad):
                return False
    return True


cdef tuple BOTTOM = (0,)


cdef bint mode_innermost() except -1:
    """Would torch hand a call to the mode of this library first?"""
    cdef Py_ssize_t n
    if ao_knows_functions():
        return ao_is_innermost(<PyObject *>MODE)
    if ao_builtin0(all_disabled) is True:
        return False
    n = ao_builtin0(stack_size)
    return n > 0 and ao_call(stack_at, BOTTOM if n == 1 else (n - 1,), None) is MODE


cdef bint mode_further_inside() except -1:
    cdef Py_ssize_t i, n = ao_builtin0(stack_size)
    if n < 2 or ao_all_off(all_disabled) or mode_innermost():
        return False
    for i in range(n - 1):
        if ao_call(stack_at, (i,), None) is MODE:
            return True
    return False


cdef int lend_held(object x) except -1:
    """`lend` one of this library's tensors, or what holds some."""
    cdef Node node
    if type(x) is CustomTensor:
        node = held_node(x)
        if node is not None:
            node.spare = None
        return 0
    deeper()
    try:
        for y in (<dict>x).values() if type(x) is dict else x:
            lend(y)
    finally:
        shallower()
    return 0


cpdef lent(args, kwargs):
    """These arguments are about to be given to a function that is not in the operator table."""
    cdef Tape tape = active_tape()
    if tape is not None:
        lend_all(tape, args, kwargs)
