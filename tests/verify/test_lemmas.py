"""sympy proves the rules, and rejects rules that are wrong."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from autograd_opt.ops.table import OPS, make_vjp
from autograd_opt.verify import claims, lemmas
from autograd_opt.verify.cases import CASES, on
from autograd_opt.verify.claims import prove
from autograd_opt.verify.lemmas import prove_all

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
def test_all_lemmas_without_the_cache_in_a_minute():
    proofs = prove_all(cache=False)
    assert sum(p.seconds for p in proofs) < 60
    proved = {p.op for p in proofs if p.claim == "gradient" and p.proved}
    assert len(proved) >= 150
    assert not [p for p in proofs if p.status == "refuted"], [p for p in proofs if p.status == "refuted"]


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


def test_a_wrong_linear_line_is_refuted(monkeypatch):
    monkeypatch.setitem(claims.LINEAR, "sigmoid", (0,))
    monkeypatch.setattr(claims, "slots", lambda head, floating: (0,))
    assert [p.status for p in prove("sigmoid") if p.claim == "linear"] == ["refuted"]


def test_a_hang_is_ended(monkeypatch):
    def hang(*args):
        while True:
            pass

    monkeypatch.setattr(claims, "gradient", hang)
    (proof,) = prove_all(cache=False, seconds=1.0, ops=["sin"])
    assert proof.status == "undecided"
    assert "no answer" in proof.detail


def test_the_cache_is_keyed_by_the_rule(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert all(p.proved for p in prove_all(ops=["sin"]))
    key = lemmas.fingerprint("sin")
    assert key in lemmas.cache_path().read_text()
    monkeypatch.setitem(OPS, "sin", Changed(OPS["sin"], "x", lambda g, x: g * x.sin()))
    assert lemmas.fingerprint("sin") != key
    assert [p.status for p in prove_all(ops=["sin"])] == ["refuted"]


def test_the_table_lists_every_operator():
    text = lemmas.table([dataclasses.replace(lemmas.Proof("sin", "gradient", "proved"))])
    assert "| sin | yes | proved, small shapes |" in text
    assert text.count("\n") >= len(OPS) - 2
