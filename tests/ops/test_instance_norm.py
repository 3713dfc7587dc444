"""Instance norms with running statistics, in training and evaluation."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor

import autograd_opt as ao


def step(net: torch.nn.Module, x: Tensor) -> tuple[Tensor, ...]:
    y = net(x)
    return y, *torch.autograd.grad((y * y.detach().cos()).sum(), [x, *net.parameters()])


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("tracks", [True, False])
def test_results_gradients_and_statistics_are_torchs(training: bool, affine: bool, tracks: bool) -> None:
    torch.manual_seed(0)
    eager = torch.nn.InstanceNorm2d(3, affine=affine, track_running_stats=tracks).train()
    eager(torch.randn(2, 3, 4, 5))
    recorded = copy.deepcopy(eager)
    x = torch.randn(2, 3, 5, 4).transpose(2, 3).requires_grad_()
    before = [[b._version for b in net.buffers()] for net in (eager, recorded)]
    wanted = step(eager.train(training), x)
    with ao.AutogradGraph():
        found = step(recorded.train(training), x)
    for a, b in zip(found, wanted, strict=True):
        assert torch.equal(a, b)
    for one, other in zip(recorded.buffers(), eager.buffers(), strict=True):
        assert torch.equal(one, other)
    writes = [[b._version - n for b, n in zip(net.buffers(), was, strict=True)]
              for net, was in zip((eager, recorded), before, strict=True)]
    assert writes[0] == writes[1]


def test_examples_without_values_and_too_few_axes() -> None:
    for x in (torch.zeros(0, 3, 4, requires_grad=True), torch.zeros(3, requires_grad=True)):
        found = []
        for graph in (None, ao.AutogradGraph()):
            try:
                if graph is None:
                    found.append(torch.instance_norm(x, None, None, None, None, True, 0.1, 1e-5, False).shape)
                else:
                    with graph:
                        found.append(torch.instance_norm(x, None, None, None, None, True, 0.1, 1e-5, False).shape)
            except (RuntimeError, IndexError, ValueError) as error:
                found.append(str(error).splitlines()[0])
        assert found[0] == found[1]
