"""sympy proves the rules, and rejects rules that are wrong."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from autograd_opt.errors import ArgumentError
from autograd_opt.ops.table import OPS, make_vjp
from autograd_opt.verification.lemmas import claims, prover
from autograd_opt.verification.lemmas.cases import CASES, FURTHER, on
from autograd_opt.verification.lemmas.claims import Proof, prove
from autograd_opt.verification.lemmas.prover import prove_all
from autograd_opt.verification.semantics import index_ops
from autograd_opt.verification.semantics.operators import PULLBACKS
from tests.docs.loading import loaded

TABLE = loaded("scripts", "operator_table.py")

QUICK = [
    "add",
    "mul",
    "div",
    "tanh",
    "sigmoid",
    "relu",
    "maximum",
    "clamp",
    "matmul",
    "sum",
    "mean",
    "softmax",
    "where",
    "logsumexp",
    "expand",
    "permute",
    "index_select",
    "abs",
    "gelu",
    "linear",
]


@pytest.mark.parametrize("op", [q for q in QUICK if q in OPS])
def test_rule_is_the_derivative(op):
    for proof in prove(op):
        assert proof.proved, proof


@pytest.mark.slow
def test_all_lemmas_in_minutes():
    """A lemma without an answer names what it lacks; neither an exception of Python's nor the time is a reason."""
    proofs = prove_all(seconds=30.0)
    assert sum(p.seconds for p in proofs) < 300          # 100 on an idle machine, 160 on one that does other things
    assert len({p.op for p in proofs if p.claim == "gradient" and p.proved}) >= 150
    assert len({p.op for p in proofs if p.claim == "gradient, all sizes" and p.proved}) >= 110
    assert not [p for p in proofs if p.status == "refuted"], [p for p in proofs if p.status == "refuted"]
    undecided = [p for p in proofs if p.status == "undecided"]
    accidents = [p for p in undecided if re.match(r"[A-Za-z]+(Error|Exception):|no answer", p.detail)]
    assert not accidents, accidents
    found = TABLE.classes(proofs)
    assert {op: grade for op, grade in grades().items() if "proved" in grade and found[op][1] != grade} == {}


def grades() -> dict[str, str]:
    """What the table in the documentation says of each operator's rule."""
    rows = {}
    for line in (Path(__file__).parents[2] / "docs" / "operators.md").read_text().splitlines():
        cells = [c.strip() for c in line.strip("|").split(" | ")]
        if len(cells) >= 4 and cells[0] in OPS:
            rows[cells[0]] = cells[2]
    return rows


WRONG = {
    "tanh": ("x", lambda g, x: g * (1 - x * x)),
    "sub": ("y", lambda g: g),
    "mean": ("x", lambda g, x_shape: g.expand(x_shape)),
    "matmul": ("x", lambda g, y: g @ y),
    "relu": ("x", lambda g, x: torch.where(x >= 0, g, 0.0)),
    "maximum": ("x", lambda g, x, y: torch.where(x >= y, g, 0.0)),
    "abs": ("x", lambda g, x: g * x.abs().sgn()),
    "softmax": ("x", lambda g, ans: ans * g),
    "sqrt": ("x", lambda g, ans: g / ans),
    "index_select": ("x", lambda g, index, x_shape: torch.zeros(x_shape, dtype=g.dtype).index_copy(0, index, g)),
    "exp": ("x", lambda g, ans: g * g * ans),
    "sin": ("x", lambda g, x: g * x.cos() + 1),
    "log": ("x", lambda g, x: g / x * 1.0005),
    "where": ("x", lambda g, condition: torch.where(condition, 0.0, g)),
    "clamp_min": ("x", lambda g, x, min: torch.where(x > min, g, 0.0)),
}


class Changed:
    """An operator with another rule."""

    def __init__(self, op, operand, rule):
        self.op = op
        k = op.operands.index(operand)
        self.vjps = list(op.vjps)
        self.vjps[k] = make_vjp(rule, op.operands, op.attributes)

    def __getattr__(self, name):
        return getattr(self.op, name)


@pytest.mark.parametrize("op", WRONG)
def test_wrong_rules_are_refuted(op, monkeypatch):
    if op == "matmul":
        monkeypatch.setitem(CASES, "matmul", (on((2, 2), (2, 2)),))
    monkeypatch.setitem(OPS, op, Changed(OPS[op], *WRONG[op]))
    (proof,) = [p for p in prove(op) if p.claim == "gradient"]
    assert proof.status == "refuted", proof


DETOURS = {
    "sin": ("x", lambda g, x: g * x.cos() * x / x),
    "exp": ("x", lambda g, x: g * x.exp() * x.reciprocal() * x),
    "neg": ("x", lambda g, x: -g * x.log().exp() / x),
    "mul": ("x", lambda g, x, y: g * y * x.sqrt() ** 2 / x),
    "cos": ("x", lambda g, x: -g * x.sin() * x**-1 * x),
    "tanh": ("x", lambda g, ans: g * (1 - ans * ans * ans / ans)),
    "sum": ("x", lambda g, x, x_shape: g.expand(x_shape) * x / x),
    "atan": ("x", lambda g, x: g / (x * (x + 1 / x))),
    "asin": ("x", lambda g, x: g / (1 - x * x).sqrt() * x / x),
    "softmax": ("x", lambda g, ans: ans * (g * g / g - (g * ans).sum(-1, keepdim=True))),
}


@pytest.mark.parametrize("op", DETOURS)
def test_a_right_rule_that_is_not_defined_at_all_points_is_not_proved(op, monkeypatch):
    if op == "softmax":
        monkeypatch.setitem(CASES, "softmax", (on((2,), dim=-1),))
        monkeypatch.delitem(FURTHER, "softmax")
    monkeypatch.setitem(OPS, op, Changed(OPS[op], *DETOURS[op]))
    (proof,) = [p for p in prove(op) if p.claim == "gradient"]
    assert proof.status == "undecided"
    assert "the rule asks that" in proof.detail
    assert not [p for p in prover.prove(op) if p.claim.startswith("gradient") and p.proved]


def test_a_rule_may_ask_what_the_derivative_asks(monkeypatch):
    monkeypatch.setitem(OPS, "log", Changed(OPS["log"], "x", lambda g, x: g / x * x / x))
    monkeypatch.setitem(OPS, "sigmoid", Changed(OPS["sigmoid"], "x", lambda g, ans: g * ans * (1 / ans - 1) * ans))
    assert [p.status for p in (*prove("log"), *prove("sigmoid"))] == ["proved", "proved"]


@pytest.mark.parametrize(("op", "missing"), [
    ("no_such_op", "no operator"), ("function", "no meaning"), ("eq", "no instance")])
def test_an_operator_without_lemmas_is_refused(op, missing):
    with pytest.raises(ArgumentError, match=missing):
        prover.prove(op)


@pytest.mark.parametrize("op", ["leaky_relu_", "elu_", "celu_", "selu_"])
def test_rules_that_read_the_result_are_proved_in_place(op):
    assert [p.status for p in prover.prove(op)] == ["proved", "proved"]


def test_a_case_that_no_number_is_in_refutes_nothing(monkeypatch):
    rule = "x", lambda g, x: torch.where(x.sin() > 2, 2 * g, g) * x.cos()
    monkeypatch.setitem(OPS, "sin", Changed(OPS["sin"], *rule))
    (proof,) = [p for p in prove("sin") if p.claim == "gradient"]
    assert proof.status == "undecided"


def test_a_wrong_linear_line_is_refuted(monkeypatch):
    monkeypatch.setitem(claims.LINEAR, "sigmoid", (0,))
    monkeypatch.setattr(claims, "slots", lambda head, floating: (0,))
    assert [p.status for p in prove("sigmoid") if p.claim == "linear"] == ["refuted"]


def test_a_hang_is_ended(monkeypatch):
    def hang(*args):
        while True:
            pass

    monkeypatch.setattr(claims, "gradient", hang)
    (proof,) = prove_all(seconds=1.0, ops=["sin"])
    assert proof.status == "undecided"
    assert "no answer" in proof.detail


def test_the_table_says_how_well_each_operator_is_known():
    proved = [Proof(op, "gradient", "proved") for op in ("sin", "flip", "sum")]
    proved += [Proof("sum", "gradient, all sizes", "proved"), Proof("flip", "linear, all sizes", "proved")]
    proved += [Proof("cos", "gradient", "refuted", "wrong")]
    rows = TABLE.classes(proved)
    assert set(rows) == set(OPS) - {"leaf", "output"}
    assert rows["sin"][:2] == ("own", "proved at small shapes")
    assert rows["sum"][1] == "proved for all sizes"
    assert rows["flip"][1:3] == ("proved at small shapes", "proved for all sizes")
    assert rows["cos"][1] == "REFUTED"
    assert rows["tan"][1] == "tested only"
    assert "| sum | own | proved for all sizes |" in TABLE.table(proved)


def test_the_table_in_the_documentation_claims_nothing_that_is_not_proved():
    rows = grades()
    assert sum("proved" in grade for grade in rows.values()) >= 150
    for op in ("matmul", "softmax", "gelu", "flip", "layer_norm", "cumsum", "conv1d"):
        assert rows[op] == TABLE.classes(prover.prove(op))[op][1]


@pytest.mark.parametrize("wrong", [
    lambda D, g, ans, x, target, weight=None, **_: index_ops.nll_back(D, D.neg(g), x, target, weight),
    lambda D, g, ans, x, target, weight=None, reduction=1, **_: index_ops.nll_back(D, g, x, target, weight, reduction),
    lambda D, g, ans, x, target, weight=None, reduction=1, ignore_index=-100: index_ops.nll_back(
        D, g, x, target, None, reduction, ignore_index),
], ids=["sign", "ignored targets", "weights"])
def test_what_the_kernel_of_nll_loss_is_said_to_compute_is_proved(monkeypatch, wrong):
    assert [p.status for p in claims.prove("nll_loss")] == ["proved"]
    monkeypatch.setitem(PULLBACKS, "nll_loss", wrong)
    assert [p.status for p in claims.prove("nll_loss")] == ["refuted"]
