"""Private names of torch's Python interface, each looked up here and nowhere else.

A name keeps torch's spelling without a leading underscore.  Operators that rows of the table in `ops/` name are not
here: a row is the one place that says which function it is.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable
from typing import Any

import torch
from torch._functorch import apis, eager_transforms, pyfunctorch
from torch._functorch import vmap as vmap_module
from torch.autograd import forward_ad
from torch.nn.modules import module as modules
from torch.nn.parallel import DistributedDataParallel
from torch.utils import _device, _python_dispatch, _pytree, checkpoint

from autograd_opt._common.environment import parsed

VERSION = parsed(torch.__version__)
"""Major and minor number of the installed torch: a rule that follows its version says since when it holds."""

C: Any = torch._C

# Classes and namespaces. ----------------------------------------------------------------
TensorBase: Any = C.TensorBase
FunctionBase: Any = C._FunctionBase
ScriptFunction: Any = C.ScriptFunction
ScriptMethod: Any = C.ScriptMethod
ScriptModule: Any = C.ScriptModule
CreationMeta: Any = C._autograd.CreationMeta
DispatchKey: Any = C.DispatchKey
set_excluded: Any = C._SetExcludeDispatchKeyGuard
OpOverload = torch._ops.OpOverload
OpOverloadPacket = torch._ops.OpOverloadPacket
TorchBindOpOverload = torch._ops.TorchBindOpOverload
SingleLevelFunction: Any = torch.autograd.function._SingleLevelFunction
Engine: Any = C._ImperativeEngine
VariableFunctions: Any = C._VariableFunctions
functions: Any = C._functions
make_grads: Any = torch.autograd._make_grads
nn: Any = C._nn
functorch: Any = C._functorch
tensor_module: Any = torch._tensor
jit_trace: Any = torch.jit._trace
FUNCTION_NAMESPACES = (VariableFunctions, nn, C._linalg, C._fft, C._special)
"""Where torch's compiled functions that take tensors stand."""
PRINT_OPTS: Any = torch._tensor_str.PRINT_OPTS

# What one thread has switched on. -------------------------------------------------------
DisableTorchFunction: Any = C.DisableTorchFunction
EnableTorchFunction: Any = C._EnableTorchFunction
DisableTorchDispatch: Any = C._DisableTorchDispatch
AutoDispatchBelowAutograd: Any = C._AutoDispatchBelowAutograd
dispatch_tls_is_dispatch_key_excluded: Any = C._dispatch_tls_is_dispatch_key_excluded
dispatch_tls_set_dispatch_key_excluded: Any = C._dispatch_tls_set_dispatch_key_excluded
disabled_torch_function_impl: Any = C._disabled_torch_function_impl
is_torch_function_all_disabled: Callable[[], bool] = C._is_torch_function_all_disabled
is_torch_function_enabled: Callable[[], bool] = C._is_torch_function_enabled
is_any_autocast_enabled: Callable[[], bool] = C._is_any_autocast_enabled
is_anomaly_enabled: Callable[[], bool] = C.is_anomaly_enabled
is_grad_enabled: Callable[[], bool] = C.is_grad_enabled
is_inference_mode_enabled: Callable[[], bool] = C.is_inference_mode_enabled
set_grad_enabled: Callable[[bool], None] = C._set_grad_enabled
dispatch_has_kernel_for_dispatch_key: Callable[[str, str], bool] = C._dispatch_has_kernel_for_dispatch_key
get_tracing_state: Callable[[], Any] = C._get_tracing_state

# Stacks of modes and hooks. -------------------------------------------------------------
TorchDispatchMode = _python_dispatch.TorchDispatchMode
disable_current_modes: Callable[[], Any] = _python_dispatch._disable_current_modes
len_torch_function_stack: Callable[[], int] = C._len_torch_function_stack
get_function_stack_at: Callable[[int], Any] = C._get_function_stack_at
push_on_torch_function_stack: Callable[[Any], None] = C._push_on_torch_function_stack
pop_torch_function_stack: Callable[[], Any] = C._pop_torch_function_stack
len_torch_dispatch_stack: Callable[[], int] = C._len_torch_dispatch_stack
get_dispatch_stack_at: Callable[[int], Any] = C._get_dispatch_stack_at
push_mode: Callable[[Any], None] = _python_dispatch._push_mode
pop_mode: Callable[..., Any] = _python_dispatch._pop_mode
top_saved_tensors_default_hooks: Callable[[bool], Any] = C._autograd._top_saved_tensors_default_hooks
push_saved_tensors_default_hooks: Callable[[Any, Any], None] = C._autograd._push_saved_tensors_default_hooks
pop_saved_tensors_default_hooks: Callable[[], None] = C._autograd._pop_saved_tensors_default_hooks
INCOMPLETE = (torch.nn.functional.l1_loss,)
"""Functions that hand a mode not all of their arguments."""
DeviceContext: Any = _device.DeviceContext
device_constructors: Callable[[], Any] = _device._device_constructors

# Modules. -------------------------------------------------------------------------------
module_call: Any = torch.nn.Module._call_impl
MODULE_CALLS = ("_call_impl", "_wrapped_call_impl", "_compiled_call_impl")
"""Attributes of a module by which it may be called otherwise than its class says."""
MODULE_HOOKS = ("_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_pre_hooks")
GLOBAL_MODULE_HOOKS = ("_global_backward_pre_hooks", "_global_backward_hooks", "_global_forward_hooks",
                       "_global_forward_pre_hooks")
MODULE_PARAMETERS, MODULE_CHILDREN = "_parameters", "_modules"
TRACED_MODULES = "_trace_module_map"
"""The variable of `jit_trace` that is not None while a module is traced."""


call_of: Callable[[Any], Any] = operator.attrgetter("_call_impl")


def has_compiled_call(kind: type[torch.nn.Module]) -> bool:
    """True if `torch.nn.Module.compile` was called for the class."""
    return kind._compiled_call_impl is not None


def has_global_module_hooks() -> bool:
    """True if a hook is called for the forward or backward of every module."""
    return bool(
        modules._global_forward_hooks
        or modules._global_forward_pre_hooks
        or modules._global_backward_hooks
        or modules._global_backward_pre_hooks
    )


def reduces_in_python(module: DistributedDataParallel) -> bool:
    """True if the module's gradients are averaged by hooks of Python's."""
    return bool(module._use_python_reducer)


# Transforms. ----------------------------------------------------------------------------
transforms: Any = eager_transforms


FORWARD_LEVEL = "_current_level"
"""The variable of `torch.autograd.forward_ad` that says the level of forward-mode differentiation; -1 outside."""


def forward_level() -> int:
    """The level of forward-mode differentiation; -1 outside."""
    return forward_ad._current_level


vmap: Any = apis.vmap
VmapInterpreter: Any = pyfunctorch.VmapInterpreter
retrieve_all_functorch_interpreters: Any = pyfunctorch.retrieve_all_functorch_interpreters
temporarily_clear_interpreter_stack: Any = pyfunctorch.temporarily_clear_interpreter_stack
temporarily_pop_interpreter_stack: Any = pyfunctorch.temporarily_pop_interpreter_stack
transforms_active: Callable[[], bool] = C._are_functorch_transforms_active
"""Does a transform of torch.func run?  Others that tell give the thread a state that torch's engine then copies."""
is_functorch_wrapped_tensor: Callable[[Any], bool] = functorch.is_functorch_wrapped_tensor
is_batchedtensor: Callable[[Any], bool] = functorch.is_batchedtensor
get_unwrapped: Callable[[Any], Any] = functorch.get_unwrapped
unwrap_if_dead: Callable[[Any], Any] = functorch.unwrap_if_dead
vmap_increment_nesting: Callable[[int, str], int] = functorch._vmap_increment_nesting
vmap_decrement_nesting: Callable[[], int] = functorch._vmap_decrement_nesting
set_vmap_fallback_warning_enabled: Callable[[bool], None] = functorch._set_vmap_fallback_warning_enabled
add_batch_dim: Callable[[Any, int, int], Any] = functorch._add_batch_dim
remove_batch_dim: Callable[[Any, int, int, int], Any] = functorch._remove_batch_dim
legacy_add_batch_dim: Callable[[Any, int, int], Any] = torch._add_batch_dim
legacy_remove_batch_dim: Callable[[Any, int, int, int], Any] = torch._remove_batch_dim
vmapmode_increment_nesting: Callable[[], int] = C._vmapmode_increment_nesting
vmapmode_decrement_nesting: Callable[[], int] = C._vmapmode_decrement_nesting

# torch's engine. ------------------------------------------------------------------------
set_version_counter: Callable[[Any, Any], None] = C._autograd._unsafe_set_version_counter
get_creation_meta: Callable[[Any], Any] = C._autograd._get_creation_meta
sequence_nr: Callable[[Any], int] = operator.methodcaller("_sequence_nr")
input_metadata: Callable[[Any], Any] = operator.attrgetter("_input_metadata")
saved_self: Callable[[Any], Any] = operator.attrgetter("_saved_self")
NON_DIFFERENTIABLE_GRADS = "_materialize_non_diff_grads"
"""The attribute of a Function's `ctx` that says whether cotangents of non-differentiable outputs become zeros."""
get_sequence_nr: Callable[[], int] = C._autograd._get_sequence_nr
current_graph_task_id: Callable[[], int] = C._current_graph_task_id
get_current_graph_task_keep_graph: Callable[[], bool] = C._autograd._get_current_graph_task_keep_graph


function_or_accumulator: Callable[[Any], Any] = torch.autograd.graph._get_grad_fn_or_grad_acc


def has_metadata(node: Any) -> bool:
    """True if a node of torch's says what its cotangents are like: `input_metadata`."""
    return hasattr(node, "_input_metadata")


_saved_fields: dict[Any, tuple[str, ...]] = {}


def saved_fields(kind: Any) -> tuple[str, ...]:
    """The names of the tensors that torch's nodes of this class can save."""
    found = _saved_fields.get(kind)
    if found is None:
        prefix = "_raw_saved_"
        names = ["_saved_" + name.removeprefix(prefix) for name in dir(kind) if name.startswith(prefix)]
        found = _saved_fields[kind] = tuple(names)
    return found


def execution_engine() -> Any:
    """The object that torch's Python code asks to run backward."""
    return torch.autograd.Variable._execution_engine


run_torch_engine: Callable[..., tuple[Any, ...]] = torch.autograd.Variable._execution_engine.run_backward
"""torch's own engine, whose arguments nobody checks: edges or tensors, cotangents that fit them, and inputs."""


def set_execution_engine(engine: Any) -> None:
    """Let torch's Python code ask another object."""
    torch.autograd.Variable._execution_engine = engine


def replace_function_or_accumulator(function: Callable[[Any], Any]) -> None:
    """Let `torch.autograd.graph` find the nodes of tensors by another function."""
    torch.autograd.graph._get_grad_fn_or_grad_acc = function  # type: ignore[assignment]


def current_autograd_node() -> Any:
    """The node that a backward run of this thread is at, this library's runs included; None outside."""
    return C._current_autograd_node()


def will_engine_execute_node(node: Any) -> bool:
    """True if the backward run of this thread, this library's runs included, comes to the node."""
    return bool(C._will_engine_execute_node(node))


ENTRY_POINTS: dict[str, tuple[Any, str]] = {
    "current_graph_task_id": (C, "_current_graph_task_id"),
    "will_engine_execute_node": (C, "_will_engine_execute_node"),
    "current_autograd_node": (C, "_current_autograd_node"),
    "execution_order": (C, "_current_graph_task_execution_order"),
    "vmap": (vmap_module, "_flat_vmap"),
    "vjp": (eager_transforms, "_vjp_with_argnums"),
    "jvp": (eager_transforms, "_jvp_with_argnums"),
    "forward_jacobian": (torch.autograd.functional, "_jacfwd"),
    "checkpointed_tensor": (checkpoint, "_make_saved_tensor"),
    "data_parallel_forward": (DistributedDataParallel, "_pre_forward"),
    "trace_function": (C, "_create_function_from_trace"),
    "trace_function_with_names": (C, "_create_function_from_trace_with_dict"),
    "trace_graph": (C, "_create_graph_by_tracing"),
    "trace_method": (ScriptModule, "_create_method_from_trace"),
    "trace_method_with_names": (ScriptModule, "_create_method_from_trace_with_dict"),
}
"""Functions of torch's that its own Python code calls, in whose places others may be put -> where each stands."""


def entry_point(name: str) -> Any:
    """The function that stands in the place now."""
    return getattr(*ENTRY_POINTS[name])


def replace(name: str, function: Any) -> Any:
    """Put a function in the place; returns the one that was there."""
    before = entry_point(name)
    setattr(*ENTRY_POINTS[name], function)
    return before


def direct(overload: Any) -> Any:
    """The compiled function of an operator's overload, without the Python call around it."""
    return overload._op


BUILT_IN = (types.BuiltinFunctionType, types.MethodDescriptorType)
WRITTEN_AS_OTHERS = frozenset(
    """bilinear cdist conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d corrcoef cov
    cumulative_trapezoid det inverse istft kron logdet matrix_exp matrix_power nanquantile pinverse quantile
    repeat_interleave rms_norm slogdet stft take_along_dim tensordot tile trapezoid trapz vander""".split())
"""Functions, besides those of `torch.fft` and `torch.linalg`, that torch writes as calls of others, the last of which
gives new memory."""


def makes_memory(func: Any) -> bool:
    """True if no result of a built-in function or method lies in an operand's memory, and no operand is written.

    torch's schemas say so of what it differentiates by a node of its own; what it writes as calls of others may return
    an operand that its schema does not name.

    >>> makes_memory(torch.Tensor.repeat), makes_memory(torch.Tensor.reshape), makes_memory(torch.Tensor.add_)
    (True, False, False)
    """
    name = getattr(func, "__name__", "")
    written = name in WRITTEN_AS_OTHERS or name.startswith(("fft_", "linalg_"))
    found = False
    if type(func) not in BUILT_IN or "unsafe" in name:
        return False
    for schema in C._jit_get_schemas_for_operator(f"aten::{name}"):
        if any(a.is_out or "Dimname" in str(a.type) for a in schema.arguments):
            continue
        whole = f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name
        try:
            composite = dispatch_has_kernel_for_dispatch_key(whole, "CompositeImplicitAutograd")
        except RuntimeError:
            continue                         # of torch.jit alone
        if (composite and not written) or any(a.alias_info is not None for a in (*schema.arguments, *schema.returns)):
            return False
        found = True
    return found


def is_composite(overload: Any) -> bool:
    """True if torch itself writes the operator as calls of other operators, on every device."""
    return dispatch_has_kernel_for_dispatch_key(overload.name(), "CompositeImplicitAutograd")


def call_composite(overload: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call the other operators that torch writes a composite operator as."""
    return overload._op_dk(DispatchKey.CompositeImplicitAutograd, *args, **kwargs)


class Aten:
    """`torch.ops.aten` by the compiled functions of its operators, without a Python call, or a choice of overloads.

    Where a form with `out=` comes first, the choice takes three times as long as the call.
    """

    def __getattr__(self, name: str) -> Callable[..., Any]:
        packet = getattr(torch.ops.aten, name)
        found: Callable[..., Any] = direct(packet.default if "default" in packet.overloads() else packet)
        self.__dict__[name] = found
        return found


aten: Any = Aten()


def profiler_operators() -> list[Any]:
    """The compiled functions that tell torch's profiler where a part of a program begins and ends."""
    operators: Any = torch.ops.profiler
    return [direct(operators._record_function_enter_new), direct(operators._record_function_exit._RecordFunction)]


# Tensors and their memory. --------------------------------------------------------------
is_view: Callable[[Any], bool] = TensorBase._is_view
is_zerotensor: Callable[[Any], bool] = TensorBase._is_zerotensor
"""True of torch's zeros without memory."""
lazy_clone: Callable[[Any], Any] = TensorBase._lazy_clone
use_count: Callable[[Any], int] = TensorBase._use_count
version_property: Any = TensorBase._version
base_property: Any = TensorBase._base
backward_hooks_property: Any = TensorBase._backward_hooks
post_accumulate_grad_hooks_property: Any = TensorBase._post_accumulate_grad_hooks
version_of: Callable[[Any], int] = operator.attrgetter("_version")
base_of: Callable[[Any], Any] = operator.attrgetter("_base")
backward_hooks: Callable[[Any], Any] = operator.attrgetter("_backward_hooks")
post_accumulate_grad_hooks: Callable[[Any], Any] = operator.attrgetter("_post_accumulate_grad_hooks")
storage_id: Callable[[torch.UntypedStorage], int] = operator.attrgetter("_cdata")
"""The number of a memory, equal for all of its storage objects."""
storage_new_weak_ref: Any = torch.UntypedStorage._weak_ref
softmax_backward_data: Any = VariableFunctions._softmax_backward_data
log_softmax_backward_data: Any = VariableFunctions._log_softmax_backward_data
neg_view: Callable[[Any], Any] = torch._neg_view
torch_executes_node: Callable[[Any], bool] = C._will_engine_execute_node
"""torch's own, which knows of no run of this library's; `will_engine_execute_node` is what torch's Python code asks."""
storage_use_count: Callable[[int], int] = C._storage_Use_Count
storage_new_with_weak_ptr: Any = torch.UntypedStorage._new_with_weak_ptr
storage_free_weak_ref: Any = torch.UntypedStorage._free_weak_ref
storage_expired: Any = torch.UntypedStorage._expired
is_cow_tensor: Callable[[Any], bool] = C._is_cow_tensor
DLPACK_EXPORTS = (C._to_dlpack, C._to_dlpack_versioned)
has_mkldnn: bool = C._has_mkldnn
get_mkldnn_enabled: Callable[[], bool] = C._get_mkldnn_enabled

# Nested arguments. ----------------------------------------------------------------------
tree_flatten, tree_unflatten = _pytree.tree_flatten, _pytree.tree_unflatten
tree_leaves, tree_map = _pytree.tree_leaves, _pytree.tree_map
pytree_nodes: Any = _pytree.SUPPORTED_NODES
"""The classes that hold further arguments."""


# torch.compile and TorchScript, which are not imported before they are used. -------------
def aot_backend(inference: Callable[[Any, Any], Any], compiler: Callable[[Any, Any], Any],
                partition: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    """A backend of torch.compile on AOTAutograd's joint graph, which torch's own CSE leaves as it is."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch import config

    def backend(module: Any, inputs: Any) -> Any:
        with config.patch(cse=False):
            return aot_autograd(fw_compiler=compiler, bw_compiler=compiler, inference_compiler=inference,
                                partition_fn=partition)(module, inputs)
    return backend


def default_partition(module: Any, inputs: Any, **options: Any) -> Any:
    """AOTAutograd's division of a joint graph into forward and backward."""
    from torch._functorch import partitioners
    return partitioners.default_partition(module, inputs, **options)


def boxed(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as AOTAutograd calls it: with one list of arguments, which it may empty."""
    from torch._functorch._aot_autograd import utils
    return utils.make_boxed_func(function)


def function_apply() -> Callable[..., Any]:
    """`torch.autograd.Function.apply`, to be called with the class in front: Python's up to 2.13, C's since."""
    found = vars(torch.autograd.Function)["apply"]
    return found.__func__ if isinstance(found, classmethod) else found


def is_compiling() -> bool:
    """True while torch.compile traces; up to 2.12 torch's own question says so only to the code that it traces."""
    return torch.compiler.is_compiling() or torch._guards.TracingContext.try_get() is not None


get_frame_callback: Callable[[], Any] = C._dynamo.eval_frame.get_eval_frame_callback
"""What torch.compile looks at the frames of this thread with; None or False where it does not."""


def frame_callback() -> Callable[[Any], Any]:
    """What sets the function by which torch.compile looks at the frames of this thread, and returns the one before."""
    return C._dynamo.eval_frame.set_eval_frame


def not_compiled(function: Callable[..., Any], why: str) -> None:
    """Let torch.compile end its graph at calls of `function`, and say why."""
    function._torchdynamo_disable = True  # type: ignore[attr-defined]
    function._torchdynamo_disable_msg = why  # type: ignore[attr-defined]
