"""The parts of the tensor API that speak of gradients, memory or modes, inside a context."""

from __future__ import annotations

import functools
import re
import warnings
from typing import Any

import torch

from autograd_opt import errors
from autograd_opt.abi import torch_private as private
from autograd_opt.abi.original_functions import (
    BACKWARD,
    GRAD,
    REGISTER_HOOK,
    REGISTER_POST_ACCUMULATE,
    RETAIN_GRAD,
    TENSOR_BACKWARD,
)
from autograd_opt.engine import backward
from autograd_opt.graph import (
    boundary,
    handles,
    hooks,
    node_classes,
    references,
    thread_state,
    torch_names,
    view_history,
)
from autograd_opt.graph import node as nodes
from autograd_opt.graph.late_bases import base_became_late
from autograd_opt.graph.tensor import CustomTensor
from autograd_opt.graph.thread_state import torch_autograd
from autograd_opt.record import function_entries, unrecorded, views
from autograd_opt.record.dispatch import call as call_route
from autograd_opt.record.dispatch import special
from autograd_opt.record.leaves import history, meta, remade
from autograd_opt.record.reads import escaped

Tensor = torch.Tensor
Base = private.TensorBase


def getter(name: str) -> Any:
    return getattr(Tensor, name).__get__


def setter(name: str) -> Any:
    return getattr(Tensor, name).__set__


# ----- backward -----
@special(TENSOR_BACKWARD)
def tensor_backward(func: Any, args: Any, kwargs: Any) -> None:
    def call(self: Tensor, gradient: Any = None, retain_graph: Any = None, create_graph: bool = False,
             inputs: Any = None) -> None:
        if torch.autograd.backward is not BACKWARD:
            torch.autograd.backward(self, gradient, retain_graph, create_graph, inputs=inputs)
            return
        backward.backward(self, gradient, retain_graph, create_graph, inputs)
    call(*args, **kwargs)


@special(BACKWARD)
def autograd_backward(func: Any, args: Any, kwargs: Any) -> None:
    backward.backward(*args, **kwargs)          # torch has put `grad_variables` in its place


@special(GRAD)
def autograd_grad(func: Any, args: Any, kwargs: Any) -> Any:
    return backward.grad(*args, **kwargs)


# ----- what requires grad -----
@special(getter("requires_grad"))
def get_requires_grad(func: Any, args: Any, kwargs: Any) -> bool:
    return references.requires_grad(args[0])


@special(setter("requires_grad"))
def set_requires_grad(func: Any, args: Any, kwargs: Any) -> None:
    assign_requires_grad(args[0], bool(args[1]))


def assign_requires_grad(t: Tensor, value: bool) -> None:
    """`t.requires_grad = value`, which torch refuses for every tensor that is not a leaf, whatever the value."""
    if not view_history.leads_nowhere(t.__dict__.get("_node")) and history(t) is not None:
        remedy = "" if value else (" If you want to use a computed variable in a subgraph that doesn't require "
                                   "differentiation use var_no_grad = var.detach().")
        raise errors.GraphError(errors.at(f"you can only change requires_grad flags of leaf variables.{remedy}"))
    change_requires_grad(t, value)


@special(Tensor.requires_grad_)
def requires_grad_(func: Any, args: Any, kwargs: Any) -> Tensor:
    def call(self: Tensor, requires_grad: bool = True) -> Tensor:
        change_requires_grad(self, bool(requires_grad))
        return self
    return call(*args, **kwargs)


KEPT_BY_DETACH = {"_leaf_hooks", "_post_hooks", "_retains_grad"}
"""Attributes of a tensor that `detach_` has made a leaf, whose hooks this library goes on calling."""


def change_requires_grad(t: Tensor, value: bool) -> None:
    """Set the flag of a leaf; refuse what torch refuses."""
    node = t.__dict__.get("_node")
    if node is not None and not node.is_leaf and node.requires_grad and not view_history.leads_nowhere(node):
        if not value:
            raise errors.GraphError(errors.at(
                "you can only change requires_grad flags of leaf variables. If you want to use a computed variable in "
                "a subgraph that doesn't require differentiation use var_no_grad = var.detach()."
            ))
        return
    with private.DisableTorchFunction():
        if value and not (t.is_floating_point() or t.is_complex()):
            raise errors.GraphError(errors.at("only Tensors of floating point dtype can require gradients"))
        if value and t.is_inference() and not torch.is_inference_mode_enabled():
            raise errors.GraphError(errors.at(
                "Setting requires_grad=True on inference tensor outside InferenceMode is not allowed."))
        tape: Any = thread_state.get_active()
        if tape is not None and value:
            tape.late = True                    # there may be views of it
        if value and (tape is not None or type(t) is CustomTensor):
            base_became_late(t)           # in graphs to come as well
        if type(t) is CustomTensor:
            if node is not None and not node.is_leaf:
                if not value and view_history.leads_nowhere(node):
                    return
                if not view_history.written_since(t, node):     # else torch refuses what is done with it later
                    if view_history.leads_nowhere(node):
                        t._made = private.version_of(t)  # type: ignore[attr-defined]       # in graphs to come, too
                    handles.become_leaf(t)
            kept = KEPT_BY_DETACH & t.__dict__.keys() or view_history.leads_nowhere(node)
            if value and "_made_here" not in t.__dict__ and (tape is None or not kept):
                give_to_torch(t)
            else:
                t._requires_grad = value
        elif not (value and references.has_history(t)):
            Base.requires_grad.__set__(t, value)


def give_to_torch(t: Tensor) -> None:
    """Make a constant that a graph has computed a leaf of torch's own, which it stays when the graph is left."""
    handles.become_leaf(t)
    for name in ("_node", "_requires_grad"):
        t.__dict__.pop(name, None)
    t.__class__ = Tensor
    Base.requires_grad.__set__(t, True)


@special(getter("is_leaf"))
def get_is_leaf(func: Any, args: Any, kwargs: Any) -> bool:
    return history(args[0]) is None and not references.torch_computed(args[0])


@special(getter("grad_fn"))
def get_grad_fn(func: Any, args: Any, kwargs: Any) -> Any:
    t = args[0]
    node = history(t)
    if node is None:
        with private.DisableTorchFunction():
            return Base.grad_fn.__get__(t) if references.torch_computed(t) else None
    if thread_state.get_active() is not None:
        node = nodes.origin(handles.handle_of(t))
    return node_classes.show(view_history.origin(node))


@special(getter("retains_grad"))
def get_retains_grad(func: Any, args: Any, kwargs: Any) -> bool:
    t = args[0]
    node = t.__dict__.get("_node")
    if t.__dict__.get("_retains_grad"):                 # also of a tensor that detach_ made a leaf
        return True
    if node is None or node.is_leaf:
        with private.DisableTorchFunction():
            return bool(Base.retains_grad.__get__(t))
    hooks_there = view_history.origin(node).hooks
    return hooks_there is not None and hooks_there.retain


@special(getter("grad"))
def get_grad(func: Any, args: Any, kwargs: Any) -> Any:
    t = args[0]
    node = t.__dict__.get("_node")
    with private.DisableTorchFunction():
        g = Base.grad.__get__(t)
        if node is not None and node.requires_grad and not node.is_leaf and g is None \
                and not view_history.leads_nowhere(node) and not get_retains_grad(func, args, kwargs):
            warnings.warn(
                "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its .grad attribute "
                "won't be populated during autograd.backward(). If you indeed want the .grad field to be populated "
                "for a non-leaf Tensor, use .retain_grad() on the non-leaf Tensor.", stacklevel=2)
    return g


@special(getter("output_nr"))
def get_output_nr(func: Any, args: Any, kwargs: Any) -> int:
    node = args[0].__dict__.get("_node")
    if node is None or node.is_leaf:
        with private.DisableTorchFunction():
            return int(Base.output_nr.__get__(args[0]))
    return torch_names.output_number(node) if node.op.name == "output" else 0


@special(RETAIN_GRAD)
def retain_grad(func: Any, args: Any, kwargs: Any) -> None:
    hooks.retain_grad(*args)


@special(REGISTER_HOOK)
def register_hook(func: Any, args: Any, kwargs: Any) -> Any:
    return hooks.register_tensor_hook(*args, **kwargs)


@special(REGISTER_POST_ACCUMULATE)
def register_post_accumulate_grad_hook(func: Any, args: Any, kwargs: Any) -> Any:
    return hooks.register_post_accumulate(*args, **kwargs)


# ----- detaching -----
def detached(t: Tensor) -> Tensor:
    """An alias without history, a CustomTensor where `t` is one."""
    with private.DisableTorchFunction():
        alias = Base.detach(t)
        if type(t) is CustomTensor and type(alias) is Tensor:
            alias.__class__ = CustomTensor
        return alias


@special(Tensor.detach, torch.detach)
def detach(func: Any, args: Any, kwargs: Any) -> Tensor:
    return detached(*args)


@special(Tensor.detach_, torch.detach_)
def detach_(func: Any, args: Any, kwargs: Any) -> Tensor:
    (t,) = args
    with private.DisableTorchFunction():
        if view_history.shown_as_view(t):
            raise errors.GraphError(errors.at("Can't detach views in-place. Use detach() instead."))
        hooks.keep_hooks(t)
        if type(t) is CustomTensor or thread_state.get_active() is not None:
            handles.become_leaf(t)
        if references.has_history(t):           # also where a graph has written what torch had computed
            boundary.outlive(t)
            with torch_autograd():
                Base.detach_(t)
        if type(t) is CustomTensor:
            t._requires_grad = False
            return t
        Base.requires_grad.__set__(t, False)
        return t


def as_subclass(self: Tensor, cls: Any) -> Any:
    """`Tensor.as_subclass`, which no mode sees, with the gradient followed or the call refused."""
    if thread_state.get_recording() is None or private.is_torch_function_all_disabled() \
            or not references.requires_grad(self):
        return Base.as_subclass(self, cls)
    if not torch.is_grad_enabled():
        with private.DisableTorchFunction():
            view = Base.as_subclass(self, cls)
            views.set_apart(view, self)
        return view
    if cls is Tensor or cls is CustomTensor:
        return call_route(torch.ops.aten.alias, (self,), {})
    raise errors.UnsupportedError(errors.at(
        f"as_subclass({cls.__name__}) of a tensor that requires grad: results recorded by an AutogradGraph are of its "
        "own class, and the gradient could not follow; use .detach().as_subclass(...)"
    ))


def install() -> None:
    """Put in place what torch functions do not reach; done once at import."""
    Tensor.as_subclass = as_subclass  # type: ignore[assignment, method-assign]
    Tensor.set_ = set_  # type: ignore[assignment, method-assign]
    function_entries.take_exports(EXPORTS)
    torch.nn.Parameter.__new__ = new_parameter  # type: ignore[method-assign]


_new_parameter = torch.nn.Parameter.__new__


@functools.wraps(_new_parameter)
def new_parameter(cls: Any, data: Any = None, requires_grad: bool = True) -> Any:
    """A Parameter of a computed value is torch's own: torch would only mark a tensor of another class as one."""
    if type(data) is CustomTensor:
        escaped(data)
        with private.DisableTorchFunction():
            data = data.detach()
            data.__class__ = Tensor
            if data.layout is torch.strided:
                data.data_ptr()                 # of its own: it may be resized, or shared with other processes
    return _new_parameter(cls, data, requires_grad)


@special(getter("data"))
def get_data(func: Any, args: Any, kwargs: Any) -> Tensor:
    escaped(args[0])
    with private.DisableTorchFunction():
        return args[0].data


@special(torch.as_tensor)
def as_tensor(func: Any, args: Any, kwargs: Any) -> Any:
    """Of a tensor, a recorded cast or the tensor itself; of anything else a new tensor."""
    given = dict(zip(("data", "dtype", "device"), args, strict=False)) | kwargs
    if not isinstance(given.get("data"), Tensor):
        return unrecorded.run_raw(func, args, kwargs)
    options = {name: given[name] for name in ("dtype", "device") if given.get(name) is not None}
    return call_route(Tensor.to, (given["data"],), options) if options else given["data"]


# ----- memory that leaves torch -----
EXPORTS = private.DLPACK_EXPORTS
"""Built-in functions that no mode of torch functions sees: `torch.utils.dlpack.to_dlpack`, for one."""


def refuse_grad(t: Tensor, what: str) -> None:
    if references.requires_grad(t):
        raise errors.GraphError(errors.at(
            f"Can't call {what} on Tensor that requires grad. Use tensor.detach().{what} instead."
        ))


@special(Tensor.numpy, Tensor.__array__)
def numpy(func: Any, args: Any, kwargs: Any) -> Any:
    forced = func is not Tensor.__array__ and kwargs.get("force", len(args) > 1 and args[1])
    if not forced and torch.is_grad_enabled():
        refuse_grad(args[0], "numpy()")
    escaped(args[0])
    return unrecorded.run_raw(func, args, kwargs)


@special(Tensor.__dlpack__)
def dlpack(func: Any, args: Any, kwargs: Any) -> Any:
    refuse_grad(args[0], "__dlpack__()")
    escaped(args[0])
    return unrecorded.run_raw(func, args, kwargs)


@special(Tensor.data_ptr, Tensor.untyped_storage, Tensor.storage, Tensor.share_memory_, setter("data"),
         Tensor.resize_, Tensor.resize_as_)
def memory(func: Any, args: Any, kwargs: Any) -> Any:
    if func in (Tensor.resize_, Tensor.resize_as_) and references.requires_grad(args[0]) \
            and not torch.is_inference_mode_enabled():
        raise errors.GraphError(errors.at("cannot resize variables that require grad"))
    escaped(args[0])
    if func != setter("data"):
        unrecorded.own_memory(args[0])
    if func in (setter("data"), Tensor.resize_, Tensor.resize_as_):
        with private.DisableTorchFunction():
            kind = meta(args[0])
            handles.given_memory(args[0], lambda: func(*args, **kwargs))
            if remade(args[0], kind) or func == setter("data"):
                escaped(args[0])
            return None if func == setter("data") else args[0]      # torch never lets go of what a setter returns
    return unrecorded.run_raw(func, args, kwargs)


def set_(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """`Tensor.set_`, which torch shows to no mode: its tensor has other memory from here on.

    What was recorded of a leaf so far belongs to the leaf that it was; its next use registers it anew.
    """
    if thread_state.get_recording() is None:
        return Base.set_(self, *args, **kwargs)
    with private.DisableTorchFunction():
        leaf = references.requires_grad(self) and history(self) is None
        if leaf and torch.is_grad_enabled():
            raise errors.InplaceError(errors.at(
                "a leaf Variable that requires grad is being used in an in-place operation. "
                "Use torch.no_grad() to give it other memory"
            ))
        escaped(self)
        Base.set_(self, *args, **kwargs)
        handles.wrote(self)
        escaped(self)                       # the other tensors over its new memory have counters of their own
        if leaf:
            handles.become_leaf(self)
            if type(self) is CustomTensor:
                self._requires_grad = True
    return self


# ----- copies of leaves -----
@special(Tensor.__deepcopy__)
def deepcopy(func: Any, args: Any, kwargs: Any) -> Tensor:
    t, memo = args
    if type(t) is not CustomTensor:
        return unrecorded.run_raw(func, args, kwargs)
    if not t.is_leaf:
        raise errors.GraphError(errors.at(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment. "
            "If you were attempting to deepcopy a module, a parametrization (weight_norm, say) may have left a "
            "computed weight in it."
        ))
    if id(t) in memo:
        return memo[id(t)]
    with private.DisableTorchFunction():
        alias = t.detach().as_subclass(Tensor)
        copy = Tensor.__deepcopy__(alias, memo)         # the whole storage, which other copies of this call share
        memo.pop(id(alias), None)
        copy.__class__ = CustomTensor
        copy._requires_grad = references.requires_grad(t)
        if "_made_here" in t.__dict__:
            copy._made_here = True
        if t.grad is not None:
            copy.grad = t.grad.detach().clone()
    memo[id(t)] = copy
    return copy


@special(Tensor.__repr__)
def represent(func: Any, args: Any, kwargs: Any) -> str:
    """As torch prints it, with this library's grad_fn."""
    t = args[0]
    with private.DisableTorchFunction():
        node = view_history.origin(t.__dict__.get("_node"))
        plain: Tensor = t.detach()
        if type(plain) is CustomTensor:
            plain.__class__ = Tensor  # type: ignore[assignment]
        text = Tensor.__repr__(plain, **kwargs)
        if view_history.written_since(t, t.__dict__.get("_node")):
            return with_suffix(text, "grad_fn=<Invalid>")
        if node is not None and not node.is_leaf and node.requires_grad and not view_history.leads_nowhere(node):
            return with_suffix(text, f"grad_fn=<{view_history.name_now(t, node).rpartition('::')[2]}>")
        if (node is None or not node.requires_grad) and view_history.written_late(t, node):
            return with_suffix(text, "grad_fn=<AsStridedBackward0>")
    return with_suffix(text, "requires_grad=True") if references.requires_grad(t) else text


def with_suffix(text: str, suffix: str) -> str:
    """A printed tensor with one remark more, on a line of its own where torch would give it one."""
    last = text[text.rfind("\n") + 1:-1]
    # torch counts two characters more, but not on a line that a remark has begun
    length = len(last) + (0 if "\n" in text and re.match(r" *\w+=", last) else 2)
    fits = length + len(suffix) + 2 <= private.PRINT_OPTS.linewidth
    return f"{text[:-1]}, {suffix})" if fits else f"{text[:-1]},\n{' ' * len('tensor(')}{suffix})"
