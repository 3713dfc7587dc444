"""The loss of a classifier: recorded as two operators for one class a row, composed by torch elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import autograd_opt as ao
from tests.differential import compare

CLASSES = torch.tensor([2, 0, 1])
WEIGHT = torch.tensor([0.5, 2.0, 1.5], dtype=torch.float64)
X = torch.linspace(-1, 1, 9, dtype=torch.float64).reshape(3, 3)

CALLS: dict[str, Callable[[Tensor], Any]] = {
    "plain": lambda x: F.cross_entropy(x, CLASSES),
    "weight": lambda x: F.cross_entropy(x, CLASSES, WEIGHT),
    "sum": lambda x: F.cross_entropy(x, CLASSES, reduction="sum"),
    "none": lambda x: F.cross_entropy(x, CLASSES, reduction="none").square().sum(),
    "ignored": lambda x: F.cross_entropy(x, CLASSES, ignore_index=0),
    "old names": lambda x: F.cross_entropy(x, CLASSES, size_average=False),
    "smooth": lambda x: F.cross_entropy(x, CLASSES, label_smoothing=0.1),
    "probabilities": lambda x: F.cross_entropy(x, X.softmax(1)),
    "one row": lambda x: F.cross_entropy(x[0], CLASSES[0]),
    "pixels": lambda x: F.cross_entropy(x.reshape(1, 3, 3), CLASSES.reshape(1, 3)),
    "module": lambda x: torch.nn.CrossEntropyLoss(WEIGHT)(x, CLASSES),
}
TWO = ("plain", "weight", "sum", "none", "ignored", "module")


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.filterwarnings("ignore:size_average")
def test_as_torch(name: str) -> None:
    compare(CALLS[name], X)


@pytest.mark.parametrize("name", TWO)
def test_two_operators(name: str) -> None:
    x = X.clone().requires_grad_()
    with ao.AutogradGraph() as graph:
        CALLS[name](x)
        names = [node.op.name for node in graph.dag.nodes() if not node.is_leaf]
    assert names[:2] == ["log_softmax", "nll_loss"]


def test_the_same_value_as_written_out() -> None:
    x = X.clone().requires_grad_()
    with ao.AutogradGraph(optimize=True) as graph:
        whole = F.cross_entropy(x, CLASSES)
        parts = F.nll_loss(F.log_softmax(x, 1), CLASSES)
        assert graph.report().merged == 2
    assert torch.equal(whole, parts)


@pytest.mark.parametrize("call", [
    lambda x: F.cross_entropy(x, CLASSES + 5),
    lambda x: F.cross_entropy(x, CLASSES, reduction="product"),
    lambda x: F.cross_entropy(x, CLASSES.int()),
    lambda x: F.cross_entropy(x, CLASSES[1:]),
    lambda x: F.cross_entropy(x, torch.cat([CLASSES, CLASSES])),
], ids=["class", "reduction", "type", "fewer", "more"])
def test_errors_of_torch(call: Callable[[Tensor], Any]) -> None:
    x = X.clone().requires_grad_()
    with pytest.raises((ValueError, IndexError, RuntimeError)) as theirs:
        call(x)
    with ao.AutogradGraph(), pytest.raises(theirs.type) as ours:
        call(x)
    assert str(theirs.value).splitlines()[0] in str(ours.value)


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("inside", [False, True], ids=["backward after", "backward inside"])
def test_gradients_under_autocast_have_torch_s_bits(optimize: bool, inside: bool) -> None:
    def step(x: Tensor, w: Tensor) -> list[Tensor]:
        with torch.autocast("cpu", torch.bfloat16):
            loss = F.cross_entropy(x @ w, torch.tensor([0, 2, 1]))
            if inside:
                loss.backward()
        if not inside:
            loss.backward()
        return [loss.detach(), x.grad, w.grad]  # type: ignore[list-item]

    def inputs() -> list[Tensor]:
        generator = torch.Generator().manual_seed(0)
        return [torch.randn(3, 3, generator=generator).requires_grad_() for _ in range(2)]

    expected = step(*inputs())
    with ao.AutogradGraph(optimize=optimize):
        found = step(*inputs())
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("optimize", [False, True])
def test_autocast_casts_it_as_one(optimize: bool) -> None:
    there, here = X.bfloat16().requires_grad_(), X.bfloat16().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        expected = F.cross_entropy(there, CLASSES)
    expected.backward()
    with ao.AutogradGraph(optimize=optimize):
        with torch.autocast("cpu", torch.bfloat16):
            got = F.cross_entropy(here, CLASSES)
        got.backward()
    assert got.dtype is expected.dtype
    assert torch.equal(got.detach(), expected.detach())
    assert here.grad is not None
    assert there.grad is not None
    assert torch.equal(here.grad, there.grad)


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("shape", [(5, 0), (0, 5), (0, 0), (2, 0, 3), (2, 3, 0)])
def test_no_examples_or_no_classes(shape: tuple[int, ...], reduction: str, smoothing: float, optimize: bool) -> None:
    targets = [torch.ones(shape)] + [torch.zeros(0, dtype=torch.long)] * (shape[0] == 0 and len(shape) == 2)
    for target in targets:
        def program(target: torch.Tensor = target) -> tuple[str, torch.Tensor | None]:
            x = torch.ones(shape, requires_grad=True)
            loss = torch.nn.functional.cross_entropy(x, target, reduction=reduction, label_smoothing=smoothing)
            loss.sum().backward()
            return repr(loss), x.grad

        text, grad = program()
        with ao.AutogradGraph(optimize=optimize):
            found = program()
        assert found[0] == text
        assert grad is not None
        assert found[1] is not None
        assert found[1].shape == grad.shape
