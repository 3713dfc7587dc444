"""A user's program over the whole interface is checked strictly, and no result is of the type Any."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BEFORE = '''
"""A user's program."""

import torch

import autograd_opt as ao

x = ao.tensor([1.0, 2.0])


def f(a: torch.Tensor) -> torch.Tensor:
    return (a * a).sum()


def g(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a * b).sum()


graph = ao.AutogradGraph(optimize=True, name="g", keep=True)
e = ao.explain()
'''
EXPRESSIONS = """
ao.tensor([1.0]); ao.CustomTensor([[1.0]], dtype=torch.float64, requires_grad=False)
ao.autograd_graph(optimize=True); graph.backward(f(x)); graph.grad(f(x), x); len(graph); graph.is_acyclic()
graph.report(); graph.report().nodes; graph.report().merged; graph.report().passes[0].seconds
graph.report().groups[0].sources
graph.report().near_misses[0].reason; graph.report().to_dict()["merged"] is None
graph.verify(); graph.verify().status; graph.verify().leaves; graph.verify().to_json(); graph.verify().require()
graph.explain(x, x); graph.explain(x, x).differences; graph.explain(x, x).differences[0].text
graph.snapshot(); graph.snapshot()[0]; graph.snapshot()[0:2]; graph.snapshot()[0].op; graph.snapshot()[0].operands
graph.snapshot().to_html().strip(); graph.snapshot().draw("g.svg").name
list(graph.snapshot()); graph.snapshot().report(); graph.snapshot().verify(); graph.snapshot().draw()
list(graph); graph[0]; graph[0:2]; graph.dag; graph.optimized(); graph.topological_order()
graph.draw("g.svg").name; graph.to_html("g.html").name
graph.draw(); graph.to_html(); graph.to_dot(); graph.to_mermaid(); str(graph)
graph.gradient_expression(x); graph.gradient_expression(x).operations; graph.gradient_expression(x).latex()
ao.grad(f)(x); ao.grad(g, argnums=(0, 1))(x, x); ao.value_and_grad(f)(x); ao.value_and_grad(g, argnums=(0, 1))(x, x)
ao.jacobian(f, x); ao.jacobian(g, (x, x)); ao.hessian(f, x); ao.hessian(g, (x, x))
ao.vjp(f, x); ao.jvp(f, x, x); ao.hvp(f, x, x); ao.vhp(f, x, x)
ao.gradcheck(f, (x,)); ao.gradgradcheck(f, (x,)); ao.checkpoint(f, x); ao.optimize(f); ao.optimize(f)(x)
ao.compile(f).report(); ao.compile(f).report().kinds[0].reason
e.report; e.report.findings; e.report.findings[0].advice; e.report.findings[0].lines[0].seconds
e.report.near_misses[0].reason
e.report.repeated_seconds; e.report.watched_share; e.report.findings[0].count; e.report.findings[0].action
graph.snapshot()[0].source; graph.snapshot()[0].merged; graph.snapshot()[0].type; graph.name
graph.profile("trace.json").__enter__(); ao.draw_comparison(graph); ao.draw_comparison(graph, "g.svg").name
ao.autograd_graph(); x.grad; x.requires_grad; x * 2; x.sum(); torch.sin(x)
""".replace("\n", ";").split(";")


@pytest.mark.slow
def test_a_users_program_has_no_any(tmp_path: Path) -> None:
    pytest.importorskip("mypy", reason="types are checked by mypy, which the extra dev has")
    lines = [text.strip() for text in EXPRESSIONS if text.strip()]
    file = tmp_path / "user.py"
    file.write_text(BEFORE + "\n".join(f"reveal_type({text})" for text in lines) + "\n")
    command = [sys.executable, "-m", "mypy", "--strict", "--no-pretty", "--cache-dir", str(tmp_path / "cache"),
               "--follow-imports=silent", str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    said = [line for line in done.stdout.splitlines() if "user.py:" in line]
    assert not [line for line in said if ": error:" in line], said
    revealed = [found[1] for line in said if (found := re.search(r'Revealed type is "(.*)"', line))]
    assert len(revealed) == len(lines)
    assert not [(text, kind) for text, kind in zip(lines, revealed, strict=True) if re.search(r"\bAny\b", kind)]
    assert len(BEFORE.splitlines()) + len(lines) >= 100
