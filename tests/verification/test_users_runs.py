"""A rule of the user's is proved as runs call it, and proofs leave what it keeps as runs need it."""

from __future__ import annotations

import functools
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


def squares(op, x):
    """The same of the squares: what the operator computes is in the gradient."""
    return (op(x * 2) ** 2 * 3 + op(x * 2) ** 2 * torch.tensor([-1.0, 0.5, 4.0])).sum()


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


# ----- what a proof leaves in a rule's caches -----
@functools.lru_cache(None)
def mask(n):
    return torch.ones(n).cumsum(0).flip(0)


@functools.lru_cache(None)
def zeros(n):
    return torch.zeros(n)


@functools.lru_cache(None)
def half(dtype):
    return torch.full((), 0.5, dtype=dtype)


@functools.lru_cache(None)
def large(n):
    return torch.ones(n).expand(5000, n)


MEMO: dict[int, torch.Tensor] = {}


def written(g, x):
    if len(x) not in MEMO:
        MEMO[len(x)] = torch.zeros(len(x))
        MEMO[len(x)][0] = 2.0
    return g * MEMO[len(x)]


@pytest.mark.parametrize(("rule", "status"), [
    (lambda g, x: g * mask(len(x)), Status.PROVED),
    (lambda g, x: g * x + zeros(len(x)), Status.PROVED),
    (lambda g, x: g * half(x.dtype), Status.PROVED),
    (lambda g, x: zeros(len(x)), Status.PROVED),
    (lambda g, x: (g * large(len(x))).sum(0), Status.PROVED),
    (lambda g, x: torch.where(mask(len(x)) > 1, g, 0.0), Status.PROVED),
    (lambda g, x: g[mask(len(x)) > 0], Status.PROVED),
    (lambda g, x: g * mask(len(x))[x.argsort()], Status.PROVED),
    (lambda g, x: g * (1 + mask(len(x)).data_ptr() % 2), Status.UNDECIDED),
    (lambda g, x: g.round() * mask(len(x)), Status.UNDECIDED),
    (written, Status.UNDECIDED),
], ids=range(11))
def test_what_a_rule_keeps_without_reading_its_arguments_is_what_runs_need(rule, status):
    for cached in (mask, zeros, half, large):
        cached.cache_clear()
    MEMO.clear()
    op = operator(rule)
    assert verified(op).status is status
    assert all(t.device.type == "cpu" for t in (mask(3), zeros(3), half(torch.float32), *MEMO.values()))


def test_a_meaning_keeps_what_runs_need_as_well():
    mask.cache_clear()
    op = operator(lambda g, x: g * g, lambda x: x * mask(len(x)), meaning=lambda x: x * mask(len(x)))
    x = ao.tensor([1.0, 2.0, 3.0])
    mask.cache_clear()
    with ao.AutogradGraph(optimize=True) as graph:
        loss = squares(op, x)
        mask.cache_clear()
        graph.verify(loss)
        assert mask.cache_info().currsize == 1      # the meaning was run
        assert mask(3).device.type == "cpu"


def test_a_meaning_that_keeps_what_it_computes_is_told_so():
    kept = []
    op = operator(lambda g, x: g * g, lambda x: x * 2, meaning=lambda x: [x * 2, kept.append(x.exp())][0])
    x = ao.tensor([1.0, 2.0, 3.0])
    with ao.AutogradGraph(optimize=True) as graph, pytest.warns(RuntimeWarning, match="the meaning of .* has kept"):
        graph.verify(squares(op, x))


def test_a_rule_that_keeps_what_it_computes_is_told_so():
    kept = {}

    def rule(g, x):
        return g * kept.setdefault("cos", x.cos())

    op = operator(rule)
    x = ao.tensor([1.0, 2.0, 3.0])
    with ao.AutogradGraph(optimize=True, verify=True) as graph:
        loss = twice(op, x)
        with pytest.warns(RuntimeWarning, match="has kept a tensor"), \
                pytest.raises(ao.GraphError, match="has kept a tensor"):
            loss.backward()
        assert graph.verdicts[-1].status is Status.UNDECIDED
    with pytest.raises(ao.GraphError, match="has kept a tensor"):
        kept["cos"] * 2
    kept.clear()
    with ao.AutogradGraph():
        twice(op, x).backward()
    assert torch.allclose(x.grad, 2 * (x.detach() * 2).cos() * torch.tensor([2.0, 3.5, 7.0]))


def test_a_rule_that_keeps_nothing_is_not_told_so_for_its_cycles():
    def rule(g, x):
        loop = [g * x]
        loop.append(loop)
        return loop[0]

    assert verified(operator(rule)).status is Status.PROVED


# ----- where rules run -----
@pytest.mark.parametrize("recording", [True, False])
def test_a_rule_that_asks_whether_gradients_are_recorded_is_not_proved_by_one_answer(recording):
    def rule(g, x):
        return g * x if torch.is_grad_enabled() is recording else g * g

    assert verified(operator(rule)).status is Status.UNDECIDED


# ----- which operands are needed -----
def pair(joint):
    return ao.register_op("x, y", name=f"users run {next(COUNT)}", pure=True, joint=joint)(lambda x, y: x * y)


def told(g, x, y, needs):
    return (g * y, g * x) if all(needs) else (g * g * y, g * g * x)


def sparing(g, x, y, needs):
    return g * y if needs[0] else None, g * x if needs[1] else None


@pytest.mark.parametrize(("joint", "status"), [
    (told, Status.UNDECIDED), (sparing, Status.PROVED), (lambda g, x, y: (g * y, g * x), Status.PROVED)])
@pytest.mark.parametrize("wanted", [(0,), (1,), (0, 1)])
def test_a_rule_that_is_told_what_is_needed_is_proved_for_every_run(joint, status, wanted):
    op = pair(joint)
    found = []
    for options in ({}, {"optimize": True, "verify": True}):
        leaves = [ao.tensor([1.0, 2.0]), ao.tensor([3.0, 4.0])]
        with ao.AutogradGraph(**options) as graph:
            x, y = leaves
            loss = (op(x, y) * x + op(x, y) * y.exp()).sum()
            found.append(torch.autograd.grad(loss, [leaves[k] for k in wanted]))
    assert graph.verdicts[-1].status is status
    assert all(map(torch.allclose, *found))


def test_rules_that_are_told_what_is_needed_of_many_operands_are_not_traced():
    def spare(g, a, b, c, d, e, needs):
        return tuple([g if need else None for need in needs])

    for rule, status in ((spare, Status.UNDECIDED), (lambda g: (g,) * 5, Status.PROVED)):
        op = ao.register_op("a, b, c, d, e", name=f"users run {next(COUNT)}", pure=True, joint=rule)(
            lambda *t: sum(t))
        leaves = [ao.tensor([float(k), 2.0]) for k in range(5)]
        with ao.AutogradGraph(optimize=True) as graph:
            loss = (op(*leaves) * 2 + op(*leaves) * leaves[0]).sum()
            assert graph.verify(loss).status is status


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
