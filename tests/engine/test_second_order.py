"""Gradients of gradients, recorded in the same graph: products, Hessians, nested networks."""

from __future__ import annotations

import contextlib
import math

import pytest
import torch
from torch.autograd import grad

import autograd_opt as ao
from tests.engine.behaviour import caught, group, messages
from tests.engine.functions import Cube

second = group("create_graph and double backward")


def network(new):
    torch.manual_seed(1)
    return [new.randn(3, 6), new.randn(6), new.randn(6, 6), new.randn(6), new.randn(6, 1)]


def apply(ps, x):
    h = torch.tanh(x @ ps[0] + ps[1])
    h = torch.tanh(h @ ps[2] + ps[3])
    return (h @ ps[4]).sum()


@second("test_hessian_vector")
def hessian_vector_product(new):
    """The product of a Hessian and a vector by two backward runs."""
    x, y = new.randn(2, 2), new.randn(2, 2)
    z = (x ** 2 + y * x + y ** 2).sum()
    gx, gy = grad(z, (x, y), create_graph=True)
    v = torch.ones(2, 2).double()
    return grad((gx * v).sum() + (gy * v * 2).sum(), (x, y))


@second("test_hessian_vector")
def backward_over_backward(new):
    """backward(create_graph=True) makes a .grad that has a history."""
    x = new.randn(2, 2)
    z = (x ** 3).sum()
    kinds = messages(lambda: z.backward(create_graph=True))
    x_grad = x.grad
    x.grad = None
    x_grad.sum().backward()
    return x_grad.detach(), x_grad.requires_grad, x.grad, [k is UserWarning for k in kinds]


@second("test_backward_create_graph_warns")
def only_backward_warns(new):
    """grad() with create_graph does not warn."""
    x = new.randn(2)
    z = (x ** 2).sum()
    return [len(messages(lambda: grad(z, x, create_graph=True))), len(messages(lambda: z.backward(create_graph=True)))]


@second("test_hessian_vector")
def hessian_of_a_network(new):
    """The full Hessian of a tanh network with respect to its input."""
    ps, x = network(new), new.randn(1, 3)
    g, = grad(apply(ps, x), x, create_graph=True)
    return [grad(g[0, i], x, retain_graph=True)[0] for i in range(3)]


@second("test_hessian_vector")
def nested_derivatives_of_a_network(new):
    """Value, first, second and third derivative in one loss (a physics-informed network)."""
    ps, x = network(new), new.randn(4, 3)
    u = apply(ps, x)
    du, = grad(u, x, create_graph=True)
    d2, = grad(du[:, 0].sum(), x, create_graph=True)
    d3, = grad(d2[:, 1].sum(), x, create_graph=True)
    ((u - 1) ** 2 + (du ** 2).sum() + (d2 * du).sum() + d3.sum()).backward()
    return [p.grad for p in ps], x.grad


@second("test_hessian_vector")
def gradient_penalty(new):
    """A penalty on the norm of a gradient, trained through."""
    ps, x = network(new), new.randn(5, 3)
    g, = grad(apply(ps, x), x, create_graph=True)
    penalty = ((g.norm(2, dim=1) - 1) ** 2).mean()
    penalty.backward()
    return [p.grad for p in ps[:4]]


@second("test_custom_autograd_repeated_grad_grad")
def four_orders(new):
    """Derivatives of sin(x) * x up to the fourth."""
    x = new(0.3, 1.2)
    y = x.sin() * x
    out = []
    for _ in range(4):
        y, = grad(y.sum(), x, create_graph=True)
        out.append(y)
    return out


@second("test_hessian_vector")
def through_inplace_writes(new):
    """Second order through writes in place and through views."""
    x = new.randn(4)
    y = x * x
    y.mul_(x)
    y[1:3] *= x[:2]
    y.add_(1)
    g, = grad(y.exp().sum() * 0.1, x, create_graph=True)
    h, = grad(g.sum(), x)
    return g, h


@second("test_hessian_vector")
def through_opaque_inplace_writes(new):
    """Second order through writes that have no rule of their own."""
    x, y = new.randn(4), new.randn(4)
    z = x * x
    z.addcmul_(x, y)
    z.atan2_(y)
    z[:2].lerp_(y[:2], 0.3)
    g, = grad((z * z).sum(), x, create_graph=True)
    h, = grad(g.sum(), x, retain_graph=True)
    return z, g, h, grad(g.sum(), y)


@second("test_hessian_vector")
def through_a_custom_function(new):
    """Second order through a Function whose backward uses saved tensors."""
    x = new(0.7, -1.1)
    g, = grad(Cube.apply(x * x).sum(), x, create_graph=True)
    h, = grad((g * g).sum(), x)
    return g, h


@second("test_hessian_vector")
def through_opaque_calls(new):
    """Second order through operators that torch differentiates for us."""
    x = new.randn(3, 3)
    a = x @ x.t() + torch.eye(3).double() * 3
    y = torch.linalg.inv(a).sum() + torch.logdet(a) + torch.special.erfcx(x).sum()
    g, = grad(y, x, create_graph=True)
    h, = grad((g * g).sum(), x)
    return g, h


@second("test_var_mean_differentiable")
def statistics(new):
    """var, std and var_mean."""
    x = new.randn(3, 4)
    v, m = torch.var_mean(x, 1)
    g, = grad((v * m).sum() + x.std() + x.var(0).prod(), x, create_graph=True)
    h, = grad((g ** 2).sum(), x)
    return g, h


@second("test_select_sum")
def selecting_and_summing(new):
    """select, sum and their second order."""
    x = new.randn(5)
    g, = grad(x.select(0, 1).sum() * x.sum(), x, create_graph=True)
    h, = grad(g.sum(), x)
    return g, h


@second("test_custom_autograd_no_early_free")
def mixed_partial_derivatives(new):
    """d2f/dxdy equals d2f/dydx."""
    x, y = new.randn(3), new.randn(3)
    f = (x * y.sin() + x ** 2 * y).sum()
    gx, = grad(f, x, create_graph=True)
    gy, = grad(f, y, create_graph=True)
    return grad(gx.sum(), y), grad(gy.sum(), x)


@second("test_hessian_vector")
def gradients_as_training_steps(new):
    """Meta-learning: a loss after two gradient steps, differentiated through the steps."""
    w, x, y = new.randn(3), new.randn(8, 3, grad=False), new.randn(8, grad=False)
    lr = new.scalar(0.1)
    fast = w
    for _ in range(2):
        loss = ((x @ fast - y) ** 2).mean()
        g, = grad(loss, fast, create_graph=True)
        fast = fast - lr * g
    ((x @ fast - y) ** 2).mean().backward()
    return w.grad, lr.grad


@second("test_hessian_vector")
def constant_gradient(new):
    """The gradient of a linear function has no history."""
    x = new.randn(3)
    g, = grad((x * 2).sum(), x, create_graph=True)
    return g, caught(lambda: grad(g.sum(), x), 20)


@second("test_hessian_vector")
def broadcasting(new):
    """Broadcast operands in first and second order."""
    x, y = new.randn(3, 1), new.randn(4)
    f = ((x + y) * x / (y ** 2 + 1)).sum()
    gx, gy = grad(f, (x, y), create_graph=True)
    return gx, gy, grad((gx.sum() * gy.sum()), (x, y))


@second("test_hessian_vector")
def convolution(new):
    """A gradient penalty through a convolution with batch norm in eval mode."""
    torch.manual_seed(2)
    net = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2), torch.nn.Softplus()).double().eval()
    x = new.randn(2, 1, 6, 6)
    g, = grad(net(x).sum(), x, create_graph=True)
    (g ** 2).sum().backward()
    return g, x.grad, [p.grad for p in net.parameters()]


@second("test_hessian_vector")
def softmax_cross_entropy(new):
    """The Hessian-vector product of a softmax regression."""
    w, x = new.randn(3, 4), new.randn(5, 3, grad=False)
    loss = torch.nn.functional.cross_entropy(x @ w, torch.tensor([0, 1, 2, 3, 1]))
    g, = grad(loss, w, create_graph=True)
    return g, grad((g * g.detach()).sum(), w)


test_second_order = second.check()


@pytest.mark.parametrize("optimize", [False, True])
def test_second_order_is_recorded_in_the_same_graph(optimize):
    x = ao.tensor([0.5, 1.5], dtype=torch.float64)
    with ao.AutogradGraph(optimize=optimize) as graph:
        y = (x.sin() * x).sum()
        before = len(graph)
        g, = grad(y, x, create_graph=True)
        assert len(graph) > before
        assert g.grad_fn is not None
        assert graph.is_acyclic()


def test_work_shared_by_forward_and_backward_is_found():
    x = ao.tensor([0.5, 1.5], dtype=torch.float64)
    with ao.AutogradGraph(optimize=True) as graph:
        y = x.exp()
        g1, = grad(y.sum(), x, create_graph=True)
        first = len(graph)
        hits = graph.tape.hits
        g2, = grad(y.sum(), x, create_graph=True)
        assert torch.equal(g1, g2)
        assert graph.tape.hits > hits
        assert len(graph) > first


def test_zeros_without_memory_are_summed():
    """A maximum of absolute values has torch's zeros without memory for derivatives, which cannot be written."""
    x = torch.randn(2, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()

    def second(context):
        with context:
            total = torch.linalg.matrix_norm(x, math.inf) + torch.linalg.matrix_norm(x, math.inf)
            g, = torch.autograd.grad(total, x, create_graph=True)
            return torch.autograd.grad((g * g).sum(), x, allow_unused=True)[0]

    expected = second(contextlib.nullcontext())
    for optimize in (False, True):
        torch.testing.assert_close(second(ao.AutogradGraph(optimize=optimize)), expected)


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize(("power", "order"), [(lambda x: x ** 2, 2), (torch.square, 2), (lambda x: x ** 3, 3)])
def test_the_last_derivative_of_a_power_that_is_not_zero_is_a_constant(power, order, optimize):
    """torch gives zeros for one order more, except for `x * x`, where it too refuses; the values agree up to there."""
    x = torch.tensor([1.0, -2.0], dtype=torch.float64, requires_grad=True)

    def derivative(y, n):
        for _ in range(n):
            y, = grad(y.sum(), x, create_graph=True)
        return y

    wanted = derivative(power(x), order)
    assert not derivative(power(x), order + 1).any()
    with ao.AutogradGraph(optimize=optimize):
        found = derivative(power(x), order)
        assert not found.requires_grad
        with pytest.raises(RuntimeError, match="does not require grad"):
            grad(found.sum(), x)
    torch.testing.assert_close(found.as_subclass(torch.Tensor), wanted)
