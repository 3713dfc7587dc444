"""Graphs that are copied, as with a model that holds one, or pickled."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

import autograd_opt as ao

COPIES = pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])


def step(graph):
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    with graph:
        (x.exp() * x.exp()).sum().backward()
        reused = graph.report().reused
    return x.grad, reused


@COPIES
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("options", [{}, {"optimize": True}, {"optimize": "exact", "name": "mine"},
                                     {"passes": ["cse"], "verify": True, "sources": False}], ids=str)
def test_a_copy_is_a_new_graph_of_the_same_options(copied, left, options):
    graph = ao.AutogradGraph(**options)
    expected = step(ao.AutogradGraph(**options))
    if left:
        step(graph)
    made = copied(graph)
    assert made is not graph
    assert made.label != graph.label or "name" in options
    grad, reused = step(made)
    assert torch.equal(grad, expected[0])
    assert reused == expected[1]
    assert len(made.verdicts) == len(graph.verdicts) == 0 or options.get("verify")
    assert made.verdicts is not graph.verdicts or not options.get("verify")
    if not left:
        assert torch.equal(step(graph)[0], expected[0])


def test_models_that_hold_a_graph_are_copied():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.graph = torch.nn.Linear(2, 1), ao.AutogradGraph(optimize=True)

        def step(self):
            with self.graph:
                self.layer(torch.ones(1, 2)).sum().backward()
            return self.layer.weight.grad

    model = Model()
    first = model.step()
    for other in (copy.deepcopy(model), copy.deepcopy(copy.deepcopy(model))):
        other.zero_grad()
        assert torch.equal(other.step(), first)
        assert other.graph is not model.graph


@COPIES
def test_an_open_graph_is_not_copied(copied):
    with ao.AutogradGraph(name="mine") as graph, pytest.raises(ao.GraphError, match=r"'mine' is open.*test_copies"):
        copied(graph)


def test_graphs_are_not_pickled():
    for graph in (ao.AutogradGraph(), ao.AutogradGraph(optimize=True)):
        with pytest.raises(TypeError, match=r"cannot be pickled.*pickle tensors.*test_copies"):
            pickle.dumps(graph)
