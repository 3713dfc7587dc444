"""Leaves whose gradient or data has another dtype or layout."""

from __future__ import annotations

import torch
from torch.autograd import Function

from tests.engine.behaviour import caught, group

leaves = group("leaves: dtype and layout of .grad and .data")


@leaves("test_grad_dtype")
def gradient_of_another_dtype(new):
    """grad_dtype: .grad has the dtype that the leaf asks for"""
    x = torch.randn(3, dtype=torch.float32).requires_grad_()
    before = x.grad_dtype
    x.grad_dtype = torch.float64
    (x * 2).sum().backward()
    (x * 3).sum().backward()
    return str(before), x.grad.dtype, x.grad


@leaves("test_set_data_tensorimpl_type")
def data_of_another_layout(new):
    """A dense tensor takes no sparse .data"""
    x = new.randn(1, 2)
    s = torch.sparse_coo_tensor(torch.zeros([1, 1]), torch.ones([1]))

    def assign():
        x.data = s
    return caught(assign, 20)


@leaves("test_no_grad_copy_sparse")
def sparse_gradient_for_two(new):
    """One sparse tensor returned for two arguments is not one .grad"""
    class Sparse(Function):
        @staticmethod
        def forward(ctx, a, b):
            ctx.shape = a.shape
            return (a + b).sum()

        @staticmethod
        def backward(ctx, g):
            i = torch.tensor([[0, 1]])
            s = torch.sparse_coo_tensor(i, torch.ones(2, *ctx.shape[1:], dtype=g.dtype) * g, ctx.shape)
            return s, s

    a, b = new.randn(3, 2), new.randn(3, 2)
    Sparse.apply(a, b).backward()
    a.grad._values().mul_(7)
    return a.grad.to_dense(), b.grad.to_dense()


test_leaf_data = leaves.check()
