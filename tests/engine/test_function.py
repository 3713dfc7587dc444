"""Custom functions: torch.autograd.Function unmodified, and CustomFunction, compared with torch."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch.autograd import Function, grad
from torch.autograd.function import once_differentiable

import autograd_opt as ao
from tests.engine.behaviour import caught, group, messages, worded
from tests.engine.functions import Cube, Fails

function = group("custom Function")
undefined = group("undefined / None gradients")


class Scaled(Function):
    @staticmethod
    def forward(ctx, x, scalar, y):
        ctx.scalar = scalar
        ctx.save_for_backward(x, y)
        return x + scalar * y + x * y

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g + g * y, None, g * ctx.scalar + g * x


class Inplace(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.mark_dirty(x)
        x.mul_(2)
        ctx.save_for_backward(y)
        return x

    @staticmethod
    def backward(ctx, g):
        return g * 2, None


class Identity(Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, g):
        return g * 2


class Sine(Function):
    """Saves its output and an intermediate; differentiable twice."""

    @staticmethod
    def forward(ctx, x):
        out = x.exp()
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx, g):
        out, = ctx.saved_tensors
        return g * out


@function("test_function")
def two_tensors_and_a_number(new):
    """Tensors, numbers, saved inputs, needs_input_grad."""
    x, y = new.randn(5), new.randn(5)
    Scaled.apply(x, 2.0, y).sum().backward()
    return x.grad, y.grad


@function("test_function")
def second_order_of_a_function(new):
    """A backward made of differentiable operations has a derivative."""
    x = new(1.5, -0.5)
    y = Cube.apply(x)
    g, = grad(y.sum(), x, create_graph=True)
    h, = grad(g.sum(), x, create_graph=True)
    t, = grad(h.sum(), x)
    return y, g, h, t


@function("test_custom_autograd_repeated_grad_grad")
def saved_output_in_higher_orders(new):
    """A saved output connects to the graph in every order."""
    x = new(0.3, -0.2)
    y = Sine.apply(x)
    out = [y]
    for _ in range(3):
        y, = grad(y.sum(), x, create_graph=True)
        out.append(y)
    return out


@function("test_function")
def needs_input_grad(new):
    """needs_input_grad says which arguments want a gradient."""
    seen = []

    class Asks(Function):
        @staticmethod
        def forward(ctx, x, y, n):
            seen.append(ctx.needs_input_grad)
            return x * y

        @staticmethod
        def backward(ctx, g):
            seen.append(ctx.needs_input_grad)
            return g, g, None

    x, y = new(1.0), new(2.0, grad=False)
    Asks.apply(x, y, 3).backward()
    with torch.no_grad():
        Asks.apply(x, y, 3)
    return seen, x.grad


@function("test_function_returns_input")
def returns_its_input(new):
    """An output that is the input: a new tensor with the Function's gradient."""
    x = new(1.0, 2.0)
    y = x * 1
    z = Identity.apply(y)
    z.sum().backward()
    return z is y, z, x.grad


@function("test_return_leaf")
def returns_a_leaf(new):
    """The same with a leaf."""
    class Two(Function):
        @staticmethod
        def forward(ctx, a, b):
            return a, a + b

        @staticmethod
        def backward(ctx, ga, gab):
            return ga + gab, gab

    x, y = new.randn(3), new.randn(3)
    q, p = Two.apply(x, y)
    (q + p).sum().backward()
    return q is x, q.requires_grad, x.grad, y.grad


@function("test_return_leaf_inplace")
def dirty_input_returned(new):
    """mark_dirty: the written input is the output."""
    x, y = new.randn(5), new.randn(5, grad=False)
    q = x * 1
    p = Inplace.apply(q, y)
    p.sum().backward()
    return p is q, q, x.grad


@function("test_return_leaf_inplace")
def dirty_input_without_grad(new):
    """A written input that did not require grad does afterwards, when another does."""
    class Add(Function):
        @staticmethod
        def forward(ctx, a, b):
            ctx.mark_dirty(a)
            return a.add_(b)

        @staticmethod
        def backward(ctx, g):
            return g, g

    a, b = torch.ones(3).double(), new.randn(3)
    q = Add.apply(a, b)
    q.sum().backward()
    return q is a, a.requires_grad, b.grad


@function("test_return_duplicate")
def output_returned_twice(new):
    """The same tensor in two places of the output."""
    class Duplicate(Function):
        @staticmethod
        def forward(ctx, x):
            out = x * 2
            return out, out

        @staticmethod
        def backward(ctx, g1, g2):
            return g1 * 2 + g2 * 2

    x = new.randn(3)
    a, b = Duplicate.apply(x)
    (a + b).sum().backward()
    return a is b, x.grad


@function("test_custom_function_non_tensor_inputs_outputs")
def other_arguments_and_results(new):
    """Arguments and results that are no tensors."""
    class Mixed(Function):
        @staticmethod
        def forward(ctx, t1, t2, scale, t3):
            ctx.scale = scale
            ctx.save_for_backward(t1, t2, t3)
            return scale, t1 + t2 * t3, None, True, "bar", t1

        @staticmethod
        def backward(ctx, *gs):
            _, t2, t3 = ctx.saved_tensors
            kinds = [g is None for g in gs]
            assert kinds == [True, False, True, True, True, False]
            return gs[1] + gs[5], gs[1] * t3, None, gs[1] * t2

    t1, t2, t3 = (new.randn(2) for _ in range(3))
    out = Mixed.apply(t1, t2, 5, t3)
    (out[1].sum() + out[5].sum() * 2).backward()
    return out[0], out[2], out[3], out[4], t1.grad, t2.grad, t3.grad


@function("test_custom_function_no_tensors")
def no_tensors_at_all(new):
    """A Function without tensor arguments."""
    class Plain(Function):
        @staticmethod
        def forward(ctx, a, b):
            return a + b, "x", None

        @staticmethod
        def backward(ctx, *gs):
            return None, None

    return list(Plain.apply(1, 2))


@function("test_custom_function_setup_context_simple")
def setup_context(new):
    """forward without ctx and setup_context."""
    class Square(Function):
        @staticmethod
        def forward(x):
            return x ** 2

        @staticmethod
        def setup_context(ctx, inputs, output):
            x, = inputs
            ctx.save_for_backward(x)

        @staticmethod
        def backward(ctx, g):
            x, = ctx.saved_tensors
            return g * 2 * x

    x = new.randn(3)
    y = Square.apply(x)
    g, = grad(y.sum(), x, create_graph=True)
    h, = grad(g.sum(), x)
    return g, h


@function("test_custom_function_setup_context_multi_output")
def setup_context_with_several_outputs(new):
    """setup_context sees the tuple of outputs, some of them no tensors."""
    class Square(Function):
        @staticmethod
        def forward(x):
            return x ** 2, x * 2, "text"

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(inputs[0], output[1])

        @staticmethod
        def backward(ctx, g, gtwice, gtext):
            twice = ctx.saved_tensors[1]
            return g * twice + gtwice * 2

    x = new.randn(3)
    a, b, c = Square.apply(x)
    (a + b).sum().backward()
    return a, b, c, x.grad


@function("test_custom_function_setup_context_multi_input")
def setup_context_with_several_inputs(new):
    """setup_context sees every argument."""
    class Shaped(Function):
        @staticmethod
        def forward(x, shape, forward_scale, backward_scale):
            return x.reshape(shape) * forward_scale

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.shape, ctx.scale = inputs[0].shape, inputs[3]

        @staticmethod
        def backward(ctx, g):
            return g.reshape(ctx.shape) * ctx.scale, None, None, None

    x = new.randn(2, 3)
    y = Shaped.apply(x, (3, 2), 2.0, 5.0)
    y.sum().backward()
    return y, x.grad


@function("test_setup_context_when_forward_has_default_args")
def default_arguments(new):
    """Default values of forward reach setup_context."""
    class Power(Function):
        @staticmethod
        def forward(x, p=2):
            return x ** p

        @staticmethod
        def setup_context(ctx, inputs, output):
            x, ctx.p = inputs
            ctx.save_for_backward(x)

        @staticmethod
        def backward(ctx, g):
            x, = ctx.saved_tensors
            return g * ctx.p * x ** (ctx.p - 1), None

    x = new(2.0, 3.0)
    (Power.apply(x) + Power.apply(x, 3)).sum().backward()
    return x.grad


@function("test_save_none_for_backward")
def saving_none(new):
    """None may be saved."""
    class Some(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(None, x, None)
            return x * x

        @staticmethod
        def backward(ctx, g):
            n1, x, n2 = ctx.saved_tensors
            assert n1 is None
            assert n2 is None
            return 2 * x * g

    x = new.randn(3)
    Some.apply(x).sum().backward()
    return x.grad


@function("test_save_output_nr")
def saved_output_of_several(new):
    """Saving the second output."""
    class Multi(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x, x + x

        @staticmethod
        def backward(ctx, g1, g2):
            return g1 + 2 * g2

    class Keeps(Function):
        @staticmethod
        def forward(ctx, a, b):
            ctx.save_for_backward(b)
            return b * 3

        @staticmethod
        def backward(ctx, g):
            b, = ctx.saved_tensors
            return None, g * 3 + 0 * b

    x = new.randn(3)
    b = Multi.apply(x)
    Keeps.apply(*b).sum().backward()
    return x.grad, [t.output_nr for t in b]


@function("test_too_many_grads")
def trailing_nones(new):
    """Extra trailing None gradients are accepted."""
    class Extra(Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            return g, None, None

    x = new.randn(3)
    Extra.apply(x).sum().backward()
    return x.grad


@function("test_mark_non_differentiable")
def non_differentiable_output(new):
    """mark_non_differentiable."""
    class Positive(Function):
        @staticmethod
        def forward(ctx, x):
            out = x > 0
            ctx.mark_non_differentiable(out)
            return out

        @staticmethod
        def backward(ctx, g):
            return (g * 0).double()

    x = new.randn(5)
    mask = Positive.apply(x)
    x.masked_fill(mask, 0).sum().backward()
    return mask.requires_grad, x.grad


@function("test_mark_non_differentiable_mixed")
def one_output_non_differentiable(new):
    """One differentiable output beside one that is not; its cotangent is zeros."""
    class Mixed(Function):
        @staticmethod
        def forward(ctx, x):
            a, b = x + 1, x + 2
            ctx.mark_non_differentiable(a)
            return a, b

        @staticmethod
        def backward(ctx, ga, gb):
            assert (ga == 0).all()
            return gb

    x = new.randn(5)
    a, b = Mixed.apply(x)
    b.sum().backward()
    return a.requires_grad, b.requires_grad, x.grad


@function("test_no_grad_python_function")
def no_grad_around_a_function(new):
    """Under no_grad a Function's result has no history."""
    x = new.randn(3)
    with torch.no_grad():
        y = Cube.apply(x)
    return y.requires_grad, y.grad_fn


@function("test_no_grad_input")
def no_argument_requires_grad(new):
    """Without an argument that requires grad there is no history."""
    return Cube.apply(new.randn(3, grad=False)).requires_grad


@function("test_dep_nograd")
def constant_between_functions(new):
    """A Function between a detached result and a leaf."""
    class First(Function):
        @staticmethod
        def forward(ctx, x):
            out = torch.randn(x.size()).double() * 0
            ctx.mark_non_differentiable(out)
            return x, out

        @staticmethod
        def backward(ctx, g, _):
            return g

    class Second(Function):
        @staticmethod
        def forward(ctx, x, y):
            return x

        @staticmethod
        def backward(ctx, g):
            return g, None

    x = new.randn(5)
    a, b = First.apply(x)
    b = b + a
    Second.apply(a, b).sum().backward()
    return x.grad


@function("test_autograd_python_custom_function_inplace")
def inplace_after_saving(new):
    """A written input that the Function had saved is an error in backward."""
    class Saves(Function):
        @staticmethod
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return a * b

        @staticmethod
        def backward(ctx, g):
            a, b = ctx.saved_tensors
            return g * b, g * a

    a, b = new.randn(2), new.randn(2)
    c, d = a * 1, b * 1
    out = Saves.apply(c, d)
    c.add_(1)
    return caught(lambda: out.sum().backward())


@function("test_custom_function_inplace_on_view_of_leaf")
def dirty_view_of_a_leaf(new):
    """Neither leaves nor views of leaves may be dirty."""
    x, y = new.randn(3), new.randn(3, grad=False)
    return caught(lambda: Inplace.apply(x, y)), caught(lambda: Inplace.apply(x.view_as(x), y))


@function("test_custom_function_inplace_on_non_default_view")
def dirty_view(new):
    """A dirty view carries the write to its base."""
    class Zero(Function):
        @staticmethod
        def forward(ctx, x):
            x.mul_(3)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx, g):
            return g * 3

    x = new.randn(4)
    base = x * 1
    view = base.narrow(0, 0, 2)
    Zero.apply(view)
    base.sum().backward()
    return base, x.grad


@function("test_autograd_simple_views_python")
def writing_a_view_made_by_a_function(new):
    """A view that a Function returned cannot be written."""
    class View(Function):
        @staticmethod
        def forward(ctx, x):
            return x.view_as(x)

        @staticmethod
        def backward(ctx, g):
            return g

    v, i = View.apply(new.randn(3) * 1), Identity.apply(new.randn(3) * 1)
    return caught(lambda: v.add_(1), 12), caught(lambda: i.add_(1), 12)


@function("test_custom_function_error")
def missing_methods(new):
    """Missing or doubled methods."""
    class NoForward(Function):
        @staticmethod
        def backward(ctx, g):
            return g

    class NoBackward(Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

    class Both(NoBackward):
        @staticmethod
        def backward(ctx, g):
            return g

        @staticmethod
        def vjp(ctx, g):
            return g

    x = new.randn(2)
    return (caught(lambda: NoForward.apply(x)), caught(lambda: NoBackward.apply(x).sum().backward()),
            caught(lambda: Both.apply(x).sum().backward()))


@function("test_custom_function_error")
def vjp_is_another_name(new):
    """backward may be called vjp."""
    class Twice(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def vjp(ctx, g):
            return g * 2

    x = new.randn(2)
    Twice.apply(x).sum().backward()
    return x.grad


@function("test_custom_function_exception")
def exception_in_backward(new):
    """An exception of a backward reaches the caller; a correct step follows."""
    x = new.randn(2)
    first = caught(lambda: (Fails.apply(x) * x).sum().backward())
    partly = x.grad
    x.grad = None
    (x * x).sum().backward()
    return first, partly is None or partly.shape, x.grad, torch.is_grad_enabled()


@function("test_too_many_grads")
def wrong_results_of_backward(new):
    """Too many, too few, wrong shape, wrong type."""
    def returning(*results, n=1):
        class Wrong(Function):
            @staticmethod
            def forward(ctx, *xs):
                return sum(xs)

            @staticmethod
            def backward(ctx, g):
                return results if len(results) > 1 else results[0]
        xs = [new.randn(2) for _ in range(n)]
        return caught(lambda: Wrong.apply(*xs).sum().backward(), 18)

    one = torch.ones(2).double()
    return returning(one, one), returning(one, n=2), returning(torch.ones(7).double()), returning(3)


@function("test_once_differentiable")
def once(new):
    """once_differentiable: first order works without recording, second raises."""
    seen = []

    class Once(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x ** 2

        @staticmethod
        @once_differentiable
        def backward(ctx, g):
            seen.append(torch.is_grad_enabled())
            x, = ctx.saved_tensors
            return g * 2 * x

    x = new(1.0, 2.0)
    y = Once.apply(x)
    g, = grad(y.sum(), x, create_graph=True)
    second = caught(lambda: (g * x).sum().backward(), 25)
    return g.detach(), seen, second


@function("test_clear_saved_tensors_on_access")
def clears_on_access(new):
    """clear_saved_tensors_on_access: the second read raises."""
    class Clears(Function):
        clear_saved_tensors_on_access = True

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            second = caught(lambda: ctx.saved_tensors, 8)
            assert not isinstance(second, tuple)
            return g * 2 * x

    x = new.randn(3)
    Clears.apply(x).sum().backward()
    return x.grad


@function("test_saved_variables_deprecated")
def old_name_of_saved_tensors(new):
    """saved_variables warns."""
    class Old(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_variables
            return g * 2 + 0 * x

    x = new.randn(2)
    kinds = messages(lambda: Old.apply(x).sum().backward())
    return [k is DeprecationWarning for k in kinds], x.grad


@function("test_naughty_autograd_function_stashing_ctx")
def context_used_after_backward(new):
    """Saved tensors cannot be read after the graph was freed."""
    kept = []

    class Stash(Function):
        @staticmethod
        def forward(ctx, x):
            kept.append(ctx)
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    x = new.randn(2)
    y = Stash.apply(x).sum()
    y.backward(retain_graph=True)
    before = kept[0].saved_tensors[0].detach().clone()
    y.backward()
    return before, x.grad


@function("test_preserve_backtrace")
def traceback_shows_the_line(new):
    """The traceback of an exception shows the line in the user's backward."""
    import traceback

    class Foo(Function):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, *gs):
            raise ValueError("something")

    t = new.randn(10)
    try:
        Foo.apply(t).sum().backward()
    except ValueError as error:
        return "raise ValueError" in "".join(traceback.format_tb(error.__traceback__))
    return False


@function("test_custom_function_local_inplace")
def inplace_inside_forward(new):
    """Writing a temporary inside forward."""
    class Inner(Function):
        @staticmethod
        def forward(ctx, x, inplace):
            view = x.clone()[:3]
            if inplace:
                view += 2
            return view

        @staticmethod
        def backward(ctx, g):
            out = torch.zeros(10).double()
            out[:3] = g
            return out, None

    x = new(torch.ones(10))
    Inner.apply(x, True).sum().backward()
    return x.grad


@function("test_function")
def function_inside_a_function(new):
    """A Function's forward may call another Function."""
    class Outer(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return Cube.apply(x) * 2

        @staticmethod
        def backward(ctx, g):
            x, = ctx.saved_tensors
            with torch.enable_grad():
                y = x.detach().requires_grad_()
                out, = grad(Cube.apply(y) * 2, y, g)
            return out

    x = new(1.0, 2.0)
    Outer.apply(x).sum().backward()
    return x.grad


@function("test_function")
def keyword_attributes(new):
    """Attributes of ctx survive to backward."""
    class Keeps(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.note = {"k": 3}
            ctx.shape = x.shape
            return x.sum() * 3

        @staticmethod
        def backward(ctx, g):
            return g.expand(ctx.shape) * ctx.note["k"]

    x = new.randn(2, 2)
    Keeps.apply(x).backward()
    return x.grad


@function("test_custom_autograd_no_early_free")
def saved_values_outlive_create_graph(new):
    """create_graph keeps what a Function saved."""
    x = new(1.0, 2.0)
    y = Sine.apply(Cube.apply(x))
    g, = grad(y.sum(), x, create_graph=True)
    y.sum().backward(retain_graph=True)
    g.sum().backward()
    return x.grad


# ----- undefined gradients -----
@undefined("test_function_returns_undefined_tensor")
def none_stays_none(new):
    """None from a backward leaves .grad None."""
    class Nothing(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return None

    x = new.randn(2)
    Nothing.apply(x).sum().backward()
    first = x.grad
    y = new.randn(2)
    Nothing.apply(y * 2).sum().backward()
    z = new.randn(2)
    (Nothing.apply(z) + z).sum().backward()
    return first, y.grad, z.grad, grad(Nothing.apply(x).sum(), x, allow_unused=True)


@undefined("test_materialize_grads")
def missing_cotangent_is_zeros(new):
    """A missing cotangent arrives as zeros, or as None on request."""
    def made(materialize):
        class Two(Function):
            @staticmethod
            def forward(ctx, x):
                ctx.set_materialize_grads(materialize)
                return x * 1, x * 2

            @staticmethod
            def backward(ctx, g1, g2):
                seen.append(g2 is None)
                return g1 if g2 is None else g1 + g2
        return Two

    seen = []
    x = new.randn(3)
    for flag in (True, False):
        a, _ = made(flag).apply(x)
        a.sum().backward()
    return seen, x.grad


@undefined("test_dont_materialize_grads")
def undefined_cotangent(new):
    """An undefined cotangent of one branch."""
    class Drops(Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            return None

    x, y = new.randn(3), new.randn(3)
    (Drops.apply(x.exp()) + y).sum().backward()
    return x.grad, y.grad


@undefined("test_mark_non_differentiable_none")
def non_differentiable_and_none(new):
    """Non-differentiable outputs beside None."""
    class Some(Function):
        @staticmethod
        def forward(ctx, x):
            out = x + 1
            ctx.mark_non_differentiable(out)
            return None, out, x * 2

        @staticmethod
        def backward(ctx, g0, g1, g2):
            return g2 * 2

    x = new.randn(3)
    n, a, b = Some.apply(x)
    b.sum().backward()
    return n, a.requires_grad, x.grad


@undefined("test_set_materialize_non_diff_grads")
def unused_outputs(new):
    """Only one of three outputs is used."""
    class Three(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1, x * 2, x * 3

        @staticmethod
        def backward(ctx, a, b, c):
            return a + 2 * b + 3 * c

    x = new.randn(3)
    Three.apply(x)[1].sum().backward()
    return x.grad


test_functions = function.check()
test_undefined = undefined.check()


# ----- CustomFunction: the same protocol under this library's name -----
class Swish(ao.CustomFunction):
    @staticmethod
    def forward(ctx, x):
        s = torch.sigmoid(x)
        ctx.save_for_backward(x, s)
        return x * s

    @staticmethod
    def backward(ctx, g):
        x, s = ctx.saved_tensors
        return g * (s + x * torch.sigmoid(x) * (1 - torch.sigmoid(x)))


@pytest.mark.parametrize("optimize", [False, True])
def test_custom_function_equals_the_composition(optimize):
    x, y = (ao.tensor([0.5, -1.0], dtype=torch.float64) for _ in range(2))
    with ao.AutogradGraph(optimize=optimize):
        Swish.apply(x).sum().backward()
        (y * torch.sigmoid(y)).sum().backward()
    assert torch.allclose(x.grad, y.grad)


def test_custom_function_outside_a_context_is_torchs():
    x = torch.tensor([0.5], requires_grad=True)
    Swish.apply(x).backward()
    assert x.grad is not None


@pytest.mark.parametrize("optimize", [False, True])
def test_equal_calls_of_a_function_stay_two(optimize):
    calls = []

    class Counts(ao.CustomFunction):
        @staticmethod
        def forward(ctx, x):
            calls.append(1)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            calls.append(2)
            return g * 2

    x = ao.tensor([1.0])
    with ao.AutogradGraph(optimize=optimize):
        (Counts.apply(x) + Counts.apply(x)).sum().backward()
    assert calls == [1, 1, 2, 2]
    assert x.grad.tolist() == [4.0]


@pytest.mark.parametrize("optimize", [False, True])
def test_a_functions_context_dies_with_its_result(optimize):
    class Thing:
        pass

    class Holds(ao.CustomFunction):
        @staticmethod
        def forward(ctx, x, thing):
            ctx.thing = thing
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2, None

    gc.disable()
    try:
        x = ao.tensor([1.0])
        with ao.AutogradGraph(optimize=optimize):
            thing = Thing()
            ref = weakref.ref(thing)
            y = Holds.apply(x, thing)
            del thing
            assert ref() is not None
            del y
            assert ref() is None
    finally:
        gc.enable()


class Returns(Function):
    """Saves its operands, and returns them as they are."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x, y

    @staticmethod
    def backward(ctx, *gs):
        return tuple(g * t for g, t in zip(gs, ctx.saved_tensors, strict=True))


class ReturnsOneWithout(Returns):
    @staticmethod
    def forward(ctx, x, y):
        ctx.mark_non_differentiable(x)
        return Returns.forward(ctx, x, y)


class ReturnsInSetup(Function):
    @staticmethod
    def forward(x, y):
        return x, y * 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g, h):
        return g, h


def returned(cls, view, twice):
    x, y = torch.full((3,), 2.0, requires_grad=True), torch.full((3,), 3.0, requires_grad=True)
    a, b = ((x * 3)[1:], y[1:]) if view else (x, y)
    try:
        o, p = cls.apply(a, b)
    except RuntimeError as error:
        return worded(error)[1][:60]
    found = torch.autograd.grad((o * 2).sum() + (p * p).sum(), [x, y], create_graph=twice, allow_unused=True)
    if twice:
        sum(g.square().sum() for g in found if g is not None).backward()
    return [None if t is None else t.tolist() for t in (*found, x.grad, y.grad)], o._is_view(), o.requires_grad


@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("view", [False, True])
@pytest.mark.parametrize("cls", [Returns, ReturnsOneWithout, ReturnsInSetup])
def test_operands_saved_and_returned(cls, view, twice):
    expected = returned(cls, view, twice)
    for optimize in (False, True):
        with ao.AutogradGraph(optimize=optimize):
            assert returned(cls, view, twice) == expected


@pytest.mark.parametrize("apart", [False, True], ids=["ctx", "setup_context"])
@pytest.mark.parametrize("optimize", [False, True, "exact"])
def test_a_saved_output_has_its_history_in_backward(optimize, apart):
    """Functions differentiate at their output: torch gives it back as what it is, also where gradients are off."""
    seen = []

    class Root(Function):
        @staticmethod
        def forward(ctx, p):
            y = p.sqrt()
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, g):
            (y,) = ctx.saved_tensors
            seen.append((y.requires_grad, y.is_leaf, y.grad_fn is not None, torch.is_grad_enabled()))
            with torch.enable_grad():
                square = y * y
            (slope,) = torch.autograd.grad(square, y, torch.ones_like(y), create_graph=torch.is_grad_enabled())
            return g / slope

    class Apart(Root):
        forward = staticmethod(lambda p: p.sqrt())
        setup_context = staticmethod(lambda ctx, inputs, output: ctx.save_for_backward(output))

    def program():
        found = []
        for operand in (lambda p: p, lambda p: p * 1):
            p = torch.tensor([1.0, 4.0], requires_grad=True)
            (Apart if apart else Root).apply(operand(p)).sum().backward()
            (g,) = torch.autograd.grad((Apart if apart else Root).apply(operand(p)).sum(), p, create_graph=True)
            found += [p.grad.tolist(), g.tolist(), torch.autograd.grad(g.sum(), p)[0].tolist()]
        return found

    expected = program()
    theirs = list(seen)
    seen.clear()
    with ao.AutogradGraph(optimize=optimize):
        assert program() == expected
    assert seen == theirs
