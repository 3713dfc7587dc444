"""Record what autocast makes of an operator of the table: casts of its operands, then the operator itself.

Torch casts in a kernel that is registered for the operator and the device, and keeps the casts of float32
leaves until the outermost autocast of any thread ends, so that a weight used twice is cast once and its
cotangents are added in the lower precision.  Here the cast is a node of its own, kept just as long.  What the
table cannot say so is taken whole, as one call that torch differentiates (`torch_fallback.py`).
"""

import functools
from weakref import ref as weakref

import torch

from cpython.object cimport PyObject

from autograd_opt.abi import torch_private as private
from autograd_opt.abi.ctorch cimport ao_casts, ao_dtype, ao_grad_on, ao_strided, ao_use_reads
from autograd_opt.abi.tensor_info import reads_address
from autograd_opt.graph.node cimport Op, ordinary
from autograd_opt.graph.plain_values cimport is_float
from autograd_opt.graph.tape cimport Tape, recording
from autograd_opt.record.nested_values cimport tensors_of

ao_use_reads(reads_address())
cdef object Tensor = torch.Tensor
cdef object grad_enabled = private.is_grad_enabled
cdef object any_autocast = private.is_any_autocast_enabled
cdef object torch_function = None        # the route of a call, which records a cast; set by `install_casts`
cdef object autocast_on = torch.is_autocast_enabled
cdef object autocast_dtype = torch.get_autocast_dtype
cdef object cast_cache_on = torch.is_autocast_cache_enabled
cdef object has_kernel = private.dispatch_has_kernel_for_dispatch_key
cdef object FLOAT32 = torch.float32
cdef object FLOAT64 = torch.float64
cdef object autocast_keys = {"cpu": "AutocastCPU", "cuda": "AutocastCUDA", "xpu": "AutocastXPU", "mps": "AutocastMPS"}
cdef object to_method = Tensor.to

cdef set LOWERED = set("matmul mm bmm linear addmm baddbmm addbmm conv1d conv2d conv3d conv_transpose1d conv_transpose2d \
conv_transpose3d".split())
"""Operators whose registered kernel casts every operand to the lower precision."""

cdef set LOWERED_WHOLE = set("prelu linalg_vecdot linalg_multi_dot chain_matmul scaled_dot_product_attention".split())
"""The same of torch's names; what follows the casts is taken whole."""

cdef set REFUSED = {"binary_cross_entropy"}
"""Registered on some devices in order to raise."""

cdef set COMPOSED = set("selu relu6 softmax log_softmax square positive where conj conj_physical resolve_conj resolve_neg real imag \
reshape flatten ravel unflatten view_as reshape_as mT mH movedim broadcast_to expand_as narrow linalg_diagonal fliplr flipud tile \
split chunk tensor_split hsplit vsplit dsplit contiguous dropout sum_to_size isfinite".split())
"""Made of other operators, none of which autocast casts where it does not cast the whole."""

cdef dict SPELLED = {"T": "numpy_T", "H": "matrix_H", "cast": "to", "to_float": "to", "to_double": "to", "to_half": "to",
                     "to_bfloat16": "to", "max_all": "max", "min_all": "min", "max_dim": "max", "min_dim": "min",
                     "div_rounded": "div"}
"""Names of the table that torch spells otherwise; each is one operator of torch's, or views."""


@functools.cache
def registered(str name, str key):
    """Is there a kernel for this dispatch key and any overload of this operator of torch's?"""
    packet = getattr(torch.ops.aten, name)
    for overload in packet.overloads():
        try:
            if has_kernel(f"aten::{name}" if overload == "default" else f"aten::{name}.{overload}", key):
                return True
        except RuntimeError:
            continue                         # an overload of Python scalars
    return False


@functools.cache
def autocast_policy(str name, str device):
    """What autocast on `device` does to the operator `name` of the table.

    "whole": torch casts and differentiates the call; "untouched": there is no kernel of autocast's; "lower": every operand
    is cast to the lower precision; "single": casts do nothing where every operand is float32, or float64.
    """
    spelled = SPELLED.get(name, name)
    key = autocast_keys.get(device)
    if key is None or getattr(torch.ops.aten, spelled, None) is None or name in REFUSED:
        return "whole"
    if registered(spelled, key):
        return "lower" if name in LOWERED else "single"
    if name in SPELLED or name in COMPOSED or not registered(spelled, "CompositeImplicitAutograd"):
        return "untouched"
    return "whole"


cdef object lowered(Op op, tuple args, dict kwargs):
    """The arguments with which autocast runs this call, as a pair; None where the call is to be taken whole."""
    cdef PyObject *tp = recording()
    cdef Tape tape
    cdef object device = None, dtype, policy
    if tp == NULL or not (<Tape>tp).plain:
        return None                          # hooks see what torch saves for the whole call
    tape = <Tape>tp
    tensors = tensors_of(args, kwargs)
    for t in tensors:
        if device is None:
            device = t.device.type
        if t.device.type != device or not ordinary(t) or not ao_strided(t):
            return None
    if device is None or not autocast_on(device):
        return None
    if kwargs and kwargs.get("out") is not None:
        return None
    policy = autocast_policy(op.name, device)
    if policy == "untouched":
        return args, kwargs
    if policy == "single":
        for t in tensors:
            dtype = ao_dtype(t)
            if is_float(dtype) and dtype is not FLOAT32 and dtype is not FLOAT64:
                return None
        return args, kwargs
    return lower_all(tape, args, kwargs, device) if policy == "lower" else None


def lowered_whole(str name, tuple args, dict kwargs):
    """The arguments with which autocast runs a call that is about to be taken whole."""
    cdef PyObject *tp = recording()
    cdef set devices
    if name not in LOWERED_WHOLE or tp == NULL or not ao_casts(any_autocast):
        return args, kwargs
    devices = {t.device.type for t in tensors_of(args, kwargs)}
    if len(devices) == 1:
        device = devices.pop()
        if autocast_on(device) and device in autocast_keys and registered(name, autocast_keys[device]):
            return lower_all(<Tape>tp, args, kwargs, device)
    return args, kwargs


cdef object lower_all(Tape tape, tuple args, dict kwargs, str device):
    """The arguments of a call in the lower precision."""
    cdef object dtype = autocast_dtype(device)
    args = tuple([lower(tape, t, dtype, device) for t in args])
    return args, {k: lower(tape, t, dtype, device) for k, t in kwargs.items()} if kwargs else kwargs


cdef object lower(Tape tape, object t, object dtype, str device):
    """An operand in the lower precision; the casts of float32 leaves are made once."""
    cdef object have, key, entry, r
    if type(t) is list or type(t) is tuple:
        return [lower(tape, x, dtype, device) for x in t]
    if not isinstance(t, Tensor):
        return t
    have = ao_dtype(t)
    if have is dtype or have is FLOAT64 or not is_float(have):
        return t
    if have is not FLOAT32 or not t.requires_grad or not t.is_leaf or t._is_view() or not cast_cache_on() \
            or torch.is_inference_mode_enabled():
        return torch_function(None, to_method, (), (t, dtype), {})
    if tape.cast_seal is None or tape.cast_seal() is None:
        tape.casts, tape.cast_seal = {}, seal_of_casts(device)
    key = id(t), ao_grad_on(grad_enabled)
    entry = tape.casts.get(key)
    if entry is not None and entry[0] is t and entry[1].dtype is dtype:
        return entry[1]
    r = torch_function(None, to_method, (), (t, dtype), {})
    tape.casts[key] = t, r
    return r


cdef dict _probes = {}


cdef object seal_of_casts(str device):
    """A weak reference to a cast in torch's own cache: it dies when that is cleared."""
    from autograd_opt.graph.thread_state import torch_autograd
    with torch_autograd():
        probe = _probes.get(device)
        if probe is None:
            probe = _probes[device] = torch.ones(1, 1, dtype=torch.float32, device=device, requires_grad=True)
        return weakref(torch.mm(probe, probe).grad_fn._saved_self)


cdef int install_casts(object route) except -1:
    """Set the function that sends a call on its route."""
    global torch_function
    torch_function = route
    return 0
