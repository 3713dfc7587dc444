"""Name what random programs do in one call: layouts, whole loops, wrapped entry points, printing, foreign operands."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

Tensor = torch.Tensor
GRAD, BACKWARD = torch.autograd.grad, torch.autograd.backward
"""The entry points as a module of the user's has imported them, before any graph."""


# ----- layouts ---------------------------------------------------------------------------------
def laid(t: Tensor, how: str) -> Tensor:
    """Return the values of `t` in memory laid out otherwise."""
    if how == "steps" and t.dim():
        return t.new_zeros(*t.shape[:-1], t.shape[-1] * 2)[..., ::2].copy_(t)
    if how == "permuted" and t.dim() > 1:
        return t.transpose(0, -1).contiguous().transpose(0, -1)
    if how == "expanded" and t.dim():
        return t[:1].expand(t.shape)
    if how == "offset":
        return t.new_zeros(t.numel() + 3)[3:].view(t.shape).copy_(t)
    if how == "channels" and t.dim() == 4:
        return t.contiguous(memory_format=torch.channels_last)
    return t.clone()


def ramp(*shape: int) -> Tensor:
    """Return different numbers of both signs, and zero."""
    n = int(np.prod(shape))
    return ((torch.arange(n, dtype=torch.float64) * 7 % n) - n // 2).view(shape) / 4


# ----- long loops ------------------------------------------------------------------------------
def spin(steps: int) -> None:
    """Record operations that nobody keeps, so that the tape grows."""
    u = torch.tensor(1.0, dtype=torch.float64, requires_grad=True)
    for _ in range(steps):
        u * 1.01


def spent(steps: int) -> None:
    """Record and run small graphs that nobody keeps, so that the tape grows and is to be compacted."""
    u = torch.tensor(1.0, dtype=torch.float64, requires_grad=True)
    for _ in range(steps):
        (u * 1.01).backward()


def descend(how: str, params: list[Tensor], rate: float) -> Callable[[list[Any]], None]:
    """Return what applies gradients to parameters."""
    optimizers = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}
    optimizer = optimizers[how](params, lr=rate) if how in optimizers else None

    def step(grads: list[Any]) -> None:
        if optimizer is not None:
            for p, g in zip(params, grads, strict=True):
                p.grad = g
            optimizer.step()
            return
        for p, g in zip(params, grads, strict=True):
            if how == "data":
                p.data -= rate * g
            elif how == "numpy":
                p.detach().numpy()[...] -= rate * g.detach().numpy()
            elif how == "detach":
                p.detach().sub_(rate * g)
            elif how == "copy":
                with torch.no_grad():
                    p.copy_(p - rate * g)
            else:
                with torch.no_grad():
                    p -= rate * g

    return step


def train(loss: Callable[..., Tensor], *start: Tensor, steps: int, how: str, entry: str) -> tuple[Any, ...]:
    """Return leaves after many steps in one context, each of which has had all its gradients."""
    params = [t.detach().clone().requires_grad_() for t in start]
    step = descend(how, params, 1e-4)
    lost = 0
    for _ in range(steps):
        for p in params:
            p.grad = None
        root = loss(*params)
        root = root.sum() if root.dim() else root
        if entry == "backward":
            root.backward()
            grads = [p.grad for p in params]
        elif entry == "inputs":
            root.backward(inputs=params)
            grads = [p.grad for p in params]
        elif entry == "materialize":
            grads = list(torch.autograd.grad(root, params, materialize_grads=True))
        elif entry == "twice":
            first = torch.autograd.grad(root, params, create_graph=True, allow_unused=True)
            root = root + sum(g.square().sum() for g in first if g is not None)
            grads = list(torch.autograd.grad(root, params, materialize_grads=True))
        else:
            grads = list(torch.autograd.grad(root, params))
        lost += sum(g is None for g in grads)
        step([torch.zeros_like(p) if g is None else g for p, g in zip(params, grads, strict=True)])
    return lost, *[p.detach() for p in params]


def carried(cell: Callable[[Tensor], Tensor], start: Tensor, steps: int, window: int) -> Tensor:
    """Return the state of a recurrent loop that is differentiated and cut off every `window` steps."""
    state, total = start.detach(), torch.zeros((), dtype=torch.float64)
    for k in range(steps):
        state = cell(state)
        total = total + state.sum()
        if k % window == window - 1:
            total.backward()
            state, total = state.detach(), torch.zeros((), dtype=torch.float64)
    return state.detach()


# ----- entry points that the user has wrapped ----------------------------------------------------
@contextmanager
def wrapped(how: str = "lambda") -> Iterator[None]:
    """Put functions of the user's in place of torch's entry points."""
    kept = torch.autograd.grad, torch.autograd.backward, torch.Tensor.backward

    def wrap(function: Any) -> Any:
        if how == "wraps":
            @functools.wraps(function)
            def inner(*a: Any, **k: Any) -> Any:
                return function(*a, **k)
            return inner
        return lambda *a, **k: function(*a, **k)

    grad, backward, method = kept
    torch.autograd.grad = functools.partial(grad) if how == "partial" else wrap(grad)
    torch.autograd.backward = functools.partial(backward) if how == "partial" else wrap(backward)
    torch.Tensor.backward = wrap(method)  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.autograd.grad, torch.autograd.backward = grad, backward
        torch.Tensor.backward = method  # type: ignore[method-assign]


# ----- printing ----------------------------------------------------------------------------------
def printed(t: Tensor, exactly: bool = True) -> list[Any]:
    """Return what printing a tensor and walking its history says, as far as it is torch's."""
    text, seen, nodes = [repr(t), str(t), f"{t}"], 0, [t.grad_fn]
    if not t.dim() and not t.is_complex():
        text.append(format(t.detach(), ".3f"))
    while nodes and seen < 30:
        node = nodes.pop()
        if node is None:
            continue
        seen += 1
        repr(node), str(node), node.name(), type(node).__name__, node.metadata
        nodes.extend(n for n, _ in node.next_functions)
    return text if exactly else [t.grad_fn is None]


def leaves_below(t: Tensor) -> list[str]:
    """Return the leaves that the history of `t` leads to, by shape and values."""
    found, stack, seen = set(), [t.grad_fn], set()
    while stack:
        node = stack.pop()
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        leaf = getattr(node, "variable", None)
        if leaf is not None:
            found.add(f"{tuple(leaf.shape)} {leaf.detach().tolist()}")
        stack += [n for n, _ in node.next_functions]
    return sorted(found)


# ----- operands of foreign classes -----------------------------------------------------------------
class Held:
    """A class of the user's with reflected operators, each of which gives the pair of the operand and its name."""

    def __init__(self, value: Any) -> None:
        self.value = value


def reflected(name: str) -> Callable[[Held, Any], tuple[str, Any, Any]]:
    return lambda self, other: (name, other * 1, self.value)


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor", "lshift",
              "rshift", "divmod"):
    setattr(Held, f"__r{_name}__", reflected(_name))
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(Held, f"__{_name}__", reflected(_name))
Held.__hash__ = object.__hash__  # type: ignore[method-assign]


class Duck:
    """No tensor: holds one, and says by `__torch_function__` what torch's functions do with it."""

    def __init__(self, value: Any) -> None:
        self.value = value

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def open_(a: Any) -> Any:
            return a.value if isinstance(a, Duck) else [open_(b) for b in a] if isinstance(a, list) else a

        return func(*map(open_, args), **{k: open_(v) for k, v in (kwargs or {}).items()})


class Labelled(Tensor):
    """A subclass of Tensor that adds nothing."""


# ----- lifetimes -----------------------------------------------------------------------------------
def tied(words: str, t: Tensor) -> Tensor:
    """Return a Function's output that its ctx holds in a list, as a cycle."""
    from tests.made import function

    box: list[Any] = []
    out = function(words).apply(t, None, box)
    box.append(out)
    return out


def collected() -> None:
    gc.collect()


NAMES: dict[str, Any] = {
    f.__name__: f
    for f in (laid, ramp, spin, spent, train, carried, wrapped, printed, leaves_below, Held, Duck, Labelled, tied,
              collected)
}
NAMES.update(imported_grad=GRAD, imported_backward=BACKWARD, functools=functools,
             edge=torch.autograd.graph.get_gradient_edge)
