"""Tensors made, viewed and written inside and outside inference mode."""

from __future__ import annotations

import torch

from tests.engine.behaviour import caught, group

inference = group("inference_mode: tensors made, viewed and written")


def inference_leaf():
    with torch.inference_mode():
        return torch.ones(2, 3)


@inference("test_inference_mode_inf_tensor_in_inf_mode_inplace_op")
def written_inside(new):
    """Inference tensors may be written inside."""
    with torch.inference_mode():
        c = torch.ones(2, 3)
        c.mul_(2)
        return c.is_inference(), c.clone()


@inference("test_inference_mode_inf_tensor_in_inf_mode_view_op")
def viewed_inside(new):
    """Views of inference tensors are inference tensors."""
    with torch.inference_mode():
        v = torch.ones(2, 3).view(-1)
        return v.is_inference(), v.requires_grad, v.is_leaf


@inference("test_inference_mode_inf_tensor_in_normal_mode_functional_op")
def used_outside(new):
    """Outside, operations on inference tensors give normal tensors."""
    r = inference_leaf().add(2)
    return r.is_inference(), r.requires_grad, r.is_leaf


@inference("test_mix_inference_and_normal_tensor_functional_op")
def mixed_where_nothing_is_saved(new):
    """A sum of a normal leaf and an inference tensor."""
    x = new.randn(2, 3)
    (x + inference_leaf()).sum().backward()
    return x.grad


@inference("test_mix_inference_and_normal_tensor_inplace_op")
def inference_operand_of_a_write(new):
    """A normal tensor written with an inference tensor."""
    x = new.randn(2, 3)
    a = x.clone()
    a.add_(inference_leaf())
    a.sum().backward()
    return x.grad, caught(lambda: x.clone().mul_(inference_leaf()), 20)


@inference("test_normal_tensor_inplace_output_in_inference_mode")
def normal_values_written_inside(new):
    """Normal values written inside keep their history's gradient."""
    x = new.randn(2, 3)
    a = x.clone()
    with torch.inference_mode():
        a.add_(1)
    (a * 1).sum().backward()
    return x.grad, a.requires_grad


@inference("test_inference_mode_inf_tensor_in_normal_mode_view_op")
def view_of_an_inference_tensor(new):
    """A view of an inference tensor, taken outside"""
    with torch.inference_mode():
        s = torch.ones(1, 2, 3, dtype=torch.float64)
    v = s.view(2, 3)
    return v.is_inference(), v.requires_grad, v


@inference("test_mix_inference_and_normal_tensor_view_op")
def view_as_an_inference_tensor(new):
    """A leaf viewed as the shape of an inference tensor, and the other way round"""
    with torch.inference_mode():
        s = torch.ones(2, 3, dtype=torch.float64)
    x = new.randn(6)
    y = x.clone().view_as(s)
    (y * 2).sum().backward()
    return y.requires_grad, x.grad, s.view_as(y).requires_grad


@inference("test_inference_mode_handle_direct_view_on_rebase")
def direct_view_made_inside_and_written(new):
    """Writing, under grad mode, a view that was made inside"""
    x = new.randn(2, 3)
    a = x.clone()
    with torch.inference_mode():
        v = a.view(6)
    return caught(lambda: v.add_(2), 20)


test_inference_mode = inference.check()
