"""Sparse tensors, their values, and gathers with sparse gradients."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import Function

from tests.engine.behaviour import caught, group

sparse = group("sparse values and gathers")


def gathered(new, shape, dim, index):
    x = new.randn(*shape) if shape else new.scalar(1.5)
    torch.gather(x, dim, index, sparse_grad=True).pow(2).sum().backward()
    return x.grad.is_sparse, x.grad.to_dense()


@sparse("test_sparse_gather_dim0")
def sparse_gather_0(new):
    """gather(sparse_grad=True) along dimension 0."""
    return gathered(new, (4, 3), 0, torch.tensor([[0, 1, 2], [3, 3, 0]]))


@sparse("test_sparse_gather_dim1")
def sparse_gather_1(new):
    """Along dimension 1."""
    return gathered(new, (4, 3), 1, torch.tensor([[0], [1], [2], [0]]))


@sparse("test_sparse_gather_dim_neg")
def sparse_gather_last(new):
    """Along the last dimension."""
    return gathered(new, (4, 3), -1, torch.tensor([[0, 0], [1, 2], [2, 1], [0, 0]]))


@sparse("test_sparse_gather_ind_scalar")
def sparse_gather_scalar_index(new):
    """With a zero-dimensional index."""
    return gathered(new, (4,), 0, torch.tensor(2))


@sparse("test_sparse_gather_x_scalar")
def sparse_gather_scalar_source(new):
    """From a zero-dimensional tensor."""
    return gathered(new, (), 0, torch.tensor([0]))


@sparse("test_sparse_gather_both_scalar")
def sparse_gather_scalars(new):
    """Both zero-dimensional."""
    return gathered(new, (), 0, torch.tensor(0))


class Fixed(Function):
    """A gradient of the caller's."""

    @staticmethod
    def forward(ctx, x, gradient):
        ctx.save_for_backward(gradient)
        return (x * 0).sum()

    @staticmethod
    def backward(ctx, g):
        gradient, = ctx.saved_tensors
        return gradient, None


@pytest.fixture(autouse=True)
def _checked_sparse_values():
    """Without a choice torch warns at the first sparse tensor of a process."""
    with torch.sparse.check_sparse_tensor_invariants():
        yield


def sparse_values(seed):
    generator = torch.Generator().manual_seed(seed)
    i = torch.tensor([[0, 3, 4]])
    return torch.sparse_coo_tensor(i, torch.randn(3, 2, generator=generator, dtype=torch.float64), (6, 2))


@sparse("test_sparse_backward")
def sparse_and_dense_in_every_order(new):
    """Sparse, dense and sparse gradients of one leaf summed inside the graph"""
    dense = torch.randn(6, 2, dtype=torch.float64)
    out = []
    for order in ((0, 1), (0, 2), (2, 0), (0, 2, 1), (2, 0, 1), (0, 1, 2)):
        x = new.randn(6, 2)
        parts = [sparse_values(0), sparse_values(1), dense]
        total = Fixed.apply(x, parts[order[0]])
        for k in order[1:]:
            total = total + Fixed.apply(x, parts[k])
        total.backward()
        out += [x.grad.is_sparse, x.grad.to_dense() if x.grad.is_sparse else x.grad]
    return out


@sparse("test_sparse_mask_autograd")
def values_under_a_mask(new):
    """sparse_mask passes gradients to what the mask covers"""
    x = torch.randn(3, 3, dtype=torch.float64).requires_grad_()
    mask = torch.eye(3, dtype=torch.float64).to_sparse()
    x.sparse_mask(mask).to_dense().sum().backward()
    return x.grad


@sparse("test_sparse_ctor_getter_backward")
def values_of_a_sparse_tensor(new):
    """Values put into a sparse tensor and read out of it, coalesced"""
    v = torch.randn(3, dtype=torch.float64).requires_grad_()
    s = torch.sparse_coo_tensor(torch.tensor([[0, 2, 2]]), v, (4,))
    s.coalesce().values().mul(torch.tensor([2.0, 3.0], dtype=torch.float64)).sum().backward()
    return v.grad


@sparse("test_per_dispatch_key_input_saving")
def sum_and_coalesced_sum(new):
    """An input saved by one variant of an operator only"""
    x = new.randn(3)
    y = torch.relu(x.clone())
    y.mul_(2)
    return caught(lambda: y.sum().backward(), 20), x.grad


@sparse("test_set_data_tensorimpl_type")
def data_of_another_layout(new):
    """A dense tensor takes no sparse .data"""
    x = new.randn(1, 2)
    s = torch.sparse_coo_tensor(torch.zeros([1, 1]), torch.ones([1]))

    def assign():
        x.data = s
    return caught(assign, 20)


@sparse("test_no_grad_copy_sparse")
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


test_sparse_values = sparse.check()
