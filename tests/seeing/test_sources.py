"""Source lines are the user's: neither torch's nor this library's, but for the demo, which is a program."""

from __future__ import annotations

import torch

import autograd_opt as ao
from autograd_opt import demo, errors


def test_torch_and_the_library_are_passed_over() -> None:
    with ao.AutogradGraph() as graph:
        _y = torch.nn.Linear(2, 2)(torch.ones(1, 2))
        sources = {node["source"] for node in graph.to_dict()["nodes"] if node["op"] == "linear"}
    assert {str(source).rpartition(":")[0] for source in sources} == {__file__}
    assert errors.internal(torch.nn.__file__)
    assert errors.internal(errors.__file__)
    assert not errors.internal(errors.__file__.replace("autograd_opt/errors.py", "autograd_opt_of_mine/train.py"))


def test_the_demo_is_a_program_of_its_own() -> None:
    model = demo.make_network()
    with ao.AutogradGraph() as graph:
        _loss = demo.plain_loss(model, torch.rand(4, 64), torch.tensor([0, 1, 2, 3]))
        sources = {node["source"] for node in graph.to_dict()["nodes"] if node["kind"] == "operation"}
    assert {str(source).rpartition(":")[0] for source in sources} == {demo.__file__}
