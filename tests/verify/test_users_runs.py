"""A rule of the user's is proved as runs call it, and proofs leave what it keeps as runs need it."""

from __future__ import annotations

import itertools

import torch

import autograd_opt as ao
from autograd_opt.verify import Status, replay

COUNT = itertools.count()


def operator(rule, forward=torch.sin, **options):
    return ao.register_op("x", name=f"users run {next(COUNT)}", pure=True, x=rule, **options)(lambda x: forward(x))


def twice(op, x):
    """The operator called twice on equal operands, its cotangents being unlike."""
    return (op(x * 2) * 3 + op(x * 2) * torch.tensor([-1.0, 0.5, 4.0])).sum()


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
