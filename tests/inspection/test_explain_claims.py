"""Claims that a reader checks by counting: how often, for which lines, and whether a value leaves a loop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from autograd_opt.explaining import Watch, explain
from autograd_opt.explaining.findings import Finding
from autograd_opt.explaining.sites import loops_of
from tests.inspection.test_explain import watch
from tests.inspection.test_explain_advice import findings_of, run


def resume(e: Watch) -> None:
    """Watch again after a pause, as the timer does."""
    e.forget()
    e.windows += 1
    e.tired = False


def paused(steps: int, changes: bool) -> list[Finding]:
    """What is found in a loop of which every second step is not watched; a value changes there, or never."""
    x, e = torch.ones(3), explain(budget=1e9)
    with e:
        for k in range(steps):
            if k % 4 == 2:
                e.pause(e.now())
                x.add_(float(changes))
                resume(e)
            _y = x.exp() * 2
            torch.rand(1)
    return list(e.report.findings)


def test_a_value_that_changes_while_nothing_is_watched_does_not_leave_the_loop() -> None:
    (finding,) = paused(16, True)
    assert finding.action == "keep", finding.advice
    assert "on values it had before in" in finding.advice


def test_a_value_that_stays_while_nothing_is_watched_leaves_the_loop() -> None:
    (finding,) = paused(16, False)
    assert finding.action == "hoist", finding.advice


def test_what_watching_cost_and_operations_are_no_more_than_the_whole() -> None:
    with (e := explain(budget=1e9)):
        for _ in range(20):
            torch.rand(3).exp()
        e.sampled_seconds += 40.0                        # as estimated on a machine that others use
    found = e.report
    assert found.own_seconds > 0
    assert found.own_seconds + found.seconds + found.first_seconds <= found.total_seconds * (1 + 1e-9)


def test_a_few_equal_values_of_a_program_watched_in_part_are_not_all() -> None:
    x, e = torch.ones(3), explain(budget=1e9)
    with e:
        y = (x * 1).exp()
        z = (x + 0).exp()
        a = x.sin()
        b = x.sin()
        y.neg()
        e.pause(e.now())
        resume(e)
    assert torch.equal(y, z)
    assert a is not b
    (finding,) = e.report.findings
    assert finding.action == "reuse"     # the same text, side by side
    with (e := explain(budget=1e9)):
        t = u = x
        a = t.sin()
        b = u.sin()
        y.neg()
        e.pause(e.now())
        resume(e)
    (finding,) = e.report.findings
    assert finding.action == "keep", finding.advice
    assert "in 1 of 1 runs that were watched" in finding.advice


def test_an_expression_does_not_repeat_its_own_module() -> None:
    text = watch(own_module).findings[0].advice
    assert "`h(x)` once" in text
    assert "had before" not in text


def own_module() -> None:
    h, base = torch.nn.Tanh(), torch.ones(3)
    for k in range(4):
        x = base + k
        h(x)
        z = x
        h(z)


def test_what_carries_no_gradients_is_one_value_with_grad_mode_on_and_off(tmp_path: Path) -> None:
    program = ("import torch\nx = torch.arange(6)\ny = x > 2\nwith torch.no_grad():\n    z = x > 2\n"
               "u = torch.linspace(0, 1, 5)\nwith torch.no_grad():\n    v = torch.linspace(0, 1, 5)\nRESULT = 0\n")
    found = run(program, tmp_path / "modes.py", True)[1]
    assert found is not None
    assert not found.near_misses
    assert {line.op for f in found.findings for line in f.lines} == {"gt", "linspace"}


def test_what_runs_in_inference_mode_is_not_shared_with_what_does_not(tmp_path: Path) -> None:
    program = ("import torch\nx = torch.ones(6)\ny = x.exp()\nwith torch.inference_mode():\n    z = x.exp()\n"
               "RESULT = 0\n")
    found = run(program, tmp_path / "inference.py", True)[1]
    assert found is not None
    assert not found.findings
    assert [m.reason for m in found.near_misses] == ["one of them runs in inference mode only"]


CHAINS = """import torch
def f(x):
    return x.exp().sum()
a, b = torch.rand(3), torch.rand(3)
for k in range(6):
    f(a + k % 2)
for k in range(10):
    f(b + k)
RESULT = 0
"""


def test_runs_are_counted_wherever_the_line_is_reached_from(tmp_path: Path) -> None:
    advice = [f.advice for f in findings_of(CHAINS, tmp_path / "chains.py")]
    assert not any("of 6 runs" in text for text in advice if "x.exp()" in text), advice
    inner = CHAINS.replace("f(a + k % 2)", "f(a + k % 2); torch.rand(1)").replace("x.exp().sum()", "x.exp() * draw()")
    inner = inner.replace("def f", "def draw():\n    return torch.rand(1)\ndef f")
    (finding,) = [f for f in findings_of(inner, tmp_path / "inner.py") if "x.exp()" in f.expressions]
    assert "in 4 of 16 runs" in finding.advice


LINES = """import torch
def f(x):
    mid = x.exp()
    low = mid * 2
    high = mid + 3
    return (low - high) * torch.rand(1)
def outer(x):
    for _ in range(2):
        f(x)
x = torch.rand(3)
for _ in range(4):
    outer(x)
f(x + 1)
f(x + 2)
RESULT = 0
"""


def test_several_values_have_their_lines_and_leave_all_loops(tmp_path: Path) -> None:
    (finding,) = findings_of(LINES, tmp_path / "lines.py")
    assert finding.count == 7 * 4
    assert " have one value each throughout the loop at " in finding.advice
    assert "lines.py:11, one for each chain of calls that leads there: compute them once" in finding.advice
    assert "lines.py:3, " in finding.advice


def test_one_value_for_several_lines_is_one_finding(tmp_path: Path) -> None:
    program = ("import torch\nfor k in range(3):\n    x = torch.rand(4)\n    a = x.exp()\n    b = x.exp()\n"
               "    c = x.exp()\nRESULT = 0\n")
    (finding,) = findings_of(program, tmp_path / "three.py")
    assert "three.py:4, and use it at" in finding.advice
    assert "three.py:5 and" in finding.advice
    assert finding.advice.endswith("three.py:6")
    assert finding.count == 6


def test_a_part_of_what_repeats_as_a_whole_is_equal_side_by_side(tmp_path: Path) -> None:
    program = ("import torch\ndef code(x):\n    return torch.cat([x,\n        torch.sin(2 * x),\n"
               "        torch.cos(2 * x)])\na, b = torch.rand(3), torch.rand(3)\nfor k in range(4):\n    code(a)\n"
               "    code(b + k)\nRESULT = 0\n")
    found = findings_of(program, tmp_path / "whole.py")
    texts = [f.advice for f in found]
    assert sum("`2 * x`" in text for text in texts) == 1, texts
    assert any("compute `2 * x` once, at" in text for text in texts), texts


def test_a_loop_is_named_by_its_head(tmp_path: Path) -> None:
    program = ("import torch\nfrom torch.utils.data import DataLoader\n"
               "rows = torch.utils.data.TensorDataset(torch.rand(4, 2))\nfor _ in range(2):\n"
               "    for batch in DataLoader(rows, 2):\n        batch[0].sin()\n        del batch\nRESULT = 0\n")
    (finding,) = [f for f in findings_of(program, tmp_path / "head.py") if "stack" in f.advice]
    assert "inside `for batch in DataLoader(rows, 2)` at" in finding.advice


def test_the_seed_of_a_derivative_is_torch_s_own(tmp_path: Path) -> None:
    program = ("import torch\nx = torch.ones(3, requires_grad=True)\nw = torch.rand(3, requires_grad=True)\n"
               "y = (x.exp() * w.sin()).sum()\ntorch.autograd.grad(y, x, retain_graph=True)\n"
               "torch.autograd.grad(y, w)\nRESULT = 0\n")
    found = run(program, tmp_path / "seed.py", True)[1]
    assert found is not None
    assert not [line for f in found.findings for line in f.lines if line.op == "ones_like"]


@pytest.mark.parametrize("optimizer", ["Adam", "AdamW"])
def test_what_an_optimizer_makes_is_not_counted_as_left_out(optimizer: str) -> None:
    parameters = [torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)]
    opt = getattr(torch.optim, optimizer)(parameters)
    for k, p in enumerate(parameters):
        p.grad = torch.ones(3) + k
    with explain() as e:
        opt.step()
    assert not e.report.written_after


TURNS = """import torch
def inner(x):
    for _ in range(2):
        y = x.exp() * torch.rand(1)
    return y
def outer(e):
    for k in range(4):
        inner(torch.rand(3))
        if k == 0:
            e.pause(e.now())
            e.spare = lambda now: -1.0   # the timer does not end the pause
with explain(budget=1e9) as e:
    outer(e)
"""


def test_a_loop_of_which_one_turn_was_seen_is_not_the_one_to_leave(tmp_path: Path) -> None:
    file = tmp_path / "turns.py"
    file.write_text(TURNS)
    world = {"explain": explain}
    exec(compile(TURNS, str(file), "exec"), world)
    (finding,) = world["e"].report.findings
    assert "compute `x.exp()` once, before the loop at" in finding.advice
    assert "turns.py:3" in finding.advice


CALLS = TURNS.replace("    for _ in range(2):\n        y = x.exp()", "    if True:\n        y = x.exp()").replace(
    "torch.rand(3))", "base)").replace("k == 0", "k == 2").replace("def inner", "base = torch.rand(3)\ndef inner")
CALLS = CALLS.replace("# the timer does not end the pause", "\n        if k > 1:\n            base.add_(1)")


def test_a_loop_of_a_caller_of_which_some_turns_were_watched_is_not_left(tmp_path: Path) -> None:
    """What the caller changes in the others may be in any line of it."""
    file = tmp_path / "calls.py"
    file.write_text(CALLS)
    world = {"explain": explain}
    exec(compile(CALLS, str(file), "exec"), world)
    (finding,) = world["e"].report.findings
    assert finding.action == "keep", finding.advice
    assert "on values it had before in at least 2 of 3 runs that were watched" in finding.advice


def test_what_reads_a_variable_of_an_inner_loop_does_not_leave_an_outer_one(tmp_path: Path) -> None:
    """The inner loop makes one turn each time, so that its variable has one value."""
    program = ("import torch\ndef f(x, n):\n    k = 0\n    while k < n:\n        y = x[k].exp() * torch.rand(1)\n"
               "        k += 1\na = torch.rand(3)\nfor _ in range(5):\n    f(a, 1)\nRESULT = 0\n")
    (finding,) = findings_of(program, tmp_path / "inner.py")
    assert finding.action == "keep", finding.advice


def test_the_truth_of_a_value_is_no_further_run_of_an_expression(tmp_path: Path) -> None:
    """Python gives the jump behind `(d[:-1] == 0).all()` the position of `c == 0`."""
    program = ("import torch\ndef f(c, d):\n    if not (c == 0 and (d[:-1] == 0).all()):\n"
               "        return torch.rand(1)\n    return torch.rand(2)\na, b = torch.zeros(()), torch.zeros(3)\n"
               "for k in range(6):\n    f(a + k % 2, b)\nRESULT = 0\n")
    advice = [f.advice for f in findings_of(program, tmp_path / "truth.py")]
    assert any("`c == 0` on values it had before in 4 of 6 runs" in text for text in advice), advice


def test_runs_that_are_listed_with_what_is_around_them_are_counted(tmp_path: Path) -> None:
    """In turns 2 and 4 `f` repeats as a whole, in turns 1, 3 and 5 `x.exp()` alone."""
    program = ("import torch\ndef f(x, noise):\n    y = x.exp()\n    return y * torch.rand(1) if noise else y * 2\n"
               "a = torch.rand(3)\nfor k in range(8):\n    x = a if k < 6 else torch.rand(3)\n    f(x, k % 2)\n"
               "RESULT = 0\n")
    found = {f.expressions: f for f in findings_of(program, tmp_path / "around.py")}
    finding = found["x.exp()",]
    assert finding.count == 3
    assert "in 5 of 8 runs" in finding.advice


def test_repeats_with_gradients_are_seen_after_ones_without(tmp_path: Path) -> None:
    program = ("import torch\nw = torch.rand(3, requires_grad=True)\nwith torch.no_grad():\n    w.exp()\n"
               "for k in range(4):\n    y = w.exp() * torch.rand(1)\nRESULT = 0\n")
    (finding,) = findings_of(program, tmp_path / "without.py")
    assert finding.action == "hoist"
    assert finding.count == 3


PHYSICS = """import torch
net = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
def u(x, t):
    return net(torch.stack([x, t], 1)).squeeze(1)
def grad(y, x):
    return torch.autograd.grad(y.sum(), x, create_graph=True)[0]
def residual(x, t):
    u_t = grad(u(x, t), t)
    u_x = grad(u(x, t), x)
    u_xx = grad(grad(u(x, t), x), x)
    return u_t + u(x, t) * u_x - u_xx
x, t = torch.rand(6).requires_grad_(), torch.rand(6).requires_grad_()
RESULT = residual(x, t).sum().item()
"""


def test_what_is_computed_first_on_another_line_is_said_of_that_line(tmp_path: Path) -> None:
    texts = [f.advice for f in findings_of(PHYSICS, tmp_path / "physics.py")]
    text = next(text for text in texts if "`u(x, t)` once" in text)
    first, second = sorted(text.split(", and compute ") if ", and compute " in text else [text, ""])
    assert "`grad(u(x, t), x)`" not in text or "physics.py:9, and use it at" in text, text
    assert "physics.py:8, and use it at" in text, text
    assert first != second


def test_what_reads_another_leaf_is_not_shared(tmp_path: Path) -> None:
    program = ("import torch\nw = torch.rand(3)\nv = w.detach().requires_grad_()\na = v.exp() + 1\n"
               "u = w.detach().requires_grad_()\nb = u.exp() + 1\n(a * torch.rand(3)).sum().backward()\n"
               "(b * torch.rand(3)).sum().backward()\nRESULT = u.grad\n")
    found = findings_of(program, tmp_path / "leaves.py")
    assert not any(f.action in ("reuse", "hoist") for f in found), [f.advice for f in found]
    assert any("their gradients flow to different leaves" in f.advice for f in found), [f.advice for f in found]


def test_a_repeat_is_left_out_once() -> None:
    x = torch.rand(3)
    with explain() as e:
        first = x * 2
        second = x * 2
        second.add_(1)
        first.mul_(3)
    assert e.report.written_after == 1


def test_what_is_counted_with_an_expression_is_named(tmp_path: Path) -> None:
    program = ("import torch\nxs = [torch.rand(3), torch.rand(3)]\ndef f(x):\n    y = x.exp()\n    z = y * 2\n"
               "    return z * torch.rand(1)\nfor k in range(6):\n    f(xs[k % 2])\nRESULT = 0\n")
    (finding,) = findings_of(program, tmp_path / "named.py")
    assert finding.count == 8
    assert "in 4 of 6 runs" in finding.advice
    assert "; counted with it are repeats at" in finding.advice


def test_what_is_left_to_compute_before_each_run_of_a_loop_is_not_counted(tmp_path: Path) -> None:
    """Runs of the loop have the value of an earlier one, too: leaving the loop saves three of four turns of each."""
    program = ("import torch\na = torch.rand(3)\ndef f(x):\n    for _ in range(4):\n"
               "        y = x.exp() * torch.rand(1)\nf(a)\nf(a + 1)\nfor k in range(3):\n"
               "    f(a if k < 2 else torch.rand(3))\nRESULT = 0\n")
    (finding,) = findings_of(program, tmp_path / "left.py")
    assert finding.action == "hoist"
    assert "before the loop at" in finding.advice
    assert "left.py:4" in finding.advice
    assert finding.count == 5 * 3


def after_a_context(values: list[Any]) -> None:
    with torch.no_grad():
        pass
    for _ in values:
        for _ in values:
            pass


def with_a_handler(values: list[Any]) -> None:
    for value in values:
        try:
            value()
        except ValueError:
            continue
    for _ in values:
        pass


def until_it_answers(ask: Any) -> Any:
    while True:
        try:
            return ask()
        except ValueError:
            pass


@pytest.mark.parametrize(("function", "nested"), [
    (after_a_context, [(0, 1)]), (with_a_handler, []), (until_it_answers, []),
], ids=lambda v: getattr(v, "__name__", ""))
def test_a_way_back_from_an_exception_makes_no_loop(function: Any, nested: list[tuple[int, int]]) -> None:
    found = loops_of(function.__code__)
    assert len(found) == (1 if function is until_it_answers else 2)
    inside = [(i, j) for i, a in enumerate(found) for j, b in enumerate(found) if a[0] < b[0] <= b[1] <= a[1]]
    assert inside == nested
