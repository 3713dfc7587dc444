"""`x.set_(...)`: other memory for a tensor, which torch shows to no torch-function mode."""

from __future__ import annotations

import torch
from torch.autograd.graph import get_gradient_edge

from tests.engine.behaviour import caught, group

memory = group("leaf semantics, requires_grad, .data (set_)")
ONES = [1.0, 1.0, 1.0]


def ones(*size: int) -> torch.Tensor:
    return torch.ones(*size or (3,), dtype=torch.float64)


@memory("test_grad_to_node_set")
def a_leaf_with_other_memory_is_another(new):
    """grad() no longer finds a leaf that was given other memory; its edge does."""
    x = new(0.5, -1.0, 2.0)
    edge = torch.autograd.graph.get_gradient_edge(x)
    out = x.clone()
    with torch.no_grad():
        x.set_(ones())
    return caught(lambda: torch.autograd.grad(out.sum(), x)), torch.autograd.grad(out.sum(), edge), x


@memory("test_parameter_resize")
def a_parameter_shrinks(new):
    """A parameter set to a part of itself, between two steps."""
    p, seen = torch.nn.Parameter(ones(16)), []
    for _ in range(2):
        with torch.no_grad():
            p.set_(p[1:])
            p.grad = None
        torch.cat((p, p)).sum().backward()
        seen.append(p.grad)
    return seen, p.shape


@memory("")
def set_of_a_leaf_is_refused(new):
    """With grad mode on, torch refuses set_ as a write."""
    x = new(0.5, -1.0, 2.0)
    return caught(lambda: x.set_(ones())), x


@memory("")
def both_leaves_accumulate(new):
    """Gradients of the leaf before and after arrive at one tensor, in order, through its hooks."""
    x, seen = new(0.5, -1.0, 2.0), []
    y = x.exp().sum()
    x.register_hook(lambda g: g * 2)
    x.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad.clone()))
    with torch.no_grad():
        x.set_(ones())
    (y + (x * 3).sum()).backward()
    return x.grad, seen


@memory("")
def a_saved_leaf_was_given_other_memory(new):
    """A rule that has saved the tensor detects set_ and raises."""
    x = new(0.5, -1.0, 2.0)
    y = x * x
    with torch.no_grad():
        x.set_(ones())
    return caught(lambda: y.sum().backward())


@memory("")
def a_constant_with_other_memory(new):
    """A value computed from a constant is not reused after set_."""
    x, c, d = new(0.5, -1.0, 2.0), ones(), ones() * 2
    y = (x + c).exp()
    c.set_(d)
    z = (x + c).exp()
    d.add_(1)
    w = (x + c).exp()
    (y + z + w).sum().backward()
    return y, z, w, x.grad


@memory("")
def an_intermediate_with_other_memory(new):
    """An intermediate after set_: its value, its flag and the error in backward."""
    x = new(0.5, -1.0, 2.0)
    a = x * 2
    b = a.sin()
    with torch.no_grad():
        a.set_(ones())
    return a, a.requires_grad, caught(lambda: b.sum().backward())


@memory("")
def a_leaf_of_another_shape(new):
    """Steps after a change of shape."""
    x = new(0.5, -1.0, 2.0)
    with torch.no_grad():
        x.set_(ones(2, 2))
    (x * x).sum().backward()
    return x.grad, x.shape


test_set = memory.check()


def test_outside_a_context_it_is_torchs() -> None:
    x = ones().requires_grad_()
    with torch.no_grad():
        x.set_(ones(2))
    assert x.shape == (2,)
    assert get_gradient_edge(x) is not None
