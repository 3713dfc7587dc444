"""Calls that are decomposed: torch says which of them it takes, once for each signature.

A decomposition computes what a function of torch's does by other calls, which take arguments that the function refuses.
So before the first call of a signature (shapes, dtypes, values of other arguments) torch's function is called on tensors
without memory, and where that is refused on the tensors themselves, whose error is raised.
"""

import torch

from autograd_opt.abi import torch_private as private
from autograd_opt.abi.ctorch cimport ao_builtin0, ao_dtype, ao_plain, ao_strided, ao_use_reads
from autograd_opt.abi.tensor_info import reads_address
from autograd_opt.graph.node cimport ordinary, shape_of
from autograd_opt.graph.references import requires_grad
from autograd_opt.record.arguments cimport is_tensor
from autograd_opt.record.nested_values import mapped
from autograd_opt.record.unrecorded cimport detached, run_raw

ao_use_reads(reads_address())
cdef object dispatch_modes = private.len_torch_dispatch_stack
cdef enum:
    MOST = 4096                          # signatures that are remembered
cdef set taken = set()                   # those of calls that torch takes
cdef set values = {complex, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format}


cdef bint sign(list found, object x) except -1:
    """Note what of an argument decides whether torch takes it; False for one that it cannot be told of."""
    cdef object kind = type(x)
    if kind is float or kind is int or kind is bool:
        found.append(kind)               # 1, 1.0 and True are equal
        found.append(x)
        return True
    if is_tensor(x):
        if not ordinary(x) or not (ao_plain(x) or ao_strided(x) and not private.is_functorch_wrapped_tensor(x)):
            return False
        found.append(shape_of(x))
        found.append(ao_dtype(x))
        if shape_of(x) == ():
            found.append(requires_grad(x))       # then it is no number
        return True
    found.append(kind)
    if kind is list or kind is tuple:
        found.append(len(x))
        for y in x:
            if not sign(found, y):
                return False
        return True
    found.append(x)
    return kind in values


def without_memory(t):
    """A tensor that only its shape, strides and dtype are known of."""
    with private.DisableTorchFunction():
        made = torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="meta")
        return made.requires_grad_() if not t.dim() and requires_grad(t) else made


def apart(t):
    """The tensor, which no history follows."""
    with private.DisableTorchFunction():
        return detached(t).requires_grad_(not t.dim() and requires_grad(t))


cdef int call(object func, tuple args, dict kwargs, stand_in) except -1:
    """Call torch's function with `stand_in(t)` in the place of each tensor."""
    with torch.no_grad():
        run_raw(func, mapped(stand_in, args), mapped(stand_in, kwargs))
    return 0


cdef int own_words(object func, tuple args, dict kwargs) except -1:
    """Raise what torch's function raises, if it does: the body of its decomposition has failed."""
    call(func, args, kwargs, apart)
    return 0


cdef int judge(object func, tuple args, dict kwargs) except -1:
    """Raise torch's error for arguments that its function does not take."""
    cdef list found = [func]
    cdef object signature
    if ao_builtin0(dispatch_modes) != 0:
        return 0                         # a mode would see a call that the program does not make
    for x in args:
        if not sign(found, x):
            return 0
    for name, x in kwargs.items():
        found.append(name)
        if not sign(found, x):
            return 0
    signature = tuple(found)
    if signature in taken:
        return 0
    try:
        call(func, args, kwargs, without_memory)
    except Exception:                    # or there is no kernel for tensors without memory
        call(func, args, kwargs, apart)
    if len(taken) >= MOST:
        taken.clear()
    taken.add(signature)
    return 0
