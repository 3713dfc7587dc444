"""The numbers given while recording and the pass that runs before backward find the same values.

The recorder numbers values one by one; `passes.cse` sees the whole tape as arrays.  Where both
may look they agree; the differences that are meant are named here.
"""

from __future__ import annotations

import pytest
import torch

import autograd_opt as ao
from autograd_opt.ops.table import MULTI
from autograd_opt.optimizer import merging
from autograd_opt.passes import Pipeline
from tests.fuzz.oracle import make_inputs
from tests.programs import Program, environment, from_seed

STATEMENTS_LEFT_OUT = ("backward(", "register_", "retain_grad", ".data", ".numpy()", "set_default")
"""Runs release what nodes hold; hooks and escapes keep twins apart after they were numbered."""


def disagreements(program: Program) -> list[str]:
    """Record the program, without its runs and hooks, and compare both sets of leaders."""
    env = environment(make_inputs("custom"))
    torch.manual_seed(0)
    with ao.AutogradGraph(passes=["cse", "prune"]) as graph:
        for statement, code in zip(program.statements, program.code, strict=True):
            if not any(word in statement for word in STATEMENTS_LEFT_OUT):
                try:
                    exec(code, env)
                except Exception:
                    break
        nodes = graph.tape.snapshot()
        first: dict[int, int] = {}  # a number outlives its value, so a dead node still counts
        online = [first.setdefault(node.value_number, node.index) for node in nodes]
        offline = Pipeline(["cse"]).run(merging.table_of(graph.tape), []).leader.tolist()
        found = compare(nodes, online, offline, any("grad()" in s or "set_grad" in s for s in program.statements))
        env.clear()
    return found


def compare(nodes: list[object], online: list[int], offline: list[int], modes: bool) -> list[str]:
    """Nodes on which both differ for no reason that is meant.

    Outputs of one call are numbered by the pass only.  While recording, a value made under
    `no_grad` stays apart from its twin even where neither requires grad.
    """
    found = []
    excused: set[int] = set()
    for node in nodes:
        i = node.index  # type: ignore[attr-defined]
        operands = [n.index for n in node.operands if n is not None]  # type: ignore[attr-defined]
        several = bool(node.op.flags & MULTI) or str(node.op) == "output"  # type: ignore[attr-defined]
        apart = modes and not node.requires_grad and offline[i] < online[i]  # type: ignore[attr-defined]
        if several or apart or any(o in excused for o in operands):
            if online[i] != offline[i]:
                excused.add(i)
            continue
        if online[i] != offline[i]:
            found.append(f"%{i} {node.op}{operands}: {online[i]} while recording, {offline[i]} by the pass")
    return found


@pytest.mark.parametrize("chunk", range(10))
def test_both_find_the_same(chunk: int) -> None:
    merged = 0
    for seed in range(60 * chunk, 60 * (chunk + 1)):
        program = from_seed(seed)
        assert not (found := disagreements(program)), "\n".join([*found, "--- program ---", str(program)])
        merged += 1
    assert merged


def test_a_commuted_operand_is_found_by_both() -> None:
    program = Program(["a = x + c", "b = c + x", "u = x * c", "v = c * x", "p = a * u", "q = v * b"])
    assert disagreements(program) == []


def test_a_dead_value_is_found_by_both() -> None:
    program = Program(["a = (x + y).exp()", "del a", "b = (x + y).exp()", "c2 = (x + y).exp() * b"])
    assert disagreements(program) == []
