"""What a graph has recorded, as an FX graph that runs under torch alone."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.fx import GraphModule

import autograd_opt as ao
from benchmarks import whole_programs
from benchmarks.algorithms import ALGORITHMS

assert whole_programs.MODULES


def leaves(*shapes: tuple[int, ...]) -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(shape, dtype=torch.float64).requires_grad_() for shape in shapes]


def statistics(x: Tensor, y: Tensor) -> Tensor:
    z = torch.cat([x, y], 1).view(2, -1).squeeze()
    return (z.softmax(1) * z.std(1, keepdim=True) + z[:, None, :1].sum(2)).logsumexp(0).sum()


def several(x: Tensor, y: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh(x @ x.T)
    a, b = y.chunk(2, 1)
    return values.sum() + vectors.abs().max() + (a.exp() * b.exp() + a.exp()).mean()


def written(x: Tensor, y: Tensor) -> Tensor:
    z = x * 2.0 + y[:, 1:]
    z.mul_(y[:, :3])
    return (z * z.sigmoid()).pow(2).sum() / 7


FUNCTIONS = [statistics, several, written]


@pytest.mark.parametrize("optimized", [False, True])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_values_and_gradients_are_those_of_the_graph(function: Callable[..., Tensor], optimized: bool) -> None:
    x, y = leaves((3, 3), (3, 4)) if function is not statistics else leaves((2, 3), (2, 3))
    with ao.AutogradGraph(optimize=optimized) as graph:
        out = function(x, y)
        forward = graph.to_fx(out, inputs=[x, y], optimized=optimized)
        both = graph.to_fx(out, inputs=[x, y], gradients=True, optimized=optimized)
        expected = graph.grad(out, [x, y])
    assert all(node.target.namespace == "aten" for node in both.graph.nodes
               if isinstance(node.target, torch._ops.OpOverload))
    (found,), ((value,), gradients) = forward(x.detach(), y.detach()), both(x.detach(), y.detach())
    assert torch.equal(found, out.detach())
    assert torch.equal(value, found)
    assert all(map(torch.equal, gradients, expected))


def test_repeated_work_is_in_it_once_where_it_is_optimized() -> None:
    x, = leaves((4,))
    with ao.AutogradGraph() as graph:
        out = ((x + 1).exp() * (x + 1).exp()).sum()
        modules = [graph.to_fx(out, gradients=True, optimized=on) for on in (False, True)]
    counts = [sum(node.target is torch.ops.aten.exp.default for node in m.graph.nodes) for m in modules]
    assert counts == [2, 1]


def test_it_works_on_other_values_of_the_inputs() -> None:
    x, y = leaves((3, 3), (3, 4))
    with ao.AutogradGraph() as graph:
        module = graph.to_fx(several(x, y), inputs=[x, y], gradients=True)
    other = [torch.randn_like(t).requires_grad_() for t in (x, y)]
    (value,), gradients = module(*(t.detach() for t in other))
    expected = several(*other)
    assert torch.allclose(value, expected)
    for a, b in zip(gradients, torch.autograd.grad(expected, other), strict=True):
        assert torch.allclose(a, b)


def test_a_step_of_a_network_leaves_buffers_random_state_and_the_graph_as_they_are() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv1d(2, 4, 3), nn.BatchNorm1d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(0.5),
                        nn.Linear(24, 3))
    x, y = torch.randn(5, 2, 8), torch.randint(0, 3, (5,))
    with ao.AutogradGraph(optimize=True) as graph:
        loss = F.cross_entropy(net(x), y)
        before, state, count = copy.deepcopy(net.state_dict()), torch.get_rng_state(), len(graph)
        module = graph.to_fx(loss, gradients=True)
        assert torch.equal(state, torch.get_rng_state())
        assert count == len(graph)
        module(*(p.detach() for p in net.parameters()))
        assert all(torch.equal(a, b) for a, b in zip(before.values(), net.state_dict().values(), strict=True))
        loss.backward()
    assert all(p.grad is not None for p in net.parameters())


class Found(Exception):
    """Ends a program whose first step was looked at."""


def first_step(program: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> str:
    """The first `backward` of a program: "equal", "drawn" where it has random numbers, or why it is refused."""
    answer = ""

    def compared(loss: Tensor) -> str:
        inputs = [node.tensor for node in graph if node.is_leaf and node.requires_grad]
        try:
            module = graph.to_fx(loss, inputs=inputs, gradients=True)
        except ao.UnsupportedError as error:
            return f"refused: {error}"
        if any(torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()) for node in module.graph.nodes):
            return "drawn"
        expected = graph.grad(loss, inputs, allow_unused=True)
        (value,), gradients = module(*(t.detach() for t in inputs))
        assert torch.equal(value, loss.detach())
        for a, b in zip(gradients, expected, strict=True):       # on some processors products round by the layout
            assert a is b is None or torch.allclose(a, b, rtol=1e-12, atol=1e-14)
        return "equal"

    def backward(loss: Tensor, *_: Any, **__: Any) -> None:
        nonlocal answer
        answer = compared(loss)
        raise Found

    monkeypatch.setattr(Tensor, "backward", backward)
    torch.manual_seed(0)
    with ao.AutogradGraph() as graph, pytest.raises(Found):
        program()
    return answer


EQUAL = ("gan_with_gradient_penalty variational_autoencoder policy_gradient q_learning_with_target sharpness_aware "
         "elastic_consolidation contrastive_pairs conditional_random_field sliced_score_matching "
         "residual_images heat_network beam_of_fourth_order hamiltonian_network "
         "neural_ode molecular_forces").split()


@pytest.mark.parametrize("name", EQUAL)
def test_steps_of_algorithms_are_equal(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        assert first_step(ALGORITHMS[name], monkeypatch) == "equal"
    finally:
        torch.set_default_dtype(before)


# What cannot be. -------------------------------------------------------------------------
class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return 2 * x

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return 2 * g


def hooked(x: Tensor) -> Tensor:
    y = x.exp()
    y.register_hook(lambda g: 2 * g)
    return y.sum()


REFUSED: list[tuple[str, Callable[[Tensor], Tensor]]] = [
    ("function", lambda x: Doubled.apply(x).sum()),  # type: ignore[no-untyped-call]
    ("cdist", lambda x: torch.cdist(x, x.sin()).sum()),
    ("shape [3, 3]", lambda x: (x + torch.ones(3, 3, dtype=x.dtype)).sum()),
    ("hooks change", hooked),
]


@pytest.mark.parametrize(("why", "function"), REFUSED)
def test_what_a_graph_does_not_keep_is_refused_with_a_sentence(why: str, function: Callable[[Tensor], Tensor]) -> None:
    x, = leaves((3, 3))
    with ao.AutogradGraph() as graph:
        out = function(x)
        with pytest.raises(ao.UnsupportedError) as caught:
            graph.to_fx(out, gradients=True)
        out.backward()
    text = str(caught.value)
    assert why in text
    assert "to_fx()" in text
    assert x.grad is not None


def test_a_graph_that_is_not_open_and_inputs_of_others_are_refused() -> None:
    x, y = leaves((3,), (3,))
    with ao.AutogradGraph() as graph:
        out = x.exp().sum()
        with pytest.raises(ao.ArgumentError, match="inputs"):
            graph.to_fx(out, inputs=[y])
    with pytest.raises(ao.OutsideGraphError):
        graph.to_fx()


def test_an_outer_graph_records_nothing_of_it() -> None:
    x, = leaves((3,))
    with ao.AutogradGraph() as outer:
        x.exp()
        count = len(outer)
        with ao.AutogradGraph() as graph:
            out = x.sin().sum()
            assert isinstance(graph.to_fx(out, gradients=True), GraphModule)
        assert len(outer) == count
