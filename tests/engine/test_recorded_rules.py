"""A recorded run by the rules in C leaves the nodes that the operator table's lines leave."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import autograd_opt as ao
from autograd_opt.engine.executor import use_native
from autograd_opt.record import context
from tests.differential import compare
from tests.engine.test_native import PROGRAMS, Program, inputs

Tensor = torch.Tensor


def described(node: Any) -> tuple[Any, ...]:
    """What two graphs must have in common at one record number."""
    operands = tuple(None if n is None else n.index for n in node.operands)
    leader = None if node.leader is None else node.leader.index
    meta = tuple(node.shape or ()), node.dtype, node.requires_grad
    return node.op.name, operands, repr(node.attributes), meta, leader


def second_order(program: Program, optimize: bool | str, in_c: bool, *given: Tensor) -> tuple[list[Any], list[Tensor]]:
    """The graph after a recorded run, and the derivatives of both orders; numeric runs by the table."""
    leaves = [ao.tensor(x) for x in given]
    torch.manual_seed(0)
    context.forget_places()            # what a first graph would keep for a second one opened here
    before = use_native(in_c)
    try:
        with ao.AutogradGraph(optimize=optimize) as graph:
            x, y = (t * 1.25 for t in leaves)
            loss = (program(x, y) * program(y, x)).sum() + program(x, y).sum()
            first = torch.autograd.grad(loss, leaves, create_graph=True)
            nodes = [described(n) for n in graph.tape.snapshot()]
            use_native(False)
            second = torch.autograd.grad(sum((g * g).sum() for g in first), leaves)
            return nodes, [*(g.detach().clone() for g in first), *second]
    finally:
        use_native(before)


@pytest.mark.parametrize("optimize", [False, "exact"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_same_nodes_and_bits_as_the_table(name: str, optimize: bool | str) -> None:
    nodes, values = second_order(PROGRAMS[name], optimize, True, *inputs())
    expected_nodes, expected_values = second_order(PROGRAMS[name], optimize, False, *inputs())
    assert nodes == expected_nodes
    for a, b in zip(values, expected_values, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_transposed_operand_is_recorded_once(name: str) -> None:
    """Where nodes may merge, the rules in C share the views that they read; nothing else differs."""
    nodes, values = second_order(PROGRAMS[name], True, True, *inputs())
    expected_nodes, expected_values = second_order(PROGRAMS[name], True, False, *inputs())
    assert [n[0] for n in nodes if n[0] != "mT"] == [n[0] for n in expected_nodes if n[0] != "mT"]
    assert len(nodes) <= len(expected_nodes)
    for a, b in zip(values, expected_values, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_a_view_of_the_users_keeps_its_own_cotangent() -> None:
    """A rule reads `w.mT`, as the user does: a hook on the user's view sees the user's cotangent alone."""
    given = inputs()

    def seen(graph: Any) -> list[Tensor]:
        x, w = (ao.tensor(t) for t in given)
        found: list[Tensor] = []
        with graph:
            mine = w.mT
            y = torch.tanh(x @ w.mT @ w)
            (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
            later = w.mT
            (h,) = torch.autograd.grad(g.sum(), x, create_graph=True)
            for view in (mine, later):
                view.register_hook(found.append)
            (h.sum() + (mine * 2).sum() + (later * 3).sum()).backward()
        return [*found, w.grad]

    for a, b in zip(seen(ao.AutogradGraph(optimize=True)), seen(ao.AutogradGraph()), strict=True):
        torch.testing.assert_close(a, b)


def test_the_rules_in_c_are_used() -> None:
    """Without them every operation of a rule is a call that a mode sees; with them none is."""
    import sys

    def calls(in_c: bool) -> int:
        count = 0

        def tracer(frame: Any, event: str, arg: Any) -> None:
            nonlocal count
            count += event == "call" and "/ops/" in frame.f_code.co_filename

        x, y = (ao.tensor(t) for t in inputs())
        before = use_native(in_c)
        try:
            with ao.AutogradGraph():
                z = torch.tanh(x @ y.mT).exp().sum()
                sys.setprofile(tracer)
                torch.autograd.grad(z, x, create_graph=True)
                sys.setprofile(None)
        finally:
            sys.setprofile(None)
            use_native(before)
        return count

    assert calls(True) == 0
    assert calls(False) > 0


@pytest.mark.parametrize("name", PROGRAMS)
def test_second_order_same_as_torch(name: str) -> None:
    def gradients(x: Tensor, y: Tensor) -> Tensor:
        loss = (PROGRAMS[name](x, y) * PROGRAMS[name](y, x)).sum()
        found = torch.autograd.grad(loss, (x, y), create_graph=True)
        return sum((g * g).sum() for g in found)  # type: ignore[return-value]

    if name not in ("to_half", "to_bfloat16"):      # sums in another order show in the few bits of these
        compare(gradients, *inputs(), rtol=1e-4)
