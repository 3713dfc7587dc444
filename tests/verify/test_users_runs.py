"""A rule of the user's is proved as runs call it, and proofs leave what it keeps as runs need it."""

from __future__ import annotations

import itertools

import pytest
import torch

import autograd_opt as ao
from autograd_opt.verify import Status, replay

COUNT = itertools.count()


def operator(rule, forward=torch.sin, **options):
    return ao.register_op("x", name=f"users run {next(COUNT)}", pure=True, x=rule, **options)(lambda x: forward(x))


def twice(op, x):
    """The operator called twice on equal operands, its cotangents being unlike."""
    return (op(x * 2) * 3 + op(x * 2) * torch.tensor([-1.0, 0.5, 4.0])).sum()


def verified(op, loss=twice):
    """The verdict of a verified run, having the gradients of a plain one that came after it."""
    found = []
    for options in ({"optimize": True, "verify": True}, {}):
        x = ao.tensor([1.0, 2.0, 3.0])
        with ao.AutogradGraph(**options) as graph:
            loss(op, x).backward()
            found.append(x.grad)
            if options:
                verdict = graph.verdicts[-1]
    assert torch.allclose(*found)
    return verdict


# ----- refusals that are caught -----
def by_number(g, x):
    try:
        return g * float(g.norm())
    except Exception:
        return g * x


def by_branch(g, x):
    try:
        if (g > 100).any():
            return g * 2
        return g * g
    except Exception:
        return g * x


def by_numpy(g, x):
    try:
        return torch.as_tensor(g.numpy() ** 2)
    except Exception:
        return g * x


def by_item(g, x):
    try:
        return g * g.sum().item()
    except RuntimeError:
        return g * x


def by_write(g, x):
    try:
        return x.clone().mul_(g).mul_(g)
    except Exception:
        return g * x


def unseen(g, x):
    """No function that torch lets anybody replace is asked for the number."""
    try:
        with torch._C.DisableTorchFunction():
            return g * g.sum().item()
    except Exception:
        return g * x


@pytest.mark.parametrize("rule", [by_number, by_branch, by_numpy, by_item, by_write, unseen])
def test_a_rule_is_not_proved_by_what_it_does_when_its_trace_is_refused(rule):
    verdict = verified(operator(rule))
    assert verdict.status is Status.UNDECIDED
    assert "meta" in verdict.message or "in place" in verdict.message


# ----- rules that change -----
class Rule:
    squared = False

    def __call__(self, g, x):
        return g * g if self.squared else g * x


def test_a_rule_is_traced_again_where_a_proof_is_asked_for_anew(tmp_path):
    rule = Rule()
    op = operator(rule)
    x = ao.tensor([1.0, 2.0, 3.0])
    with ao.AutogradGraph(optimize=True) as graph:
        loss = twice(op, x)
        asked = (lambda: graph.verify(loss, anew=True), lambda: graph.verify(loss, save=tmp_path / "proof.json"),
                 lambda: replay(tmp_path / "proof.json"))
        assert [ask().status for ask in asked] == [Status.PROVED] * 3
        rule.squared = True
        assert all(ask().status is not Status.PROVED for ask in (asked[0], asked[2], asked[1]))
    y = ao.tensor([1.0, 2.0, 3.0])
    with ao.AutogradGraph(optimize=True) as graph:      # a structure that was not asked about
        assert graph.verify(twice(op, y.sin())).status is not Status.PROVED
