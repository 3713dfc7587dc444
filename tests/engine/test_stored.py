"""What is copied or stored inside a context is of torch's own types, which `torch.load` reads with `weights_only`."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest
import torch
from torch import nn

import autograd_opt as ao

OPTIMIZE = pytest.mark.parametrize("optimize", [False, True, "exact"])


def stored(value: Any) -> Any:
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@OPTIMIZE
def test_a_checkpoint_written_inside_a_context_is_read_anywhere(optimize: bool | str) -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    with ao.AutogradGraph(optimize=optimize):
        optimizer = torch.optim.Adam(model.parameters())
        model(torch.randn(4, 3)).square().sum().backward()
        optimizer.step()
        found = stored({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "mean": torch.ones(2) * 3,
                        "noise": torch.zeros(2).add(1).requires_grad_()})
    again = stored(optimizer.state_dict())
    for state in (found["optimizer"], again):
        for number, p in enumerate(model.parameters()):
            for name, value in optimizer.state[p].items():
                assert type(state["state"][number][name]) is torch.Tensor
                assert torch.equal(state["state"][number][name], value)
    assert type(found["mean"]) is type(found["noise"]) is torch.Tensor
    assert found["noise"].requires_grad
    assert not found["mean"].requires_grad


def test_a_leaf_made_here_is_pickled_as_such() -> None:
    for leaf in (ao.tensor([1.0, 2.0]), copy.deepcopy(ao.tensor([1.0, 2.0]))):
        read = pickle.loads(pickle.dumps(leaf))
        assert type(read) is type(leaf)
        assert read.requires_grad


@OPTIMIZE
def test_a_parameter_of_a_computed_value_is_a_parameter(optimize: bool | str) -> None:
    with ao.AutogradGraph(optimize=optimize):
        start = torch.linspace(0, 1, 3) * 2
        again = torch.linspace(0, 1, 3) * 2
        p, q = nn.Parameter(start), nn.Parameter(again, requires_grad=False)
        assert type(p) is type(q) is nn.Parameter
        assert (p.requires_grad, q.requires_grad, p.is_leaf) == (True, False, True)
        (p * p).sum().backward()
        assert torch.equal(p.grad, 2 * start)
        with torch.no_grad():
            p.mul_(2)
        assert torch.equal(start, p.detach())       # one memory, as in torch
        assert torch.equal(again, torch.linspace(0, 1, 3) * 2)
        assert torch.equal(q, again)
        (p * 3).sum().backward()
    assert torch.equal(p.grad, torch.tensor([3.0, 5.0, 7.0]))


@OPTIMIZE
def test_a_copy_of_a_model_has_parameters_without_gradients(optimize: bool | str) -> None:
    model = nn.Linear(3, 2)
    with ao.AutogradGraph(optimize=optimize):
        x = torch.randn(4, 3)
        for _ in range(3):
            model(x).square().sum().backward()
            model = copy.deepcopy(model)
            assert [type(p) for p in model.parameters()] == [nn.Parameter] * 2
            assert model.weight.grad is None
        read = pickle.loads(pickle.dumps(model))
        assert [type(p) for p in read.parameters()] == [nn.Parameter] * 2
