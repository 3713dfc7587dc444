"""Leaves whose gradient has another dtype."""

from __future__ import annotations

import torch

from tests.engine.behaviour import group

leaves = group("leaves: dtype of .grad")


@leaves("test_grad_dtype")
def gradient_of_another_dtype(new):
    """grad_dtype: .grad has the dtype that the leaf asks for"""
    x = torch.randn(3, dtype=torch.float32).requires_grad_()
    before = x.grad_dtype
    x.grad_dtype = torch.float64
    (x * 2).sum().backward()
    (x * 3).sum().backward()
    return str(before), x.grad.dtype, x.grad


test_grad_dtype = leaves.check()
