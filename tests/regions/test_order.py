"""Gradients of a region's parameters arrive in torch's order."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn

import autograd_opt as ao
from tests.regions.processes import cnn, mlp, transformer


def deep() -> nn.Module:
    return nn.Sequential(*[layer for _ in range(9) for layer in (nn.Linear(6, 6), nn.Tanh())])


def arrivals(net: nn.Module) -> list[str]:
    """The names of parameters in the order in which their gradients arrive."""
    found: list[str] = []
    for name, parameter in net.named_parameters():
        parameter.register_post_accumulate_grad_hook(lambda _, name=name: found.append(name))
    net(torch.randn(5, 6)).sum().backward()
    return found


@pytest.mark.parametrize("make", [mlp, cnn, transformer, deep])
def test_hooks_of_parameters_are_called_as_without_a_region(make: Callable[[], nn.Module]) -> None:
    net = make()
    expected = arrivals(copy.deepcopy(net))
    found = arrivals(ao.optimize(net))
    assert sorted(found) == sorted(expected)
    # the two of a norm, which one operation uses, may come in the other order
    assert [name.rpartition(".")[0] for name in found] == [name.rpartition(".")[0] for name in expected]
    if make in (mlp, deep):
        assert found == expected
