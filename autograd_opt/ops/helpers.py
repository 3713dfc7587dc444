"""Words that rules share; each works on numbers, recorded tensors and symbols."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.overrides import handle_torch_function, has_torch_function

from autograd_opt import errors
from autograd_opt.abi import torch_private
from autograd_opt.abi import torch_private as private

NUMBER = (int, float, complex, np.number, np.bool_)
TIES_SHARE = torch_private.VERSION >= (2, 14)
"""Since torch 2.14: equal tensors share the cotangent of `fmax`, `fmin`, `clamp`; at a number as bound, none."""


def primitive(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a Python function an operation that a mode, or a symbol, sees whole.

    It follows torch's own protocol, so that a line of the table can name it as its `forward`.
    """
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if has_torch_function(args):
            return handle_torch_function(wrapper, args, *args, **kwargs)
        return function(*args, **kwargs)

    wrapper.primitive = True  # type: ignore[attr-defined]
    return wrapper


def broadcast_shape(shapes: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """The shape that all of them are broadcast to; torch's error where there is none."""
    wide = [1] * max(map(len, shapes))
    for shape in shapes:
        for i, n in enumerate(shape, len(wide) - len(shape)):
            if n != wide[i] and n != 1:
                if wide[i] != 1:
                    return tuple(torch.broadcast_shapes(*shapes))
                wide[i] = n
    return tuple(wide)


def refuse(function: str, **operands: Any) -> None:
    """torch's refusal of an operand that requires grad and that `function` is not differentiated with respect to."""
    for name, t in operands.items():
        if t is None or (type(t) is torch.Tensor and not t.requires_grad):
            continue
        from autograd_opt.graph.references import requires_grad
        if isinstance(t, torch.Tensor) and requires_grad(t):
            raise errors.GraphError(errors.at(
                f"The function '{function}' is not differentiable with respect to argument '{name}'. This input cannot "
                f"have requires_grad True. Pass {name}.detach()"))


def H(x: Any) -> Any:
    """The complex conjugate; the value itself where it is real."""
    if isinstance(x, torch.Tensor):
        return x.conj() if x.is_complex() else x
    return x.conjugate() if isinstance(x, complex) else x


def zero(g: Any) -> Any:
    """The rule of a piecewise constant function."""
    return torch.zeros_like(g)


def nothing(g: Any) -> Any:
    """Zeros that stay zero whatever they are multiplied by; torch has them, without memory, for numbers."""
    if isinstance(g, torch.Tensor) and g.layout is torch.strided:
        return torch._efficientzerotensor(g.shape, dtype=g.dtype, device=g.device)
    return torch.zeros_like(g)


def plain(t: Any) -> Any:
    """`t` as eager mode shows it: not as a view of memory that only torch's kernel knows."""
    return t.data if type(t) is torch.Tensor and private.is_view(t) else t


def view_of(t: Any) -> Any:
    """A view of a fresh gradient, where torch's rule returns one."""
    return t.view(t.shape) if isinstance(t, torch.Tensor) else t


def filled(t: Any) -> Any:
    """Zeros without memory get some, where torch's rule returns ordinary ones."""
    if type(t) is not torch.Tensor:
        return t
    with private.DisableTorchFunction():       # a question is nothing to record
        without = private.is_zerotensor(t)
    return t.clone() if without else t


def times(g: Any, factor: Any) -> Any:
    """`g * conj(factor)` for a number, without a kernel for 1."""
    return g if isinstance(factor, NUMBER) and factor == 1 else g * H(factor)


def masked(keep: Any, g: Any) -> Any:
    """`g` where `keep` holds, 0 elsewhere (also where `g` is not finite)."""
    return torch.where(keep, g, 0.0)


def summed(g: Any, shape: Any) -> Any:
    """`g` summed over broadcast axes, where the executor cannot see that it must be."""
    return g if g.shape == shape else g.sum_to_size(tuple(shape))


def axes(dim: Any, n: int) -> tuple[int, ...]:
    """Axis numbers as non-negative integers; all axes for None or ()."""
    if dim is None or dim == () or dim == []:
        return tuple(range(n))
    if isinstance(dim, int):
        dim = (dim,)
    return tuple(d % n if n else 0 for d in dim)


def restore(t: Any, x_shape: Any, dim: Any, keepdim: bool) -> Any:
    """A reduced tensor with the removed axes back, as axes of length 1; one number as it is, which fits any axes."""
    n = len(x_shape)
    if n == 0 or keepdim or dim is None or dim == () or dim == []:
        return t
    if type(dim) is int:
        return t.unsqueeze(dim % n)
    for d in sorted(axes(dim, n)):
        t = t.unsqueeze(d)
    return t


def expand_reduced(g: Any, x_shape: Any, dim: Any, keepdim: bool) -> Any:
    """The cotangent of a reduction, back over the axes that it removed."""
    if not len(x_shape):
        return g.expand(())             # a tensor of its own, as for any other shape
    if dim is None or dim == () or dim == []:
        return (g if not keepdim else g.reshape(())).expand(x_shape)
    return restore(g, x_shape, dim, keepdim).expand(x_shape)


def count(shape: Any, dim: Any) -> int:
    """How many elements a reduction over `dim` takes together."""
    if type(dim) is int and shape:
        return shape[dim]
    n = 1
    for d in axes(dim, len(shape)):
        n *= shape[d] if shape else 1
    return n


def parts_of(g: Any, metas: Any) -> list[Any]:
    """The cotangents of all outputs of a call, zeros for those that got none."""
    return [
        torch.zeros(meta[0], dtype=meta[1], device=meta[2]) if part is None and meta is not None else part
        for part, meta in zip(g.parts, metas, strict=True)
    ]
