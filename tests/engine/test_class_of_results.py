"""The class of computed tensors, as programs see it that compare the classes of two tensors."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn

import autograd_opt as ao


class Marked(torch.Tensor):
    """A class of the program's own."""


def test_values_of_parameters_are_compared_with_computed_ones() -> None:
    layer = nn.Linear(2, 2)
    with ao.AutogradGraph():
        computed = layer.weight * 1
        torch.testing.assert_close(layer.weight, computed)
        torch.testing.assert_close({"w": computed}, {"w": layer.weight})
        with pytest.raises(AssertionError, match="not close"):
            torch.testing.assert_close(layer.weight, computed + 1)
    torch.testing.assert_close(layer.weight, computed)         # what was computed lives on after its graph


@pytest.mark.parametrize("other", [nn.Parameter(torch.ones(2)), torch.ones(2).as_subclass(Marked)],
                         ids=["parameter", "subclass"])
def test_either_is_an_instance_of_the_others_class_where_it_is_so_in_torch(other: torch.Tensor) -> None:
    eager = torch.ones(2, requires_grad=True) * 2
    with ao.AutogradGraph():
        computed = torch.ones(2, requires_grad=True) * 2
    for value in (eager, computed):
        assert isinstance(other, type(value))
        assert not isinstance(value, type(other))


def test_the_class_tells_computed_tensors_from_plain_ones() -> None:
    plain = torch.ones(2, requires_grad=True)
    with ao.AutogradGraph():
        computed = plain * 2
    assert isinstance(computed, ao.CustomTensor)
    assert isinstance(ao.tensor([1.0]), ao.CustomTensor)
    assert not isinstance(plain, ao.CustomTensor)
    for value in (3, None, "tensor", nn.Linear(1, 1), torch.Tensor):
        assert not isinstance(value, ao.CustomTensor)
    assert issubclass(ao.CustomTensor, torch.Tensor)
    assert not issubclass(nn.Parameter, ao.CustomTensor)


def test_classes_are_compared_as_torchs_own() -> None:
    plain = torch.ones(2, requires_grad=True)
    with ao.AutogradGraph():
        computed = plain * 2
    assert type(computed) == type(plain)  # noqa: E721
    assert type(plain) == type(computed)  # noqa: E721
    assert not type(computed) != torch.Tensor  # noqa: E721, SIM202
    assert type(computed) is not torch.Tensor
    assert type(computed) in (nn.Parameter, torch.Tensor)
    assert type(computed) not in (nn.Parameter, Marked)
    assert type(computed) != type(nn.Parameter(plain.detach()))  # noqa: E721


def test_sets_of_classes_tell_them_apart() -> None:
    """By such a set torch finds whose `__torch_function__` to call; outside a context, that of the computed one."""
    plain, leaf = torch.rand(2), ao.tensor([0.2, 0.3])
    with ao.AutogradGraph():
        computed = leaf * 2
    assert len({type(computed), torch.Tensor}) == 2
    assert torch.overrides._get_overloaded_args((plain, computed)) == [computed, plain]
    for operands in ((plain, computed), (computed, plain)):
        found = nn.functional.mse_loss(*operands)
        assert type(found) is ao.CustomTensor
        assert found.requires_grad
    with pytest.raises(ao.GraphError):
        nn.functional.mse_loss(plain, computed).backward()


def test_a_class_over_it_has_its_own_instances_alone() -> None:
    class Over(ao.CustomTensor):
        pass

    assert not isinstance(nn.Parameter(torch.ones(1)), Over)
    assert not isinstance(torch.ones(1), Over)
    assert Over != ao.CustomTensor != nn.Parameter
    assert isinstance(torch.ones(1).as_subclass(Over), Over)


def test_computed_tensors_are_copied_and_stored_as_before() -> None:
    with ao.AutogradGraph():
        computed = (nn.Parameter(torch.ones(2)) * 2).detach()
        copied = copy.deepcopy(computed)
    assert type(copied) is ao.CustomTensor
    assert torch.equal(copied, computed)
    assert torch.equal(pickle.loads(pickle.dumps(computed)), torch.full((2,), 2.0))
