"""Tensors that a function keeps from inside a transform, and the program uses after it: values, flags and gradients."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import func

import autograd_opt as ao
from tests.engine.behaviour import caught

Tensor = torch.Tensor
Kept = list[Tensor]
Body = Callable[[Tensor], Tensor]


def shifted(t: Tensor) -> Tensor:
    return (t + 0.5).sin().sum()


TRANSFORMS: dict[str, Callable[[Body, Tensor], Any]] = {
    "grad": lambda f, x: func.grad(f)(x),
    "grad and value": lambda f, x: func.grad_and_value(f)(x)[1],
    "vjp": lambda f, x: func.vjp(f, x)[0],
    "jvp": lambda f, x: func.jvp(f, (x,), (torch.ones_like(x),))[0],
    "hessian": lambda f, x: func.hessian(f)(x),
    "grad of grad": lambda f, x: func.grad(lambda t: func.grad(f)(t).sum())(x),
}
OPERANDS: dict[str, Callable[[Tensor], Tensor]] = {
    "constant": lambda w: torch.linspace(0.1, 0.7, 3),
    "leaf": lambda w: w,
    "result": lambda w: w * 2,
}
USES: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "sum": lambda e, w: e.sum(),
    "with the leaf": lambda e, w: (e * w).sum(),
    "twice": lambda e, w: (e * e).sum() + e.exp().sum(),
    "a view": lambda e, w: e.reshape(-1)[0],
    "stacked": lambda e, w: torch.stack([e, e.cos()]).sum(),
    "without grad": lambda e, w: torch.no_grad()(e.sum)(),
    "detached": lambda e, w: e.detach().sum(),
    "a layer": lambda e, w: torch.nn.functional.linear(e.reshape(1, -1), torch.ones(2, e.numel())).sum(),
    "as numbers": lambda e, w: e.tolist(),
}


def used(transform: str, operand: str, use: str, closed_over: bool) -> list[Any]:
    """What a program sees of the tensors kept: the results, whether they require grad, and the gradients."""
    w = torch.linspace(-1, 1, 3, requires_grad=True)
    kept: Kept = []

    def body(t: Tensor) -> Tensor:
        y = (t * w.exp() if closed_over else t * 3).sin()
        kept.extend([t, y])
        return shifted(y)

    result = TRANSFORMS[transform](body, OPERANDS[operand](w))
    seen: list[Any] = []
    for e in kept:
        r = USES[use](e, w)
        seen.append(r.tolist() if isinstance(r, Tensor) else r)
        if isinstance(r, Tensor):
            seen += [r.requires_grad, [g is not None and g.tolist() for g in torch.autograd.grad(
                r, [w], allow_unused=True, retain_graph=True)] if r.requires_grad else None]
    return [*seen, result.requires_grad]


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_kept_tensors_are_what_they_are_in_eager(transform: str, use: str) -> None:
    for operand in OPERANDS:
        for closed_over in (False, True):
            wanted = used(transform, operand, use, closed_over)
            for optimize in (False, True):
                with ao.AutogradGraph(optimize=optimize):
                    assert used(transform, operand, use, closed_over) == wanted, (operand, closed_over, optimize)


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("all_else_gone", [False, True])
def test_gradients_after_everything_else_is_gone(optimize: bool, all_else_gone: bool) -> None:
    def program() -> list[Any]:
        w = torch.linspace(-1, 1, 3, requires_grad=True)
        kept: Kept = []

        def body(t: Tensor) -> Tensor:
            kept.append((t * t).sin())
            return kept[0].sum()

        result = func.grad(body)(w * 2)
        loss = kept.pop().sum() + (0 if all_else_gone else result.sum())
        del result
        loss.backward()
        return [w.grad.tolist() if w.grad is not None else None]

    wanted = program()
    with ao.AutogradGraph(optimize=optimize):
        assert program() == wanted


@pytest.mark.parametrize("optimize", [False, True])
def test_a_kept_tensor_is_differentiated_once(optimize: bool) -> None:
    def program() -> list[Any]:
        w = torch.linspace(-1, 1, 3, requires_grad=True)
        kept: Kept = []
        func.grad(lambda t: (kept.append((t * w).sin()), kept[0].sum())[1])(torch.ones(3))
        (kept[0] * kept[0]).sum().backward()
        return [w.grad, type(caught(lambda: kept[0].sum().backward())).__name__]

    wanted = program()
    with ao.AutogradGraph(optimize=optimize):
        found = program()
    torch.testing.assert_close(found[0], wanted[0])
    assert found[1] == wanted[1]


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("f", [
    lambda t, y: t * y, lambda t, y: t * y.sum(), lambda t, y: t.sin() * y, lambda t, y: t + y,
])
def test_what_torch_saves_of_a_constant_is_alive(f: Callable[..., Any], optimize: bool) -> None:
    def alive() -> bool:
        y = torch.ones(3, requires_grad=True)
        constant = torch.arange(6.0).reshape(2, 3).exp()
        result = torch.vmap(f, (0, None))(constant, y)
        seen = weakref.ref(constant)
        del constant
        return seen() is not None and result.requires_grad

    wanted = alive()
    with ao.AutogradGraph(optimize=optimize):
        assert alive() == wanted
