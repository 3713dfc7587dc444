"""Runs of backward and grad: arguments, order, callbacks, threads."""

from __future__ import annotations

import gc
import threading
import warnings
from typing import Any

import torch
from torch.autograd import Function, Variable, grad

from tests.engine.behaviour import caught, group, messages

Tensor = torch.Tensor
runs = group("backward and grad: arguments, order, callbacks")


@runs("")
def inputs_as_a_dict(new):
    """grad with a dict of inputs returns a dict.

    Up to torch 2.12 it is an error.
    """
    x, y = new(1.0, 2.0), new(3.0, 4.0)
    return caught(lambda: grad((x * y).sum(), {"a": x, "b": y}))


@runs("")
def inputs_that_are_no_tensors(new):
    """Inputs that are no tensors are refused in grad and in backward(inputs=)."""
    y = (new(1.0, 2.0) * 2).sum()
    return caught(lambda: grad(y, ["a"])), caught(lambda: grad(y, 3.0)), caught(lambda: y.backward(inputs=["a"]))


@runs("")
def only_inputs_is_deprecated(new):
    """only_inputs=False warns."""
    x = new(1.0, 2.0)
    return messages(lambda: grad((x * x).sum(), x, only_inputs=False))


@runs("")
def the_same_input_twice(new):
    """One input named twice, in grad and in backward(inputs=)."""
    x = new(1.0, 2.0)
    a, b = grad((x * x).sum(), [x, x])
    y = x * 3
    (y * y).sum().backward(inputs=[x, x])
    (x * 2).sum().backward(inputs=[x, x, x])
    return a, b, x.grad


@runs("")
def a_root_as_its_own_input(new):
    """The gradient of a root with respect to itself, and of a leaf root."""
    x = new.scalar(2.0)
    y = x * x
    first = grad(y, [y, x], retain_graph=True)
    x.backward()
    (y * 1).backward(inputs=[y, x])
    return first, grad(x, x), x.grad, y.grad


@runs("")
def cotangents_of_other_types(new):
    """A cotangent of another precision; an expanded and a transposed one; none is written."""
    x = new([[1.0, 2.0], [3.0, 4.0]])
    narrow, wide = torch.ones(2, 2), torch.ones(1, dtype=torch.float64).expand(2, 2)
    turned = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64).t()
    y = x * 2
    out = [grad(y, x, g, retain_graph=True)[0] for g in (narrow, wide, turned)]
    (y + x).backward(turned)
    x.grad.add_(1)
    return out, x.grad, narrow, wide, turned, x.grad.stride()


@runs("")
def an_integer_root(new):
    """Integer and boolean roots, and roots without a graph."""
    x = new(1.0, 2.0)
    return [caught(lambda t=t: t.backward(torch.ones_like(t)), 40)
            for t in (x.long(), x > 0, x.detach(), (x * 2).argmax(), (x * 2).round().detach())]


@runs("")
def none_among_the_cotangents(new):
    """None beside a tensor, and a list of the wrong length."""
    x = new(1.0, 2.0)
    y, z = x.exp(), (x * x).sum()
    first = grad([y, z], x, [torch.ones(2).double(), None], retain_graph=True)
    return (first, caught(lambda: grad([y, z], x, [None, None], retain_graph=True), 40),
            caught(lambda: grad([y, z], x, [torch.ones(2).double()], retain_graph=True), 20),
            caught(lambda: torch.autograd.backward([z], [None, None]), 20))


@runs("")
def materialized_zeros(new):
    """Zeros for unused inputs: shape, type, layout and whether they require grad."""
    x, y = new(1.0, 2.0), new([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float32)
    first = grad((x * x).sum(), [x, y], materialize_grads=True, retain_graph=True)
    second = grad((x * x).sum(), [x, y], materialize_grads=True, create_graph=True)
    return first, second, [g.requires_grad for g in (*first, *second)]


@runs("")
def a_grad_of_the_users(new):
    """Gradients assigned by the user: shared with another tensor, expanded, or not contiguous."""
    x = new([[1.0, 2.0], [3.0, 4.0]])
    mine = torch.zeros(2, 2, dtype=torch.float64).t()
    x.grad = mine
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")                      # torch warns of the layout, once
        (x * x).sum().backward()
    y = new(1.0, 2.0)
    y.grad = torch.zeros(1, dtype=torch.float64).expand(2)
    expanded = caught(lambda: (y * y).sum().backward(), 30)
    return x.grad is mine, mine, x.grad.stride(), expanded, y.grad


@runs("")
def identity_of_grad(new):
    """.grad stays the same object, except with create_graph."""
    x = new(1.0, 2.0)
    (x * x).sum().backward()
    first = x.grad
    (x * x).sum().backward()
    same = x.grad is first
    version = first._version
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (x * x).sum().backward(create_graph=True)
    return same, version > 0, x.grad is first, x.grad.requires_grad, first, x.grad.detach()


@runs("")
def one_cotangent_for_two_leaves(new):
    """Two leaves of one sum do not share a buffer."""
    x, y = new(1.0, 2.0), new(3.0, 4.0)
    (x + y).sum().backward()
    x.grad.mul_(5)
    a, b = new(1.0, 2.0), new(3.0, 4.0)
    g = torch.ones(2, dtype=torch.float64)
    (a + b).backward(g)
    a.grad.mul_(7)
    return x.grad, y.grad, a.grad, b.grad, g


@runs("")
def layout_of_grad(new):
    """Strides of .grad for a transposed and for an expanded leaf."""
    x = new.wrap(torch.arange(6.0, dtype=torch.float64).reshape(2, 3).t())
    y = torch.zeros(3, dtype=torch.float64).expand(2, 3).requires_grad_()
    (x * 2).sum().backward()
    (y * torch.arange(6.0).reshape(2, 3)).sum().backward()
    return x.grad, x.grad.is_contiguous() or x.stride() == x.grad.stride(), y.grad, y.grad.stride()


@runs("")
def retained_by_default_with_create_graph(new):
    """retain_graph follows create_graph, and can be told otherwise."""
    x = new(1.0, 2.0)
    y = x.exp().sum()
    grad(y, x, create_graph=True)
    grad(y, x, create_graph=True, retain_graph=False)
    return caught(lambda: grad(y, x), 30)


@runs("")
def grad_mode_inside_a_run(new):
    """Gradients are off inside hooks of a plain run and on with create_graph; the mode outside stays."""
    x, seen = new(1.0, 2.0), []
    y = x * x
    y.register_hook(lambda g: seen.append((torch.is_grad_enabled(), g.requires_grad)))
    with torch.no_grad():
        grad(y, x, torch.ones(2).double(), retain_graph=True)
        inner = torch.is_grad_enabled()
    grad(y, x, torch.ones(2).double(), create_graph=True)
    return seen, inner, torch.is_grad_enabled()


@runs("")
def backward_under_no_grad_with_create_graph(new):
    """create_graph inside no_grad still records."""
    x = new(1.0, 2.0)
    y = (x ** 3).sum()
    with torch.no_grad():
        (g,) = grad(y, x, create_graph=True)
    return g.requires_grad, grad(g.sum(), x)


@runs("")
def nested_no_grad_parts(new):
    """A part under no_grad inside a loss, and a part under enable_grad inside no_grad."""
    x = new(1.0, 2.0)
    with torch.no_grad():
        scale = x.exp()
        with torch.enable_grad():
            y = x * scale
    y.sum().backward()
    return x.grad, y.requires_grad, scale.requires_grad


@runs("")
def order_of_execution(new):
    """Nodes that were recorded later run first, also across branches."""
    x, seen = new(1.0, 2.0), []
    a, b = x * 2, x * 3
    c, d = b.exp(), a.sin()
    for name, t in {"a": a, "b": b, "c": c, "d": d}.items():
        t.register_hook(lambda g, name=name: seen.append(name))
    (c * d).sum().backward()
    return seen


@runs("")
def only_what_is_needed_runs(new):
    """Hooks of branches that the inputs do not need stay silent."""
    x, y, seen = new(1.0, 2.0), new(3.0, 4.0), []
    a, b = x * 2, y.exp()
    a.register_hook(lambda g: seen.append("a"))
    b.register_hook(lambda g: seen.append("b"))
    loss = (a * b).sum()
    grad(loss, y, retain_graph=True)
    loss.backward(inputs=[x], retain_graph=True)
    middle = grad(loss, b)
    return seen, x.grad, y.grad, middle


@runs("")
def an_error_in_the_middle(new):
    """A hook fails; what ran before it is accumulated, the next run is right."""
    x, y = new(1.0, 2.0), new(3.0, 4.0)
    a = x.exp()
    b = a * y
    handle = a.register_hook(lambda g: 1 / 0)
    error = caught(lambda: b.sum().backward(retain_graph=True), 20)
    handle.remove()
    first = y.grad.clone() if y.grad is not None else None
    b.sum().backward()
    return error, first, x.grad, y.grad


@runs("")
def callbacks_of_the_engine(new):
    """queue_callback runs after everything else, once."""
    x, seen = new(1.0, 2.0), []

    def hook(g: Tensor) -> None:
        torch.autograd.Variable._execution_engine.queue_callback(lambda: seen.append(x.grad is not None))
        seen.append("hook")

    y = x * 2
    y.register_hook(hook)
    y.sum().backward()
    return seen


@runs("")
def backward_inside_a_function(new):
    """A Function whose backward runs backward over a graph of its own."""
    class Inner(Function):
        @staticmethod
        def forward(ctx, x):
            with torch.enable_grad():
                ctx.x = x.detach().requires_grad_()
                ctx.y = (ctx.x ** 3).sum()
            return ctx.y.detach()

        @staticmethod
        def backward(ctx, g):
            with torch.enable_grad():
                ctx.y.backward(g)
            return ctx.x.grad

    x = new(1.0, 2.0)
    (Inner.apply(x * 2) * 3).backward()
    return x.grad


@runs("")
def complex_leaves(new):
    """Gradients of complex leaves, a real loss and a complex root."""
    z = new([1 + 2j, 3 - 1j], dtype=torch.complex128)
    (z * z.conj()).real.sum().backward()
    w = z * (2 + 1j)
    return z.grad, grad(w, z, torch.tensor([1j, 1.0], dtype=torch.complex128)), caught(lambda: (z * z).sum().backward())


@runs("")
def views_of_leaves_as_inputs(new):
    """A view made before is not the leaf, and later uses of the leaf do not use the view."""
    x = new([[1.0, 2.0], [3.0, 4.0]])
    v = x[0]
    loss = (x * x).sum() + v.sum()
    return grad(loss, [x, v], retain_graph=True), caught(lambda: grad((x * x).sum(), v), 30)


@runs("")
def requires_grad_switched_after_use(new):
    """A leaf that stops requiring grad after its use still gets the gradient of that use."""
    x = new(1.0, 2.0)
    y = x * x
    x.requires_grad_(False)
    z = x * 3
    caught_error = caught(lambda: y.sum().backward(), 30)
    return caught_error, z.requires_grad, x.grad


@runs("")
def grad_set_to_none_inside(new):
    """A hook that drops .grad between two contributions of one run's leaf."""
    x = new(1.0, 2.0)
    x.register_post_accumulate_grad_hook(lambda t: setattr(t, "grad", None))
    (x * x).sum().backward()
    return [x.grad]


@runs("")
def zero_sized(new):
    """Tensors without elements."""
    x = new.wrap(torch.zeros(0, 3, dtype=torch.float64))
    y = (x * 2).sum(0)
    y.sum().backward()
    return x.grad, grad((x.exp() + 1).mean(), x), y


@runs("")
def deleted_between(new):
    """Everything but the loss is deleted before backward."""
    x = new(1.0, 2.0)
    a = x.exp()
    b = a.tanh()
    c = (b * a).sum()
    del a, b
    gc.collect()
    c.backward()
    return x.grad


@runs("")
def leaf_deleted_before_backward(new):
    """A leaf that nobody else holds any more."""
    x, y = new(1.0, 2.0), new(3.0, 4.0)
    loss = (x * y).sum()
    del y
    loss.backward()
    return x.grad


@runs("")
def grad_mode_of_a_thread(new):
    """Grad mode is of the thread."""
    seen: list[Any] = []
    with torch.no_grad():
        t = threading.Thread(target=lambda: seen.append(torch.is_grad_enabled()))
        t.start()
        t.join()
        seen.append(torch.is_grad_enabled())
    return seen


@runs("test_reentrant_with_callbacks_depth_0")
def callback_of_the_outer_run(new):
    """A callback queued by the outer run."""
    count = [0]

    def hook(g):
        Variable._execution_engine.queue_callback(lambda: count.__setitem__(0, count[0] + 1))
        with torch.enable_grad():
            z = torch.ones(2).double().requires_grad_()
            (z * z).sum().backward()

    x = new(1.0, 2.0)
    x.register_hook(hook)
    (x * x).sum().backward()
    return count, x.grad


@runs("test_reentrant_with_callbacks_depth_1")
def callback_of_the_inner_run(new):
    """A callback queued by the inner run."""
    log = []

    def inner(g):
        Variable._execution_engine.queue_callback(lambda: log.append("inner ends"))

    def hook(g):
        with torch.enable_grad():
            z = torch.ones(2).double().requires_grad_()
            z.register_hook(inner)
            (z * z).sum().backward()
        log.append("hook ends")

    x = new(1.0, 2.0)
    x.register_hook(hook)
    (x * x).sum().backward()
    return log


@runs("test_set_multithreading_enabled_as_context_manager_and_function")
def one_thread_for_backward(new):
    """set_multithreading_enabled as a context and as a function"""
    x = new.randn(2)
    with torch.autograd.set_multithreading_enabled(False):
        inside = torch._C._is_multithreading_enabled()
        x.sin().sum().backward()
    torch.autograd.set_multithreading_enabled(False)
    after = torch._C._is_multithreading_enabled()
    torch.autograd.set_multithreading_enabled(True)
    return inside, after, torch._C._is_multithreading_enabled(), x.grad


test_runs = runs.check()
