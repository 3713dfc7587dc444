"""Make the user's Functions from words: what forward and backward do, what is saved, written and returned.

`function("inside once")` is a class, the same one for the same words.  Each computes `x * b.cos()` of its first two
operands, or of the first alone, so that all are right by one rule:

inside      forward differentiates something of its own, forty times
within      backward differentiates by `torch.autograd.grad`, and with create_graph so that it can be again
runs        backward runs `.backward()` of a graph that it makes of detached copies
setup       forward without ctx, and setup_context
attribute   ctx.x = x instead of save_for_backward
output      saves its output
dirty       writes its first operand and returns it
unreturned  writes its first operand and returns another tensor
several     three outputs: a tensor, one without gradient, and a number that is no tensor
number      an operand that is no tensor, and one that is None
unmaterialized   cotangents may be None
once        backward under once_differentiable
nested      forward applies another Function under enable_grad
checkpoint  forward has a checkpoint
box         ctx keeps a list that may come to hold the output
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

Tensor = torch.Tensor


def solved(t: Tensor, steps: int = 3) -> Tensor:
    """Return t² after some derivatives of something else, as an implicit layer does."""
    for _ in range(steps):
        u = t.detach().requires_grad_()
        with torch.enable_grad():
            torch.autograd.grad((u * u + u).sum(), u)
    return t * t


def slope(t: Tensor) -> Tensor:
    """Return the derivative of t³ from a graph of its own."""
    with torch.enable_grad():
        u = t.detach().requires_grad_()
        (g,) = torch.autograd.grad((u * u * u).sum(), u)
    return g * t


def value(words: frozenset[str], x: Tensor, b: Tensor | None) -> Tensor:
    """Return what forward computes."""
    if "inside" in words:
        solved(x, 40)
    if "nested" in words:
        with torch.enable_grad():
            function("within").apply(x.detach().requires_grad_()).sum().backward()
    if "checkpoint" in words:
        with torch.enable_grad():
            u = x.detach().requires_grad_()
            checkpoint(lambda t: t.sin() * t, u, use_reentrant=False).sum().backward()
    factor = 2.0 if b is None else b.cos()
    if words & {"dirty", "unreturned"}:
        return x.mul_(factor)
    return x * factor


def pullback(words: frozenset[str], x: Tensor, b: Tensor | None, g: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return the cotangents of x and b."""
    if "within" in words:
        again = torch.is_grad_enabled()
        with torch.enable_grad():
            left = x if again and x.requires_grad else x.detach().requires_grad_()
            right = None if b is None else b if again and b.requires_grad else b.detach().requires_grad_()
            operands = [left] if right is None else [left, right]
            found = torch.autograd.grad(value(frozenset(), left, right), operands, g, create_graph=again)
        return found[0], found[1] if len(found) > 1 else None
    if "runs" in words:
        with torch.enable_grad():
            left = x.detach().requires_grad_()
            right = None if b is None else b.detach().requires_grad_()
            value(frozenset(), left, right).backward(g.detach())
        assert left.grad is not None
        return left.grad, None if right is None else right.grad
    if b is None:
        return g * 2.0, None
    return (g * b.cos()).sum_to_size(x.shape), (-g * x * b.sin()).sum_to_size(b.shape)


@cache
def function(text: str = "") -> type[Function]:
    """Make the class of these words."""
    words = frozenset(text.split())
    saves_operands = not words & {"attribute", "dirty", "unreturned"}

    def keep(ctx: Any, x: Tensor, b: Tensor | None, result: Any) -> None:
        ctx.two = b is not None
        if "unmaterialized" in words:
            ctx.set_materialize_grads(False)
        if "attribute" in words:
            ctx.x, ctx.b = x, b
        elif saves_operands:
            ctx.save_for_backward(*([x] if b is None else [x, b]), *([result] if "output" in words else []))
        elif b is not None:
            ctx.save_for_backward(b)

    def finish(ctx: Any, x: Tensor, b: Tensor | None, out: Tensor) -> Any:
        if words & {"dirty", "unreturned"}:
            ctx.mark_dirty(x)
        if "unreturned" in words:
            out = out * 1.0
        if "several" not in words:
            return out
        order = (out > 0).double()
        ctx.mark_non_differentiable(order)
        return out, order, 3

    def forward(ctx: Any, x: Tensor, b: Tensor | None = None, *rest: Any) -> Any:
        old = x.clone() if words & {"dirty", "unreturned"} else x
        out = value(words, x, b)
        keep(ctx, old, b, out)
        if words & {"dirty", "unreturned"}:
            ctx.x = old
        for box in rest:
            if isinstance(box, list):
                ctx.box = box
        return finish(ctx, x, b, out)

    def backward(ctx: Any, *cotangents: Any) -> Any:
        g, *_ = cotangents
        extra = (None,) * (len(ctx.needs_input_grad) - (2 if ctx.two else 1))
        if g is None:
            return (None, *([None] if ctx.two else []), *extra)
        if words & {"dirty", "unreturned"}:
            x, b = ctx.x, ctx.saved_tensors[0] if ctx.two else None
        elif "attribute" in words:
            x, b = ctx.x, ctx.b
        else:
            x, *others = ctx.saved_tensors
            b = others[0] if ctx.two else None
        left, right = pullback(words, x, b, g)
        return (left, *([right] if ctx.two else []), *extra)

    members: dict[str, Any] = {
        "forward": staticmethod(forward),
        "backward": staticmethod(once_differentiable(backward) if "once" in words else backward),
    }
    if "setup" in words:
        members["forward"] = staticmethod(lambda x, b=None, *rest: value(words, x, b))

        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            x, b = inputs[0], inputs[1] if len(inputs) > 1 else None
            keep(ctx, x, b, output)

        members["setup_context"] = staticmethod(setup_context)
    return type("".join(w.capitalize() for w in text.split()) or "Made", (Function,), members)
