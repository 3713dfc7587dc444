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
from autograd_opt.abi.ctorch cimport ao_casts, ao_dtype, ao_grad_on, ao_is_view, ao_needs_grad, ao_on_cpu, ao_strided, ao_use_reads
from autograd_opt.abi.tensor_info import reads_address
from autograd_opt.graph.node cimport ordinary
from autograd_opt.graph.plain_values cimport is_float
from autograd_opt.graph.tape cimport Tape
from autograd_opt.graph.thread_state cimport recording
from autograd_opt.record.arguments cimport computed
from autograd_opt.record.nested_values cimport tensors_of

ao_use_reads(reads_address())
cdef object Tensor = torch.Tensor
cdef object grad_enabled = private.is_grad_enabled
cdef object any_autocast = private.is_any_autocast_enabled
cdef object mode = None                  # what records a cast as a call of the user's; set by `install_casts`
cdef object autocast_on = torch.is_autocast_enabled
cdef object autocast_dtype = torch.get_autocast_dtype
cdef object cast_cache_on = torch.is_autocast_cache_enabled
cdef object has_kernel = private.dispatch_has_kernel_for_dispatch_key
cdef object set_autocast = torch.set_autocast_enabled
cdef object DType = torch.dtype
cdef object FLOAT32 = torch.float32
cdef object FLOAT64 = torch.float64
cdef object autocast_keys = {"cpu": "AutocastCPU", "cuda": "AutocastCUDA", "xpu": "AutocastXPU", "mps": "AutocastMPS"}
cdef dict methods = {torch.float32: Tensor.float, torch.bfloat16: Tensor.bfloat16, torch.float16: Tensor.half}
cdef object to_method = Tensor.to

cdef set LOWERED = set("matmul mm bmm mv linear addmm addmv addr baddbmm addbmm conv1d conv2d conv3d conv_transpose1d \
conv_transpose2d conv_transpose3d scaled_dot_product_attention prelu einsum linalg_vecdot linalg_multi_dot chain_matmul \
lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell".split())
"""Operators whose registered kernel casts every operand to the lower precision (ATen/autocast_mode.h)."""

cdef set WIDEST = set("addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put index_copy scatter_add tensordot \
cat stack".split())
"""Operators whose registered kernel casts every operand to the widest type among them (same place)."""

cdef set LOWERED_WHOLE = set("prelu linalg_vecdot linalg_multi_dot chain_matmul scaled_dot_product_attention".split())
"""Names of torch's for which the casts are recorded; what follows them may be taken whole."""

cdef set REFUSED = {"binary_cross_entropy"}
"""Registered on all devices but the CPU, in order to raise."""

cdef set COMPOSED = set("selu relu6 softmax log_softmax square positive where conj conj_physical resolve_conj resolve_neg real imag \
reshape flatten ravel unflatten view_as reshape_as mT mH movedim broadcast_to expand_as narrow linalg_diagonal fliplr flipud tile \
split chunk tensor_split hsplit vsplit dsplit contiguous dropout sum_to_size isfinite var std var_mean std_mean".split())
"""Made of other operators, none of which autocast casts where it does not cast the whole."""

cdef dict PIECES = {
    "max_pool1d": "max_pool2d_with_indices", "max_pool2d": "max_pool2d_with_indices", "avg_pool1d": "avg_pool2d",
    "adaptive_avg_pool1d": "_adaptive_avg_pool2d mean", "adaptive_avg_pool2d": "_adaptive_avg_pool2d mean",
    "adaptive_avg_pool3d": "_adaptive_avg_pool3d mean",
    "layer_norm": "native_layer_norm", "group_norm": "native_group_norm", "instance_norm": "native_batch_norm",
    "batch_norm": "native_batch_norm", "batch_norm_train": "native_batch_norm", "batch_norm_eval": "native_batch_norm",
    "cross_entropy_loss": "log_softmax nll_loss nll_loss2d", "nll_loss_nd": "nll_loss nll_loss2d",
    "hstack": "cat", "vstack": "cat", "dstack": "cat", "row_stack": "cat", "column_stack": "cat",
    "take_along_dim": "gather", "repeat_interleave": "index_select", "outer": "mul", "float_power": "pow",
}
"""Where autocast has no kernel for a composed operator: what torch makes of it, and autocast may cast instead."""

cdef dict SPELLED = {"T": "numpy_T", "H": "matrix_H", "cast": "to", "to_float": "to", "to_double": "to", "to_half": "to",
                     "to_bfloat16": "to", "max_all": "max", "min_all": "min", "max_dim": "max", "min_dim": "min",
                     "div_rounded": "div", "median_all": "median", "median_dim": "median", "nanmedian_all": "nanmedian",
                     "nanmedian_dim": "nanmedian", "where_method": "where", "log_sigmoid": "log_sigmoid_forward",
                     "vector_norm": "linalg_vector_norm", "unsafe_view": "_unsafe_view",
                     "batch_norm_train": "batch_norm", "batch_norm_eval": "batch_norm",
                     "attention": "scaled_dot_product_attention", "attention_dropout": "scaled_dot_product_attention",
                     "flash_attention": "scaled_dot_product_attention"}
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


cdef dict _spared = {}                   # operator -> is it untouched on every device?


cdef bint spared(str name) except -1:
    """True if autocast leaves the operator as it is on every device."""
    found = _spared.get(name)
    if found is None:
        found = _spared[name] = all([autocast_policy(name, device) == "untouched" for device in autocast_keys])
    return found


@functools.cache
def autocast_policy(str name, str device):
    """What autocast on `device` does to the operator `name` of the table, or to torch's function of that name.

    "whole": torch casts and differentiates the call; "untouched": there is no kernel of autocast's; "lower": every operand
    is cast to the lower precision; "single": to float32, where it is no float64; "widest": to the widest type among them.
    """
    cdef set found
    spelled = SPELLED.get(name, name)
    key = autocast_keys.get(device)
    if key is None or name in REFUSED and device != "cpu":
        return "whole"
    known = getattr(torch.ops.aten, spelled, None) is not None
    if known and registered(spelled, key):
        return "lower" if spelled in LOWERED else "widest" if spelled in WIDEST else "single"
    if name in PIECES:
        found = {autocast_policy(piece, device) for piece in (<str>PIECES[name]).split()}
        return found.pop() if len(found) == 1 else "whole"
    if known and (name in SPELLED or name in COMPOSED or not registered(spelled, "CompositeImplicitAutograd")):
        return "untouched"
    return "whole"


cdef object device_of(list tensors):
    """The type of the device of strided, ordinary tensors, where they have one in common."""
    cdef object device = None
    cdef object at
    for t in tensors:
        at = "cpu" if ao_on_cpu(t) else t.device.type
        if device is None:
            device = at
        elif at != device:
            return None
        if not ordinary(t) or not ao_strided(t):
            return None
    return device


cdef object lowered(str name, tuple args, dict kwargs):
    """The arguments with which autocast runs this call, as a pair; None where the call is to be taken whole."""
    cdef PyObject *tp = recording()
    cdef object device, policy
    cdef set kinds
    if spared(name) and not (kwargs and kwargs.get("out") is not None):
        return args, kwargs
    if tp == NULL or kwargs and kwargs.get("out") is not None:
        return None
    tensors = tensors_of(args, kwargs)
    device = device_of(tensors)
    if device is None:
        return None
    policy = autocast_policy(name, device) if autocast_on(device) else "untouched"
    if policy == "untouched":
        return args, kwargs
    if policy == "lower":
        return cast_all(<Tape>tp, args, kwargs, autocast_dtype(device), device)
    if policy == "whole":
        return None
    kinds = {ao_dtype(t) for t in tensors if is_float(ao_dtype(t)) and ao_dtype(t) is not FLOAT64}
    if not kinds or kinds == {FLOAT32} or policy == "widest" and kinds == {autocast_dtype(device)}:
        return args, kwargs
    if not kinds <= {FLOAT32, autocast_dtype(device)}:
        return None
    for x in (*args, *kwargs.values()):
        if type(x) is DType:
            return None                      # which some kernels heed, and some do not
    return cast_all(<Tape>tp, args, kwargs, FLOAT32, device)


cdef class autocast_off:
    """Autocast switched off on the device of a call whose operands have been cast."""

    cdef bint leave_on(self, tuple args, dict kwargs) except -1:
        """Switch it off; True where it is not on for this device."""
        self.device = device_of(tensors_of(args, kwargs))
        if self.device is None or not autocast_on(self.device):
            return True
        set_autocast(self.device, False)
        return False

    cdef int back(self) except -1:
        set_autocast(self.device, True)
        return 0


cdef tuple with_casts(object func, tuple args, dict kwargs):
    """The arguments with which autocast runs a call that is about to be taken whole, where the casts are recorded."""
    cdef PyObject *tp = recording()
    cdef object device, name = getattr(func, "__name__", None)
    if name in LOWERED_WHOLE and tp != NULL and ao_grad_on(grad_enabled):
        device = device_of(tensors_of(args, kwargs))
        if device is not None and autocast_on(device) and autocast_policy(name, device) == "lower":
            return cast_all(<Tape>tp, args, kwargs, autocast_dtype(device), device)
    return args, kwargs


cdef object cast_all(Tape tape, tuple args, dict kwargs, object dtype, str device):
    """The arguments of a call in another precision."""
    args = tuple([cast(tape, t, dtype, device) for t in args])
    return args, {k: cast(tape, t, dtype, device) for k, t in kwargs.items()} if kwargs else kwargs


cdef object to(object t, object dtype):
    """Record a cast."""
    cdef object method = methods.get(dtype)
    if method is None:
        return mode(to_method, (), (t, dtype), {})
    return mode(method, (), (t,), {})


cdef object cast(Tape tape, object t, object dtype, str device):
    """An operand in another precision; the casts of float32 leaves to the lower one are made once."""
    cdef object have, key, entry, r
    if type(t) is list or type(t) is tuple:
        return [cast(tape, x, dtype, device) for x in t]
    if not isinstance(t, Tensor):
        return t
    have = ao_dtype(t)
    if have is dtype or have is FLOAT64 or not is_float(have):
        return t
    if have is not FLOAT32 or computed(t) is not None or not ao_needs_grad(t) or not t.is_leaf or ao_is_view(t) or not cast_cache_on() \
            or torch.is_inference_mode_enabled():
        return to(t, dtype)
    if tape.cast_seal is None or tape.cast_seal() is None:
        tape.casts, tape.cast_seal = {}, seal_of_casts(device)
    key = id(t), ao_grad_on(grad_enabled)
    entry = tape.casts.get(key)
    if entry is not None and entry[0] is t and entry[1].dtype is dtype:
        return entry[1]
    r = to(t, dtype)
    tape.casts[key] = t, r
    return r


cdef dict _probes = {}


cdef object seal_of_casts(str device):
    """A weak reference to a cast in torch's own cache: it dies when that is cleared.  No hook of the user's sees it."""
    from autograd_opt.graph.thread_state import torch_autograd
    cdef list hooks = []
    pair = private.top_saved_tensors_default_hooks(True)
    while pair is not None:
        hooks.append(pair)
        private.pop_saved_tensors_default_hooks()
        pair = private.top_saved_tensors_default_hooks(True)
    try:
        with torch_autograd():
            probe = _probes.get(device)
            if probe is None:
                probe = _probes[device] = torch.ones(1, 1, dtype=torch.float32, device=device, requires_grad=True)
            return weakref(private.saved_self(torch.mm(probe, probe).grad_fn))
    finally:
        for pair in reversed(hooks):
            private.push_saved_tensors_default_hooks(*pair)


cdef int install_casts(object recorder) except -1:
    """Set the mode that sends a call on its route."""
    global mode
    mode = recorder
    return 0
