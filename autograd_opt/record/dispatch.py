"""Route (b): a torch-function mode that sees every torch call inside a context.

Each callable is classified once: it has a line in the operator table, it writes in place,
it is a special of the tensor API, it is Python code of torch's own that can be recorded
piece by piece, or it is recorded whole as one opaque node.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode

from autograd_opt import errors
from autograd_opt.graph import refusals
from autograd_opt.graph.thread_state import get_recording
from autograd_opt.ops.table import BINDERS, CALLS, DECOMPOSE, INPLACE, OPS, SPELLINGS, Binder, rename
from autograd_opt.record import arguments, keyword_calls, routes, torch_function, unrecorded

Handler = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]
HANDLERS: dict[Any, Handler] = {}
"""torch callable -> how it is run inside a context; filled on first sight."""
BODIES: dict[Any, Handler] = {}
"""Callables with a line in the table, in Python's code, for spellings and operands that the line does not cover."""
SPECIAL: dict[Any, Handler] = {}
"""Callables with a meaning of their own, filled by `special`."""


class RecorderMode(torch_function.Mode, TorchFunctionMode):
    """The mode; one instance serves every thread, pushed while a graph records."""


MODE = RecorderMode()


def call(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run `func` as the mode would, from inside this library."""
    if get_recording() is None:
        return unrecorded.run_raw(func, args, kwargs)
    handler = HANDLERS.get(func)
    if handler is None:
        handler = HANDLERS[func] = classify(func)
    if not isinstance(handler, routes.Route):
        arguments.lent(args, kwargs)
    return handler(func, args, kwargs)


def classify(func: Any) -> Handler:
    """How a callable is to be handled."""
    if func in SPECIAL:
        return SPECIAL[func]
    if func in SPELLINGS:
        target, bind = SPELLINGS[func]
        return spelled(target, bind)
    if func in CALLS:
        target = CALLS[func]
        if isinstance(target, str):
            return by_name(target)
        name = getattr(func, "__name__", "")
        chosen = by_choice(target, name not in METADATA)
        return routes.Numbers(chosen, NUMBERS[name]) if name in NUMBERS else chosen
    if func in DECOMPOSE:
        return decomposed(DECOMPOSE[func], not isinstance(func, types.FunctionType), True)
    from autograd_opt.record import inplace
    if func in INPLACE:
        name = INPLACE[func]
        if func is inplace.POWER:
            return routes.Write(inplace.handler(name))
        if not OPS[name].differentiable:    # in torch `x.eq_(1)` has a gradient of zeros, `x.logical_not_()` that of x
            return routes.Write(inplace.opaque_handler)
        return routes.Write(inplace.handler(name), OPS[name], BINDERS[name], rename)
    if original(func) is not func:
        return replaced
    twin = keyword_calls.twin_of(func)
    if any(twin in table for table in (CALLS, SPELLINGS, DECOMPOSE, INPLACE)):
        place = keyword_calls.place_of(func, "reduction")
        return averaged(classify(twin), place) if place else classify(twin)
    name = getattr(func, "__name__", "")
    if name in NUMBERS:
        return routes.Numbers(routes.Write(inplace.opaque_handler) if name.endswith("_") else raw, NUMBERS[name])
    if name in ("__get__", "__set__", "__delete__"):
        return raw
    if isinstance(func, types.FunctionType):
        return decomposed(func)
    if name in METADATA or getattr(func, "_qualified_op_name", "").startswith("profiler::") \
            or getattr(func, "namespace", "") == "profiler":
        return raw
    if inplace.writes(func, name):
        return routes.Write(inplace.opaque_handler, reshapes=name in inplace.RESHAPING)
    from autograd_opt.record import torch_fallback
    return torch_fallback.handler


PLACES: list[tuple[Any, dict[str, Any], list[str]]] = []
"""Functions of torch's that are known here, and the names under which they look for themselves before a mode."""


def note_places() -> None:
    """Fill `PLACES`; done once at import.

    Methods in C ask the class; built-in functions have a place of their own, where users put nothing.
    """
    for f in (f for table in (SPECIAL, SPELLINGS, CALLS, DECOMPOSE, INPLACE) for f in table):
        if isinstance(f, types.FunctionType):
            names, path = f.__globals__, f.__qualname__.split(".")
        elif isinstance(f, types.MethodDescriptorType):
            names, path = vars(torch), ["Tensor", f.__name__]
        else:
            continue
        if standing(names, path) is f or f in SPECIAL:
            PLACES.append((f, names, path))


def standing(names: dict[str, Any], path: list[str]) -> Any:
    """What stands under a name of torch's now."""
    return functools.reduce(lambda owner, name: getattr(owner, name, None), path[1:], names.get(path[0]))


def original(func: Any) -> Any:
    """The function of torch's in whose place the user has put `func`; `func` itself where there is none.

    torch's function, which the user's goes on to, hands a mode what now stands under its name.
    """
    return next((known for known, names, path in PLACES if standing(names, path) is func), func)


def meant(func: Any) -> Any:
    """The function of torch's that a mode is asked about by the name of `func`."""
    handler = HANDLERS.get(func)
    if handler is None:
        handler = HANDLERS[func] = classify(func)
    return original(func) if handler is replaced else func


def replaced(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run what the user has put in the place of a function of torch's, from where torch's hands it to a mode."""
    known = original(func)
    if known is func:                       # no more: it is called by itself
        return decomposed(func)(func, args, kwargs)
    return call(known, args, kwargs)


raw = routes.Raw()
"""Run without recording: the result has no gradient."""


def by_name(name: str) -> Handler:
    """Record as operator `name`."""
    return routes.Recorded(OPS[name], BINDERS[name], rename, unbindable)


def unbindable(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A spelling that the table does not know: torch decides whether it is valid."""
    placed = keyword_calls.by_position(func, args, kwargs) if kwargs else None
    if placed is not None:
        return call(func, *placed)
    known = BODIES.get(func)
    if known is not None and kwargs.get("out") is None and func is not scaled_dot_product_attention:
        return known(func, args, kwargs)
    from autograd_opt.record import inplace, torch_fallback
    if kwargs.get("out") is not None:
        return inplace.out_handler(func, args, kwargs)
    if getattr(func, "__name__", "") in METADATA:
        return raw(func, args, kwargs)
    if func is scaled_dot_product_attention:
        from autograd_opt.ops.attention import no_values
        for mask in filter(no_values, (*args, *kwargs.values())):
            return decomposed(instead(func, type(mask)))(func, args, kwargs)
    body = DECOMPOSE.get(func, func)
    if isinstance(body, types.FunctionType):
        if func not in BODIES:
            BODIES[func] = decomposed(body, body is not func, body is not func)
        return BODIES[func](func, args, kwargs)
    return torch_fallback.handler(func, args, kwargs)


def averaged(handler: Handler, place: int) -> Handler:
    """A loss of `torch.ops.aten`, which takes the mean where its argument `place`, the reduction, is not given.

    torch's own function of that name has no default.
    """
    def call(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given = "reduction" in kwargs or len(args) > place
        return handler(func, args, kwargs if given else {**kwargs, "reduction": 1})
    return call


def instead(func: Any, kind: Any) -> Callable[..., Any]:
    """What a class of torch's own, a mask without values, computes in the place of a call."""
    def call(*args: Any, **kwargs: Any) -> Any:
        return kind.__torch_function__(func, (kind,), args, kwargs)
    return call


def spelled(target: str | Callable[..., str | None], bind: Binder) -> Handler:
    """Record a callable that has a binder of its own."""
    def route(name: str) -> Handler:
        return routes.Recorded(OPS[name], bind, lambda kwargs, operands: kwargs, unbindable)

    return route(target) if isinstance(target, str) else routes.Chosen(target, route, unbindable)


def by_choice(pick: Callable[..., str | None], carries: bool) -> routes.Chosen:
    """Record as the operator that `pick(*args, **kwargs)` names; as one opaque node where it names None."""
    return routes.Chosen(pick, by_name, unbindable, carries)


def decomposed(func: Callable[..., Any], cast: bool = False, replacing: bool = False) -> Handler:
    """Run Python code of torch's own with its calls recorded one by one.

    `cast`: it stands for one call of torch's, which under autocast has types of its own and is taken whole.
    `replacing`: it is no code of torch's; torch says which calls it would take.

    Such a function begins by asking whether a mode wants it whole.  A copy whose globals
    answer no runs its body, in which every inner call comes back to the mode.
    """
    def no(*args: Any) -> bool:
        return False

    replaced: dict[str, Any] = {
        name: no for name in ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")
        if name in getattr(func, "__globals__", {})
    }
    body: Any = func
    if replaced and isinstance(func, types.FunctionType):
        body = types.FunctionType(func.__code__, {**func.__globals__, **replaced}, func.__name__,
                                  func.__defaults__, func.__closure__)
        body.__kwdefaults__ = func.__kwdefaults__

    def whole(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        from autograd_opt.record import torch_fallback
        return torch_fallback.handler(func, args, kwargs)

    return routes.Decomposed(body, MODE, whole, cast, replacing)


def special(*functions: Any) -> Callable[[Handler], Handler]:
    """Register the handler of callables with a meaning of their own."""
    def register(handler: Handler) -> Handler:
        for function in functions:
            if function is not None:
                SPECIAL[function] = handler
        return handler
    return register


METADATA = frozenset("""
    size dim ndimension stride numel nelement storage_offset element_size is_contiguous is_floating_point
    is_complex is_signed is_sparse is_cuda is_conj is_neg is_inference is_nonzero is_same_size is_set_to
    is_shared is_pinned has_names names get_device __len__ __hash__ __contains__ type_as_ can_cast result_type
    promote_types item tolist __bool__ __float__ __int__ __index__ __complex__ __format__ dim_order
    data_ptr _version _is_view is_coalesced sparse_dim dense_dim equal allclose get_default_dtype
    _set_grad_enabled new is_tensor is_storage manual_seed seed initial_seed get_rng_state set_rng_state
    zeros ones empty full arange linspace logspace eye rand randn randint randperm empty_like zeros_like
    ones_like full_like rand_like randn_like randint_like tensor from_numpy empty_strided
    tril_indices triu_indices
    new_empty new_empty_strided new_zeros new_ones new_full new_tensor scalar_tensor
    eq ne lt le gt ge __eq__ __ne__ __lt__ __le__ __gt__ __ge__ isnan isinf isfinite isclose logical_and logical_or
    logical_not logical_xor argmax argmin argsort searchsorted bucketize nonzero count_nonzero all any isposinf isneginf
    _is_all_true _is_any_true _is_zerotensor _has_compatible_shallow_copy_type
    bitwise_and bitwise_or bitwise_xor bitwise_not __and__ __or__ __xor__ __invert__ histc unique
    greater greater_equal less less_equal not_equal isreal isin signbit multinomial
""".split())
"""Names whose results never carry a gradient."""

NUMBERS = {
    **dict.fromkeys("arange range scalar_tensor".split(), 0),
    **dict.fromkeys(
        "full full_like new_full histc cauchy_ exponential_ geometric_ log_normal_ normal_ uniform_".split(), 1),
}
"""Names of calls whose arguments from this one on are numbers, or tensors of one number."""

torch_function.install_routes(HANDLERS, classify, MODE, refusals.note_class)

__all__ = ["HANDLERS", "METADATA", "MODE", "RecorderMode", "call", "errors", "special"]
