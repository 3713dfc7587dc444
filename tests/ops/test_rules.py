"""Every rule of the operator table against torch eager: value, gradient, gradient of the gradient."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import autograd_opt as ao
from autograd_opt.engine.executor import use_native
from autograd_opt.graph.node import Vjp
from autograd_opt.ops.table import HOT, OPS
from tests.ops.checker import check
from tests.ops.rows import ROWS, Row

SEEN: set[tuple[str, str]] = set()
RAN: set[str] = set()


def run(row: Row, optimize: bool) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own deprecations of the functions under test
        check(row.function, row.make(), row.order, optimize, SEEN)
    RAN.add(row.name)


@pytest.mark.parametrize("optimize", [False, True], ids=["plain", "optimize"])
@pytest.mark.parametrize("row", ROWS, ids=[r.name for r in ROWS])
def test_row(row: Row, optimize: bool) -> None:
    run(row, optimize)


@pytest.fixture
def table_only() -> Iterator[None]:
    """Without the rules that are written in C as well."""
    before = use_native(False)
    yield
    use_native(before)


@pytest.mark.parametrize("row", [r for r in ROWS if r.name.partition("-")[2].split()[0] in HOT], ids=lambda r: r.name)
def test_row_by_the_table(row: Row, table_only: None) -> None:
    run(row, False)


def test_every_rule_is_exercised() -> None:
    for row in ROWS:
        if row.name not in RAN:  # tests run in any order, or this one alone
            run(row, False)
    wanted = set()
    for op in OPS.values():
        for name, vjp in zip(op.operands, op.vjps, strict=True):
            if vjp is not None and vjp.fn.__module__.startswith("autograd_opt.ops"):
                wanted.add((op.name, name))
        if op.joint is not None and op.joint.fn.__module__.startswith("autograd_opt.ops"):
            wanted.add((op.name, op.operands[0] if op.operands else "*"))
    assert sorted(wanted - SEEN - UNKNOWN_TO_TORCH) == []


UNKNOWN_TO_TORCH = {("logit_backward", "g"), ("logit_backward", "x"),
                    ("hardsigmoid_backward", "g"), ("hardsigmoid_backward", "x")}
"""Rules of kernels that torch itself does not differentiate; each has a test of its own."""


def test_a_second_derivative_of_hardsigmoid_is_refused_as_in_torch() -> None:
    def twice() -> None:
        x = torch.tensor([0.5, 4.0], requires_grad=True)
        first, = torch.autograd.grad(torch.nn.functional.hardsigmoid(x).sum(), x, create_graph=True)
        assert first.requires_grad
        torch.autograd.grad(first.sum(), x)

    with pytest.raises(RuntimeError, match="hardsigmoid_backward is not implemented"):
        twice()
    with ao.AutogradGraph(), pytest.raises(RuntimeError, match="hardsigmoid_backward is not implemented"):
        twice()


def test_the_backward_kernel_of_logit_is_differentiated() -> None:
    g, x = torch.tensor([1.0, -2.0], dtype=torch.float64), torch.tensor([0.3, 0.9], dtype=torch.float64)
    g.requires_grad_(), x.requires_grad_()
    expected = torch.autograd.grad((g / (x * (1 - x))).sum(), [g, x])
    with ao.AutogradGraph():
        found = torch.autograd.grad(torch.ops.aten.logit_backward(g, x).sum(), [g, x])
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(("name", "operand", "function"), [
    ("mul", 0, lambda x, y: torch.special.expit(x) * y), ("div", 1, lambda x, y: x / y),
        ("exp", 0, lambda x, y: x.exp() + y),
    ("matmul", 1, lambda x, y: x @ y.mT), ("sum", 0, lambda x, y: x.sum(0) * y),
    ("where", 1, lambda x, y: torch.where(x > 0, x, y)),
    ("tanh_backward", 1, lambda x, y: torch.tanh(x) * y), ("slice", 0, lambda x, y: x[1:] * y[1:]),
])
def test_a_rule_wrong_by_a_twentieth_of_a_percent_fails(
    name: str, operand: int, function: Any, table_only: None
) -> None:
    rows = [torch.rand(3, 4, dtype=torch.float64, requires_grad=True),
        torch.rand(3, 4, dtype=torch.float64, requires_grad=True)]
    check(function, rows)
    op = OPS[name]
    right = op.vjps[operand]
    op.vjps[operand] = Vjp(lambda *args, **kwargs: 1.0005 * right.fn(*args, **kwargs), right.codes, right.attributes,
        right.needs)
    try:
        with pytest.raises(AssertionError, match="differs from torch"):
            check(function, rows)
    finally:
        op.vjps[operand] = right
    check(function, rows)


@pytest.mark.parametrize("name", ["mse_loss", "smooth_l1_loss"])
def test_a_loss_called_below_torch_functional_may_broadcast(name: str) -> None:
    loss, arguments = getattr(torch._C._nn, name), (1,) if name == "mse_loss" else (1, 1.0)
    x = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    y = torch.linspace(0.0, 2.0, 4, dtype=torch.float64, requires_grad=True)
    with ao.AutogradGraph() as graph:
        found = graph.grad(loss(x, y, *arguments), (x, y))
    wanted = torch.autograd.grad(loss(x.expand(4), y, *arguments), (x, y))
    torch.testing.assert_close(found, wanted)
