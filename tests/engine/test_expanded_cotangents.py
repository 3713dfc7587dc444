"""Operators with expanded cotangents, numbers as operands, and rules for each device."""

from __future__ import annotations

import warnings

import torch
from torch.autograd import grad

from tests.engine.behaviour import caught, group

operators = group("operators: expanded cotangents, numbers, rules for each device")


@operators("test_select_expanded_v")
def select_with_expanded_cotangent(new):
    """select with an expanded cotangent."""
    a, v = new.randn(4, 4), torch.rand([]).double()
    return grad(a.select(0, 1), a, v.expand(4))


@operators("test_slice_expanded_v")
def slice_with_expanded_cotangent(new):
    """slice with an expanded cotangent."""
    a, v = new.randn(4, 4), torch.rand(1, 4).double()
    return grad(a[1:3], a, v.expand(2, 4))


@operators("test_where_scalar")
def where_with_numbers(new):
    """where(cond, tensor, number), twice differentiated."""
    x, cond = new.randn(5), torch.tensor([True, False, True, True, False])
    y = torch.where(cond, x.exp(), 4.0) + torch.where(cond, 2.0, x.sin())
    g, = grad(y.sum(), x, create_graph=True)
    return y, g, grad(g.sum(), x)


@operators("test_scatter_index_reduce_prod_gradgrad_error")
def second_derivative_of_a_product_with_zeros(new):
    """Products of scattered values: the second derivative at zeros is refused"""
    x, src = new(2.0, 0.0, 3.0), new(1.0, 0.0)
    index = torch.tensor([0, 1])
    out = x.scatter_reduce(0, index, src, "prod")
    g, = grad(out.sum(), src, create_graph=True)
    return g.detach(), caught(lambda: grad(g.sum(), x), 20)


@operators("test_lobpcg", tolerance=1e-4)
def extreme_eigenvalue(new):
    """The largest eigenvalue by lobpcg"""
    torch.manual_seed(3)
    a = torch.randn(6, 6, dtype=torch.float64)
    x = new((a @ a.T + 6 * torch.eye(6)).tolist())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        values, _ = torch.lobpcg((x + x.T) / 2, k=1, niter=200)
    values.sum().backward()
    return values.detach(), x.grad


@operators("test_autograd_multiple_dispatch_registrations")
def operator_with_a_rule_for_each_device(new):
    """torch's own test operators, whose rule depends on the dispatch key"""
    x = new.randn(3, 3)
    torch._test_autograd_multiple_dispatch(x).sum().backward()
    y = new.randn(3, 3)
    torch._test_autograd_multiple_dispatch(y, True).sum().backward()
    return x.grad, y.grad


@operators("test_autograd_composite_implicit_and_dispatch_registration")
def view_operator_with_a_rule_for_each_device(new):
    """The same with a view, written afterwards"""
    x = new.randn(3, 3)
    v = torch._test_autograd_multiple_dispatch_view(x.clone())
    (v * 2).sum().backward()
    return v.detach(), x.grad


@operators("test_inplace_on_view_multi_output_unsafe")
def parts_that_may_be_written(new):
    """unsafe_split, unsafe_chunk and unsafe_split_with_sizes allow writes"""
    out = []
    for split in (lambda t: t.unsafe_split(1), lambda t: t.unsafe_split_with_sizes((1, 1, 1)),
                  lambda t: t.unsafe_chunk(3)):
        a = new.randn(3, 3)
        parts = split(a + a)
        s1, s2, s3 = parts
        s1.mul_(s2)
        s1.sum().backward()
        out += [a.grad, s3.detach()]
    return out


test_expanded_cotangents = operators.check()
