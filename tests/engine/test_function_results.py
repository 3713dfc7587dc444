"""Results of custom Functions that are operands, views, or written."""

from __future__ import annotations

import gc
import warnings

import torch
from torch.autograd import Function

from tests.engine.behaviour import caught, group
from tests.engine.functions import Double

results = group("custom Function: results written, returned twice, and viewed")


@results("test_legacy_function_deprecation_exception")
def old_style_functions(new):
    """Functions with methods that are not static are refused."""
    class Old(Function):
        def forward(self, x):
            return x

        def backward(self, g):
            return g

    return caught(lambda: Old()(new(1.0)), 12)


@results("test_custom_function_vmap_defaults")
def no_vmap_rule_by_default(new):
    """A Function has no vmap rule of its own by default."""
    Double.apply(new(1.0)).backward()
    return Double.generate_vmap_rule, hasattr(Double, "vmap")


@results("test_custom_function_mark_output_view_of_intermediate")
def view_of_an_intermediate(new):
    """An output that is a view of a temporary."""
    class F(Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone().view_as(x)

        @staticmethod
        def backward(ctx, g):
            return g * 2

    x = new(1.0, 2.0)
    F.apply(x).sum().backward()
    return x.grad


@results("test_clear_saved_tensors_on_access_double_access_error")
def cleared_values_read_twice(new):
    """Values cleared on access cannot be read again."""
    class F(Function):
        clear_saved_tensors_on_access = True

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            ctx.saved_tensors
            return g * ctx.saved_tensors[0]

    x = new(1.0, 2.0)
    return isinstance(caught(lambda: F.apply(x).sum().backward()).type(), RuntimeError), x.grad


@results("test_autograd_multiple_views_python")
def several_views_returned(new):
    """Several views returned by one Function cannot be written."""
    class F(Function):
        @staticmethod
        def forward(ctx, x):
            return x[:2], x[2:]

        @staticmethod
        def backward(ctx, a, b):
            return torch.cat([a, b])

    x = new.randn(4)
    a, b = F.apply(x.clone())
    refused = caught(lambda: a.mul_(2), 9)
    (a * 2 + b).sum().backward()
    return refused, x.grad


@results("test_inplace_not_requires_grad")
def view_of_a_constant(new):
    """A view of a constant beside an argument that requires grad."""
    class F(Function):
        @staticmethod
        def forward(ctx, a, b):
            return a.view_as(a)

        @staticmethod
        def backward(ctx, g):
            return g, g

    a = torch.randn(3).double()
    b = new.randn(3)
    out = F.apply(a, b)
    out.sum().backward()
    return out.requires_grad, b.grad


@results("test_custom_function_saving_mutated_view_no_leak")
def saving_a_written_view(new):
    """A Function that saves and writes a view."""
    class F(Function):
        @staticmethod
        def forward(ctx, x):
            view = x.clone()[:2]
            view.mul_(2)
            ctx.save_for_backward(view)
            return view * 1

        @staticmethod
        def backward(ctx, g):
            out = torch.zeros(4).double()
            out[:2] = g * 2 + 0 * ctx.saved_tensors[0]
            return out

    x = new.randn(4)
    F.apply(x).sum().backward()
    return x.grad


@results("test_inplace_on_view_undefined_grad_output")
def undefined_through_a_written_view(new):
    """One output of a Function that writes is not used."""
    class F(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            x.mul_(2)
            return x, x.detach() * 3

        @staticmethod
        def backward(ctx, g, h):
            return g * 2 + h * 0

    a = new.randn(3)
    b = a.clone()
    F.apply(b)[0].sum().backward()
    return a.grad


@results("test_gc_in_destructor")
def collected_during_backward(new):
    """The collector runs while a graph is differentiated."""
    class F(Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            gc.collect()
            return g * 2

    x = new(1.0)
    F.apply(F.apply(x)).backward()
    gc.collect()
    return x.grad


class DoubleInplace(Function):
    @staticmethod
    def forward(ctx, x):
        x.mul_(2)
        ctx.mark_dirty(x)
        return x, x

    @staticmethod
    def backward(ctx, g1, g2):
        return g1 * 2 + g2 * 2


@results("test_return_duplicate_inplace")
def written_and_returned_twice(new):
    """A written input returned twice; leaves and views refused"""
    x = new.randn(3)
    a, b = DoubleInplace.apply(x.clone())
    (a + b).sum().backward()
    of_a_leaf = caught(lambda: DoubleInplace.apply(x), 20)
    return a is b, x.grad, of_a_leaf, caught(lambda: DoubleInplace.apply(x.clone()[0]), 0)


@results("test_custom_function_mark_dirty_not_differentiable")
def written_without_gradient(new):
    """mark_dirty where nothing requires grad returns the tensor itself"""
    x = new(1.0, 2.0, grad=False)
    a, b = DoubleInplace.apply(x)
    return a is x, b is x, a.requires_grad, x


@results("test_custom_function_return_view_in_nograd")
def view_returned_under_no_grad(new):
    """A view made by a Function under no_grad cannot be written under grad mode"""
    class Alias(Function):
        @staticmethod
        def forward(ctx, x):
            return x[:]

        @staticmethod
        def backward(ctx, g):
            return g

    x = new.randn(2)
    with torch.no_grad():
        out, expected = Alias.apply(x), x[:]
    return out.detach(), caught(lambda: out.zero_(), 0), caught(lambda: expected.zero_(), 0)


@results("test_custom_function_preserve_torch_function_when_return_as_is")
def class_of_what_is_returned(new):
    """A subclass with a torch function keeps its class through a Function that returns it as it is"""
    class Custom(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return super().__torch_function__(func, types, args, kwargs or {})

    class Same(Function):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, g):
            return g

    x = torch.randn(2).as_subclass(Custom)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")                 # a context says once that it does not ask the torch function
        return type(Same.apply(x)).__name__


test_function_results = results.check()
