"""Source lines are the user's: neither torch's nor this library's, but for the demo, which is a program."""

from __future__ import annotations

import colorsys
import copy

import pytest
import torch

import autograd_opt as ao
from autograd_opt._common import callsite
from autograd_opt.cli import demo


def test_torch_and_the_library_are_passed_over() -> None:
    with ao.AutogradGraph() as graph:
        _y = torch.nn.Linear(2, 2)(torch.ones(1, 2))
        sources = {node["source"] for node in graph.to_dict()["nodes"] if node["op"] == "linear"}
    assert {str(source).rpartition(":")[0] for source in sources} == {__file__}
    assert callsite.internal(torch.nn.__file__)
    assert callsite.internal(callsite.__file__)
    assert not callsite.internal(callsite.__file__.replace("autograd_opt/_common/", "autograd_opt_of_mine/"))


def test_the_demo_is_a_program_of_its_own() -> None:
    model = demo.make_network()
    with ao.AutogradGraph() as graph:
        _loss = demo.plain_loss(model, torch.rand(4, 64), torch.tensor([0, 1, 2, 3]))
        sources = {node["source"] for node in graph.to_dict()["nodes"] if node["kind"] == "operation"}
    assert {str(source).rpartition(":")[0] for source in sources} == {demo.__file__}


def test_pythons_own_library_is_passed_over() -> None:
    """What `colorsys` computes is recorded where the user has called it, and errors out of `copy` say so, too."""
    red, green, blue = (torch.rand(4, requires_grad=True) for _ in range(3))
    with ao.AutogradGraph() as graph:
        colorsys.rgb_to_yiq(red, green, blue)
        sources = {node["source"] for node in graph.to_dict()["nodes"] if node["kind"] == "operation"}
        with pytest.raises(RuntimeError, match="deepcopy") as error:
            copy.deepcopy({"saved": [red * 2]})
    assert {str(source).rpartition(":")[0] for source in sources} == {__file__}
    assert "test_sources.py" in str(error.value)
    assert callsite.internal(copy.__file__)
    assert not callsite.internal(copy.__file__.replace("copy.py", "site-packages/of_mine/train.py"))
