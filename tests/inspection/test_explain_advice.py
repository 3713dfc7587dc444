"""Advice is taken literally: random scripts are changed as `explain` says, and have to compute the same."""

from __future__ import annotations

import ast
import math
import random
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from autograd_opt.explaining import explain
from autograd_opt.explaining.findings import Finding, Findings

START = """
import torch
torch.manual_seed(0)
a, b, c, d = torch.rand(3), torch.rand(3), torch.rand(3), torch.rand(3)
w = torch.rand(3, requires_grad=True)
def f(x, y):
    return (x * y).sin() + x.exp()
def g(x, k):
    z = x.cos()
    z.mul_(k)
    return z + 1
def h(x, y):
    x.add_(y.exp())
    return x.sin()
def p(x, y):
    return x.exp(), y
def q(x):
    s = torch.zeros(3)
    for t in (x, x):
        s = f(t, s)
    return s
class State:
    k = 0
    def next(self):
        self.k += 1
        return a[self.k % 2].exp()
state = State()
"""
END = "\nRESULT = [v.tolist() for v in (a, b, c, d, w)] + [None if w.grad is None else w.grad.tolist()]\n"


def script(seed: int) -> str:
    """A small program with loops, functions, in-place writes, gradients and branches."""
    r = random.Random(seed)
    lines: list[str] = []

    def name() -> str:
        return r.choice("abcd")

    def operand() -> str:
        return r.choice([*"abcd", *"abcd", "w", "c.detach()", f"{name()}[:]"])

    def expression() -> str:
        x, y = operand(), operand()
        return r.choice([
            f"{x}.exp()", f"{x} * {y}", f"({x} + {y}).tanh()", f"f({x}, {y})", f"f({x}, {y})",
            f"g({x}, {r.choice('23')})",
            f"q({x})", f"p({x}, {y})[{r.choice('01')}]", "torch.ones(3)", f"h({name()}, {y}).detach()", f"{x}.clone()",
            f"sum({x}.exp() for _ in range(2))", f"[{x}.exp() + k for k in range(2)][1]", f"{x} * i", "state.next()",
            f"torch.stack([{x}, {y}]).logsumexp(0)", f"{x}.sum() * {y}",
        ])

    def block(depth: int, margin: str) -> None:
        for _ in range(r.randint(2, 5)):
            kind = r.random()
            if kind < 0.15 and depth < 3:
                lines.append(f"{margin}for {'ijk'[depth - 1] if depth else 'i'} in range({r.randint(2, 3)}):")
                block(depth + 1, margin + "    ")
            elif kind < 0.22:
                lines.append(f"{margin}with torch.no_grad():")
                lines.append(f"{margin}    {name()} = {expression()}")
            elif kind < 0.3:
                lines.append(f"{margin}if i {r.choice(['==', '!='])} 1:")
                lines.append(f"{margin}    {name()} = {expression()}")
            elif kind < 0.4:
                lines.append(f"{margin}{name()}.detach().mul_(0.5)")
            elif kind < 0.5:
                lines.append(f"{margin}(w * {expression()}).sum().backward()")
            elif kind < 0.55:
                lines.append(f"{margin}with torch.no_grad():")
                lines.append(f"{margin}    w.sub_(0.1)")
            else:
                lines.append(f"{margin}{name()} = {expression()}")

    lines.append("i = 0")
    block(0, "")
    lines.append("for i in range(3):")
    block(1, "    ")
    return START + "\n".join(lines) + END


def run(text: str, file: Path, watched: bool) -> tuple[Any, Findings | None]:
    """The results of a program, and what was found."""
    file.write_text(text)
    code, world = compile(text, str(file), "exec"), dict[str, Any]({"__name__": "__main__"})
    if not watched:
        exec(code, world)
        return world["RESULT"], None
    with explain(budget=1e9) as e:
        exec(code, world)
    return world["RESULT"], e.report


HELPERS = """
_kept = {}
def _put(key, value):
    _kept[key] = value
    return value
def _once(key, compute):
    if key not in _kept:
        _kept[key] = compute()
    return _kept[key]
"""


class Change(ast.NodeTransformer):
    """Replaces an expression on one line."""

    def __init__(self, line: int, text: str, by: str) -> None:
        self.line, self.text, self.by, self.done = line, text, by, 0

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.expr) and node.lineno == self.line and ast.unparse(node) == self.text:
            self.done += 1
            return ast.parse(self.by.format(self.text), mode="eval").body
        return self.generic_visit(node)


class Before(ast.NodeTransformer):
    """Puts statements before the loop at a line."""

    def __init__(self, line: int, text: str) -> None:
        self.line, self.text, self.done = line, text, 0

    def visit_For(self, node: ast.For) -> Any:
        self.generic_visit(node)
        if node.lineno == self.line:
            self.done += 1
            return [*ast.parse(self.text).body, node]
        return node


def changed(text: str, finding: Finding) -> str | None:
    """The program with the advice taken; None where it does not say what to replace."""
    tree = ast.parse(text)
    normal = [ast.unparse(ast.parse(e, mode="eval")) for e in finding.expressions]
    if finding.action == "reuse" and "compute it once and hand it" not in finding.advice and len(normal) == 1:
        first, *uses = (int(place.rpartition(":")[2]) for place in finding.places)
        source = re.match(r"compute `(.*?)` once, at", finding.advice)
        assert source is not None
        made = ast.unparse(ast.parse(source[1], mode="eval"))
        steps: list[Any] = [Change(line, normal[0], "_kept['key']") for line in uses]
        steps.append(Change(first, made, "_put('key', {})"))
        if first in uses:
            return None                  # which of two on one line is not said
    elif finding.action == "hoist":
        loop = re.search(r"the loop at [^ ]*:(\d+)", finding.advice)
        assert loop is not None
        line = int(loop[1])
        place = int(finding.places[0].rpartition(":")[2])
        if len(normal) != 1:
            return None
        context = re.search(r"also under `(with .*?)`", finding.advice)
        if "before the loop" in finding.advice and context is not None:
            steps = [Change(place, normal[0], "_moved"), Before(line, f"{context[1]}:\n    _moved = {normal[0]}")]
        elif "before the loop" in finding.advice:
            steps = [Change(place, normal[0], "_moved"), Before(line, f"_moved = {normal[0]}")]
        else:
            steps = [Change(place, normal[0], "_once('key', lambda: {})"), Before(line, "_kept.clear()")]
    else:
        return None
    for step in steps:
        tree = step.visit(tree)
        if step.done != 1:
            return None                  # the text stands there twice
    result = HELPERS + ast.unparse(ast.fix_missing_locations(tree))
    if "retain_graph" in finding.advice:
        result = result.replace(".backward()", ".backward(retain_graph=True)")
    return result


def alike(one: Any, other: Any) -> bool:
    """True if lists are equal but for the order in which gradients are summed."""
    if isinstance(one, list):
        return len(one) == len(other) and all(alike(a, b) for a, b in zip(one, other, strict=True))
    return one is other or one == other or (one is not None and other is not None and (
        (math.isnan(one) and math.isnan(other)) or math.isclose(one, other, rel_tol=1e-4, abs_tol=1e-6)))


TAKEN = {"reuse": 0, "hoist": 0}


def take(seed: int, folder: Path) -> None:
    text = script(seed)
    try:
        bare, _ = run(text, folder / "bare.py", False)
    except (RuntimeError, IndexError):   # what torch forbids
        return
    seen, found = run(text, folder / f"s{seed}.py", True)
    assert repr(seen) == repr(bare)
    assert found is not None
    for finding in found.findings:
        assert finding.count > 0
        other = changed(text, finding)
        if other is None:
            continue
        TAKEN[finding.action] += 1
        try:
            result, _ = run(other, folder / "changed.py", False)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {finding.advice}: {error}") from error
        assert alike(result, bare), f"seed {seed}: {finding.advice}"
    assert found.repeated_seconds <= found.seconds


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_advice_taken_literally_changes_no_result(first: int, tmp_path: Path) -> None:
    before = dict(TAKEN)
    for seed in range(first, first + 50):
        take(seed, tmp_path)
    assert TAKEN["reuse"] > before["reuse"]
    assert TAKEN["hoist"] > before["hoist"]


@pytest.mark.parametrize("seeds", [pytest.param(range(1_000, 1_500), marks=pytest.mark.slow),
                                   pytest.param(range(1_500, 4_000), marks=pytest.mark.long)], ids=str)
def test_advice_taken_literally_changes_no_result_at_length(seeds: range, tmp_path: Path) -> None:
    for seed in seeds:
        take(seed, tmp_path)


SOFTMIN = """
import torch
def softmin(eps, C, h):
    return -eps * (h - C / eps).logsumexp(1)
C = torch.rand(30, 30)
for step in range(5):
    x = torch.rand(30)
    D = C * x
    f = softmin(0.1, D, x)
    g = softmin(0.1, D, x + f)
RESULT = 0
"""
PARAMETRIZED = """
import torch
from torch import nn
cell = nn.RNNCell(8, 8)
torch.nn.utils.parametrizations.orthogonal(cell, "weight_hh")
x = torch.randn(6, 16, 8)
opt = torch.optim.SGD(cell.parameters(), 0.1)
for step in range(5):
    s = torch.zeros(16, 8)
    for t in x:
        s = cell(t, s)
    opt.zero_grad()
    s.square().sum().backward()
    opt.step()
RESULT = 0
"""


def test_a_call_with_other_arguments_is_not_the_same_value(tmp_path: Path) -> None:
    found = run(SOFTMIN, tmp_path / "softmin.py", True)[1]
    assert found is not None
    (finding,) = found.findings
    assert finding.expressions == ("C / eps",)
    assert finding.advice.startswith("`C / eps`")
    assert "from `softmin(0.1, D, x)`" in finding.advice
    assert "from `softmin(0.1, D, x + f)`" in finding.advice


def test_a_state_is_not_named_as_what_repeats(tmp_path: Path) -> None:
    found = run(PARAMETRIZED, tmp_path / "cell.py", True)[1]
    assert found is not None
    assert not any("`s`" in f.advice or "compute `cell" in f.advice for f in found.findings)
    first = max(found.findings, key=lambda f: f.count if "matrix_exp" in str(f.lines) else 0)
    assert "`ParametrizedRNNCell.parametrizations.weight_hh` inside `cell(t, s)`" in first.advice


def test_the_reason_of_a_repeat_within_one_backward_run(tmp_path: Path) -> None:
    plain = PARAMETRIZED.replace('torch.nn.utils.parametrizations.orthogonal(cell, "weight_hh")\n', "")
    found = run(plain, tmp_path / "plain.py", True)[1]
    assert found is not None
    advice = [f.advice for f in found.findings if f.lines[0].source.startswith("derivative")]
    assert advice
    assert all("more than once on the same values" in text for text in advice)


def test_one_finding_for_one_cause(tmp_path: Path) -> None:
    text = ("import torch\nx = torch.rand(9)\nfor _ in range(4):\n    y = x.exp()\n    z = y * 2\n    u = z.sin() + y\n"
            "RESULT = 0\n")
    found = run(text, tmp_path / "cause.py", True)[1]
    assert found is not None
    (finding,) = found.findings
    assert finding.count == 12
    assert "`y = x.exp()`" in finding.advice
    assert torch.is_grad_enabled()


def findings_of(program: str, file: Path) -> list[Any]:
    """What was found in a program, of which there is something."""
    found = run(program, file, True)[1]
    assert found is not None
    assert found.findings
    return list(found.findings)


STATES = {
    "a method that counts": ("class S:\n    k = 0\n    def step(self):\n        self.k += 1\n"
                             "        return a[self.k % 2].exp()\ns = S()\n", "s.step()"),
    "a function below it that runs no operation": (
        "n = 0\ndef count():\n    global n\n    n += 1\ndef f(x):\n    count()\n    return x.exp()\n", "f(a)"),
    "a list": ("seen = []\ndef f(x):\n    seen.append(1)\n    return x.exp()\n", "f(a)"),
    "an alias": ("class S:\n    pass\ns = S()\ns.d = {}\ndef f(x):\n    d = s.d\n    d['k'] = 1\n    return x.exp()\n",
                 "f(a)"),
    "an iterator": ("it = iter([a] * 99)\n", "next(it).exp()"),
    "a closure": ("def make():\n    k = 0\n    def f(x):\n        nonlocal k\n        k += 1\n        return x.exp()\n"
                  "    return f\nf = make()\n", "f(a)"),
    "a property": ("class S:\n    n = 0\n    @property\n    def v(self):\n        self.n += 1\n        return a\n"
                   "s = S()\n", "s.v.exp()"),
    "numbers drawn by Python": ("import random\ndef f(x):\n    random.random()\n    return x.exp()\n", "f(a)"),
}


@pytest.mark.parametrize("name", STATES)
def test_what_changes_a_state_is_not_named_as_a_value(name: str, tmp_path: Path) -> None:
    before, text = STATES[name]
    program = (f"import torch\na = torch.ones(2, 3)\n{before}for _ in range(4):\n    y = {text} * 2\n"
               f"    {text}\nRESULT = 0\n")
    findings = findings_of(program, tmp_path / "state.py")
    assert {f.action for f in findings} <= {"note"}, [f.advice for f in findings]


READ = {
    "a variable": ("k = 0\ndef f(x):\n    return x[k].exp()\n", "k = 1"),
    "an attribute": ("class S:\n    k = 0\ns = S()\ndef f(x):\n    return x[s.k].exp()\n", "s.k = 1"),
    "an attribute by a method": ("class S:\n    k = 0\n    def to(self, k):\n        self.k = k\n    def f(self, x):\n"
                                 "        return x[self.k].exp()\ns = S()\nf = s.f\n", "s.to(1)"),
    "an entry": ("t = {'k': 0}\ndef f(x):\n    return x[t['k']].exp()\n", "t['k'] = 1"),
}


@pytest.mark.parametrize("name", READ)
def test_what_reads_a_state_is_not_moved_before_its_change(name: str, tmp_path: Path) -> None:
    before, change = READ[name]
    program = (f"import torch\na = torch.arange(6.).reshape(2, 3)\n{before}for _ in range(4):\n    {change}\n"
               "    y = f(a)\nRESULT = 0\n")
    findings = findings_of(program, tmp_path / "read.py")
    assert not any("before the loop" in f.advice for f in findings), [f.advice for f in findings]


PURE = {
    "a local list": "def f(x):\n    parts = []\n    parts.append(x.exp())\n    return torch.stack(parts)\n",
    "methods of torch's with names of a list's": "def f(x):\n    return x.sort().values.add(1)\n",
    "an object of its own": ("class B:\n    def __init__(self, x):\n        self.x = x\n"
                             "def f(x):\n    return B(x.exp()).x * 2\n"),
    "a module": "net = torch.nn.Linear(3, 3)\ndef f(x):\n    return net(x).tanh()\n",
}


@pytest.mark.parametrize("name", PURE)
def test_what_changes_nothing_beyond_its_own_is_moved(name: str, tmp_path: Path) -> None:
    program = f"import torch\na = torch.rand(2, 3)\n{PURE[name]}for _ in range(4):\n    y = f(a)\nRESULT = 0\n"
    found = run(program, tmp_path / "pure.py", True)[1]
    assert found is not None
    (finding,) = found.findings
    assert finding.action == "hoist", finding.advice
    assert "before the loop" in finding.advice


def test_a_decorated_function_that_passes_on_its_argument(tmp_path: Path) -> None:
    program = ("import functools\nimport torch\ndef same(g):\n    @functools.wraps(g)\n    def w(*x):\n"
               "        return g(*x)\n    return w\n@torch.no_grad()\ndef f(x):\n    x.exp()\n    return x\n"
               "a = torch.rand(3)\nfor _ in range(4):\n    y = f(a)\nRESULT = 0\n")
    found = run(program, tmp_path / "decorated.py", True)[1]
    assert found is not None
    assert not any("`f(a)` once" in f.advice or "`y = f(a)` once" in f.advice for f in found.findings)


def test_a_value_that_two_backward_runs_need_says_so(tmp_path: Path) -> None:
    """Both uses are computed before either run."""
    program = ("import torch\nw = torch.rand(3, requires_grad=True)\na = w.exp()\nb = (w * w.exp()).sum()\n"
               "b.backward()\na.sum().backward()\nRESULT = 0\n")
    found = run(program, tmp_path / "runs.py", True)[1]
    assert found is not None
    (finding,) = [f for f in found.findings if f.action == "reuse"]
    assert "retain_graph=True" in finding.advice
    found = run(program.replace("b.backward()\na.sum()", "(b + a.sum())"), tmp_path / "once.py", True)[1]
    assert found is not None
    (finding,) = [f for f in found.findings if f.action == "reuse"]
    assert "retain_graph=True" not in finding.advice


SINKHORN = """
import torch
torch.manual_seed(0)
def sinkhorn(x, y):
    C = (x[:, None] - y[None]).square().sum(-1)
    u = torch.zeros(5)
    for _ in range(4):
        u = u - (u - C).logsumexp(1)
        u = u + (-C + 1).logsumexp(0)
    return (C * u).sum()
x, y = torch.rand(5, 2, requires_grad=True), torch.rand(5, 2)
for step in range(6):
    loss = sinkhorn(x, y) - sinkhorn(x, x)
    loss.backward()
    with torch.no_grad():
        x -= 0.01 * x.grad
RESULT = 0
"""


def test_one_place_reached_by_two_calls_is_one_finding(tmp_path: Path) -> None:
    """A value that is new in each step is asked for by one backward run, however many steps there are."""
    found = findings_of(SINKHORN, tmp_path / "sinkhorn.py")
    texts = [f.advice for f in found]
    assert len(set(texts)) == len(texts)
    (finding,) = [f for f in found if any("-C + 1" in text for text in f.expressions)]
    assert finding.count == 2 * 6 * 3 * 3
    assert not any("retain_graph" in text for text in texts)


def test_a_value_that_no_backward_run_reaches_needs_no_kept_graph(tmp_path: Path) -> None:
    program = (
        "import torch\nw = torch.rand(3, requires_grad=True)\n"
        "for _ in range(5):\n    w.grad = None\n    a = w.exp().sum()\n    a.backward()\n"
        "    b = w.exp().max().item()\n    w.data.add_(1)\nRESULT = 0\n")
    (finding,) = [f for f in findings_of(program, tmp_path / "shown.py") if f.action == "reuse"]
    assert finding.expressions == ("w.exp()",)
    assert "retain_graph" not in finding.advice


def test_one_repeat_among_many_runs_is_chance(tmp_path: Path) -> None:
    program = ("import torch\np = q = torch.zeros(3)\nfor k in range(10):\n"
               "    x, y = p.exp(), q.exp()\n    p, q = p + k + 1, q - k - 1\nRESULT = 0\n")
    found = run(program, tmp_path / "chance.py", True)[1]
    assert found is not None
    assert not any("exp()" in text for f in found.findings for text in f.expressions)


CHOICES = {
    "a flag": ("def f(x, k):\n    y, z = x.exp(), x.sin()\n    return y if k else z\n", "f(a, 0)", "f(a, 1)"),
    "an index": ("def f(x, k):\n    return x.exp().unbind()[k]\n", "f(a, 0)", "f(a, 1)"),
    "two functions": ("def f(x):\n    v, i = x.sort()\n    return v\ndef g(x):\n    v, i = x.sort()\n    return i\n",
                      "f(a)", "g(a)"),
    "what is differentiated by": ("def f(y, x):\n    return torch.autograd.grad(y, x, retain_graph=True)[0]\n",
                                  "f(s, p)", "f(s, q)"),
}


@pytest.mark.parametrize("name", CHOICES)
def test_equal_operations_of_which_another_result_is_returned_are_not_one_value(name: str, tmp_path: Path) -> None:
    before, one, other = CHOICES[name]
    program = (f"import torch\na = torch.rand(3)\np, q = torch.rand(3, requires_grad=True), "
               f"torch.rand(3, requires_grad=True)\ns = torch.cat([p, q]).exp().sum()\n{before}"
               f"u = {one}\nv = {other}\nRESULT = 0\n")
    found = run(program, tmp_path / "choice.py", True)[1]
    assert found is not None
    assert not [f.advice for f in found.findings if f.action == "reuse" and other in f.expressions]


HEADS = """import torch
from torch import nn
torch.manual_seed(0)
q, out = nn.Linear(4, 4), nn.Linear(4, 1)
def forward(x):
    parts = []
    for h in range(3):
        parts.append(q(x)[:, slice(h, h + 1)])
    return out(torch.cat([*parts, x[:, :1]], 1)).sum()
for step in range(4):
    loss = forward(torch.rand(5, 4))
    loss.backward()
RESULT = 0
"""


def test_a_loop_without_a_backward_run_in_it_needs_no_kept_graph(tmp_path: Path) -> None:
    (finding,) = [f for f in findings_of(HEADS, tmp_path / "heads.py") if "q(x)" in f.advice]
    assert "compute `q(x)` once, before the loop at" in finding.advice
    assert "retain_graph" not in finding.advice


def test_a_run_that_is_recorded_keeps_the_graph_itself(tmp_path: Path) -> None:
    program = ("import torch\nx = torch.rand(3, requires_grad=True)\nfor step in range(3):\n    y = x.exp().sum()\n"
               "    d, = torch.autograd.grad(y, x, create_graph=True)\n    loss = (d * x.exp()).sum()\n"
               "    loss.backward()\n    with torch.no_grad():\n        x -= 0.01 * x.grad\nRESULT = 0\n")
    found = [f for f in findings_of(program, tmp_path / "recorded.py") if "x.exp()" in f.advice]
    assert found
    assert not any("retain_graph" in f.advice for f in found)


def test_leaves_that_collect_gradients_are_not_shared(tmp_path: Path) -> None:
    program = ("import torch\nb = torch.zeros(8, requires_grad=True)\nc = torch.zeros(8, requires_grad=True)\n"
               "h = torch.zeros(8)\n(b * 2 + c * 3 + h).sum().backward()\nRESULT = 0\n")
    found = run(program, tmp_path / "leaves.py", True)[1]
    assert found is not None
    assert not any("zeros" in f.advice for f in found.findings)
    program = program.replace(", requires_grad=True", "").replace(".backward()", "")
    assert any("zeros" in f.advice for f in findings_of(program + "\n", tmp_path / "plain.py"))


def test_two_equal_expressions_of_one_line_are_named_once(tmp_path: Path) -> None:
    program = ("import torch\ndef f(x):\n    return x.exp() + (x.exp() * 2)\na, b = torch.rand(3), torch.rand(4)\n"
               "f(a)\nf(b)\nRESULT = 0\n")
    (finding,) = findings_of(program, tmp_path / "line.py")
    assert re.fullmatch(r"compute `x.exp\(\)` once, at \S*line.py:3, and use it there again", finding.advice)
    assert finding.count == 2


def test_calls_of_one_line_are_told_apart_by_their_text(tmp_path: Path) -> None:
    program = ("import torch\ndef f(x, y):\n    return torch.ones(3) * x + y\na, b = torch.rand(3), torch.rand(3)\n"
               "c = f(a, b) + f(b, a)\nRESULT = 0\n")
    (finding,) = findings_of(program, tmp_path / "calls.py")
    assert "from `f(a, b)` at" in finding.advice
    assert "from `f(b, a)` at" in finding.advice


def test_constants_that_torch_makes_inside_its_functions_are_no_finding(tmp_path: Path) -> None:
    program = ("import torch\na = torch.rand(4, 3, 3) + 3 * torch.eye(3)\na.requires_grad_()\nfor x in a:\n"
               "    torch.logdet(x).backward()\nRESULT = 0\n")
    found = run(program, tmp_path / "inside.py", True)[1]
    assert found is not None
    assert found.operations > 50
    assert not [line for f in found.findings for line in f.lines if line.op == "scalar_tensor"]
