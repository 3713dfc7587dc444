"""Functions that return lists, and several results of which some are views."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import autograd_opt as ao


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("with_setup", [False, True])
def test_a_list_is_returned_as_any_other_object(with_setup: bool, optimize: bool) -> None:
    seen: list[str] = []

    def forward(*arguments: Any) -> Any:
        return [arguments[-1] * 2, arguments[-1] * 3]

    members: dict[str, Any] = {"forward": staticmethod(forward), "backward": staticmethod(lambda ctx, *g: g[0])}
    if with_setup:
        members["setup_context"] = staticmethod(lambda ctx, inputs, output: seen.append(type(output).__name__))
    function = type("Listed", (torch.autograd.Function,), members)

    def program() -> list[Any]:
        result: Any = function.apply(torch.ones(2, requires_grad=True))  # type: ignore[attr-defined]
        return [type(result), [(t.requires_grad, t.grad_fn, t.tolist()) for t in result], list(seen)]

    expected = program()
    seen.clear()
    with ao.AutogradGraph(optimize=optimize):
        assert program() == expected


RESULTS: dict[str, Any] = {
    "two views": lambda ctx, x: (x[:1], x[1:]),
    "a view and another": lambda ctx, x: (x[1:], x * 2),
    "another and a view": lambda ctx, x: (x * 2, x.view_as(x)),
    "the input": lambda ctx, x: (x, x * 2),
    "a view alone": lambda ctx, x: (x[1:], 3),
}
WRITES: dict[str, Any] = {
    "base": lambda b, out, w: b.mul_(2),
    "base, by a gradient": lambda b, out, w: b.mul_(w),
    "base, under no_grad": lambda b, out, w: torch.no_grad()(b.mul_)(2),
    "part of the base": lambda b, out, w: b[:2].mul_(w[:2]),
    "result": lambda b, out, w: out.mul_(2),
    "result, under no_grad": lambda b, out, w: torch.no_grad()(out.mul_)(2),
}


def after_a_write(forward: Any, write: Any, place: int, follows: bool) -> list[Any]:
    """Value, gradients and history of one result after a write; or the refusal."""
    def backward(ctx: Any, *gs: Any) -> Any:
        return sum((g.sum() for g in gs if g is not None), torch.zeros(3))

    function: Any = type("Several", (torch.autograd.Function,), {
        "forward": staticmethod(forward), "backward": staticmethod(backward)})
    x, w = (torch.tensor([0.1, 0.2, 0.3], requires_grad=True) for _ in range(2))
    b = (x if follows else x.detach()) * 1.0
    out = function.apply(b)[place]
    if not isinstance(out, torch.Tensor):
        return []
    try:
        write(b, out, w)
        loss = out.sin().sum() + b.sin().sum()
        grads = torch.autograd.grad(loss, (x, w), allow_unused=True) if loss.requires_grad else ()
        return [loss.detach(), *grads, out.requires_grad, out.grad_fn is None]
    except RuntimeError as error:
        return [str(error).partition(" [at ")[0].partition("Use torch.no_grad")[0]]


@pytest.mark.parametrize("follows", [True, False])
@pytest.mark.parametrize("results", RESULTS)
def test_a_result_that_is_a_view_follows_torchs_rules_after_a_write(results: str, follows: bool) -> None:
    for name, write in WRITES.items():
        for place in (0, 1):
            wanted = after_a_write(RESULTS[results], write, place, follows)
            for optimize in (False, True):
                with ao.AutogradGraph(optimize=optimize):
                    found = after_a_write(RESULTS[results], write, place, follows)
                assert str(found) == str(wanted), (name, place, optimize)
