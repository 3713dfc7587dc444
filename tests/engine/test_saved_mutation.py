"""What is saved may be written: torch's mode that keeps the values from before."""

from __future__ import annotations

import torch
from torch.autograd import grad
from torch.autograd.graph import (
    allow_mutation_on_saved_tensors,
)

from tests.engine.behaviour import caught, group

mutation = group("saved tensors: allow_mutation_on_saved_tensors")


def mutated(program):
    """The program under the mode; what it returns, and how much was cloned."""
    with allow_mutation_on_saved_tensors() as ctx:
        out = program()
        return out, len(ctx.cloned) > 0


@mutation("test_basic")
def write_of_a_saved_value(new):
    """A saved value that is overwritten is cloned first."""
    a = new(torch.rand(2, 3))

    def program():
        b = a.clone()
        out = (b ** 2).sin()
        b.sin_()
        out.sum().backward()
        return a.grad
    return mutated(program)


@mutation("test_views")
def write_of_a_view_of_it(new):
    """A write through a view of a saved value."""
    a = new(torch.rand(2, 3))

    def program():
        b = a.clone()
        c = b.view_as(b)
        out = (b ** 2).sin()
        c.sin_()
        out.sum().backward()
        return a.grad
    return mutated(program)


@mutation("test_save_base_and_modify_view")
def saved_base_written_view(new):
    """The base is saved, a view is written."""
    a = new(torch.rand(2, 3))

    def program():
        b = a.clone()
        c = b[:1]
        out = b ** 2
        c *= 10
        out.sum().backward()
        return a.grad, b
    return mutated(program)


@mutation("test_save_view_modify_base")
def saved_view_written_base(new):
    """A view is saved, the base is written."""
    a = new(torch.rand(2, 3))

    def program():
        b = a.clone()
        c = b[:]
        out = (c ** 2).sum()
        b *= 2
        out.backward()
        return a.grad
    return mutated(program)


@mutation("test_double_backward")
def write_and_second_order(new):
    """A second derivative of overwritten values."""
    a = new(torch.rand(2, 3))

    def program():
        b = a.clone()
        out = (b ** 2).sin()
        b.sin_()
        g, = grad(out.sum(), a, create_graph=True)
        h, = grad(g.sum(), a)
        return g.detach(), h
    return mutated(program)


@mutation("test_saved_same_tensor_many_times")
def saved_many_times(new):
    """One value saved by several operations."""
    a = new(torch.rand(2, 3))

    def program():
        b = a.clone()
        c, d, e = b ** 2, b ** 2, b ** 3
        b.sin_()
        (c + d + e).sum().backward()
        return a.grad
    return mutated(program)


@mutation("test_saved_same_tensor_different_versions")
def saved_at_several_versions(new):
    """One tensor saved between writes."""
    a = new(torch.rand(2, 3))

    def program():
        b = a.clone()
        c = b ** 2
        b.sin_()
        d = b ** 2
        b.sin_()
        (c + d).sum().backward()
        return a.grad
    return mutated(program)


@mutation("test_with_out_variant")
def overwritten_by_out(new):
    """A saved constant overwritten by out=."""
    a, b = new(torch.rand(2, 3)), torch.rand(2, 3).double()

    def program():
        d = a * b
        torch.sin(b.clone(), out=b)
        d.sum().backward()
        return a.grad
    return mutated(program)


@mutation("test_inplace_foreach")
def overwritten_by_foreach(new):
    """Saved constants overwritten by a foreach form."""
    a, b = new(torch.rand(3)), [torch.rand(3).double(), torch.rand(3).double()]

    def program():
        d = a * b[0] + a * a * b[1]
        torch._foreach_add_(b, 1.0)
        d.sum().backward()
        return a.grad
    return mutated(program)


@mutation("test_disallow_nesting")
def not_nested(new):
    """The mode does not nest."""
    def program():
        with allow_mutation_on_saved_tensors(), allow_mutation_on_saved_tensors():
            pass
    return caught(program, 20), new(1.0)


@mutation("")
def allowed_mutation(new):
    """allow_mutation_on_saved_tensors: values written after they were saved."""
    x = new(1.0, 2.0)
    with torch.autograd.graph.allow_mutation_on_saved_tensors():
        a = x.clone()
        b = (a * a).sum()
        a.add_(1)
        c = (a * a).sum()
        a.zero_()
        (b + c).backward()
    return x.grad


@mutation("test_backward_out_of_context")
def mutation_mode_left_before_backward(new):
    """Backward outside the mode that kept the clones, and inside another one"""
    x = new.randn(2, 3)
    with allow_mutation_on_saved_tensors():
        out = (x ** 2).sum()
    first = caught(out.backward, 25)
    with allow_mutation_on_saved_tensors():
        out = (x ** 2).sum()
    with allow_mutation_on_saved_tensors():
        second = caught(out.backward, 25)
    return first, second


@mutation("test_with_math_views")
def mutation_of_conjugate_views(new):
    """A saved conjugate whose base is written under the mode"""
    x = torch.tensor([1.0 + 1j, 2.0 - 3j], dtype=torch.complex128).requires_grad_()
    with allow_mutation_on_saved_tensors():
        b = x.clone()
        c = b.conj()
        out = (c ** 2).abs()
        b.sin_()
        out.sum().backward()
    return x.grad


test_saved_mutation = mutation.check()
