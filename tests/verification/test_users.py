"""Operators of the user's: a rule that is not linear in the cotangent is never proved to be."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import autograd_opt as ao
from autograd_opt.ops.table import OPS, RESERVED
from autograd_opt.verification.program import instruction_names
from autograd_opt.verification.program.instruction_names import PULLBACK
from autograd_opt.verification.program.kernels import KERNELS
from autograd_opt.verification.program.linear import JOINTLY, LINEAR
from autograd_opt.verification.semantics.operators import MEANING, PULLBACKS
from autograd_opt.verification.strategies.task import Task
from autograd_opt.verify import Reason, Status, verify

COUNT = itertools.count()
FIRST = torch.tensor([0])


def by_memory(g, x):
    return g * (g.data_ptr() % 7)


def by_count(g, x):
    return g * next(COUNT)


NOT_LINEAR = {
    "norm": lambda g, x: g / g.norm() * x.cos(),
    "round": lambda g, x: g.round(),
    "normalize": lambda g, x: F.normalize(g, dim=0),
    "number": lambda g, x: g * float(g.sum()),
    "addmv": lambda g, x: torch.addmv(x, torch.outer(x, x), g),
    "addmm": lambda g, x: torch.addmm(x[None], g[None], torch.outer(x, x))[0],
    "linear": lambda g, x: F.linear(g, torch.outer(x, x), x),
    "baddbmm": lambda g, x: torch.baddbmm(x[None, None], g[None, None], torch.outer(x, x)[None])[0, 0],
    "full_like": lambda g, x: torch.full_like(g, 2.0) * x,
    "bool": lambda g, x: g.bool().float() * x,
    "integers": lambda g, x: g.to(torch.int64).to(g.dtype) * x,
    "index_fill": lambda g, x: g.index_fill(0, FIRST, 5.0),
    "index_copy": lambda g, x: g.index_copy(0, FIRST, x[:1]),
    "scatter": lambda g, x: g.scatter(0, FIRST, x[:1]),
    "masked_fill": lambda g, x: g.masked_fill(x > 1, 3.0),
    "masked_fill tensor": lambda g, x: torch.masked_fill(g, x > 1, torch.tensor(3.0)),
    "floor": lambda g, x: torch.div(g, x, rounding_mode="floor"),
    "trunc": lambda g, x: g.div(2, rounding_mode="trunc"),
    "whole": lambda g, x: g // 2,
    "logcumsumexp": lambda g, x: g.cumsum(0).logcumsumexp(0),
    "numpy": lambda g, x: torch.from_numpy(np.asarray(g.detach().numpy() ** 2)),
    "tolist": lambda g, x: torch.tensor([v * v for v in g.tolist()]),
    "branch": lambda g, x: g if g.sum() > 0 else 2 * g,
    "memory": by_memory,
    "strides": lambda g, x: g * g.stride(0),
    "contiguous": lambda g, x: g * (2 if g.is_contiguous() else 1),
    "all strides": lambda g, x: g * (1 + g.stride()[0]),
    "strided": lambda g, x: torch.as_strided(g, (3,), (1,)),
    "strided method": lambda g, x: g * x.as_strided(x.shape, (1,)),
    "strided operator": lambda g, x: g * torch.ops.aten.as_strided(x, (3,), (1,)),
    "strided copy": lambda g, x: g * torch.as_strided_copy(x, (3,), (1,)),
    "strided scatter": lambda g, x: g * torch.as_strided_scatter(x, x[:1], (1,), (1,)),
    "alias": lambda g, x: g * torch.ops.aten._reshape_alias(x, (3,), (1,)),
    "order": lambda g, x: g * (1 + g.dim_order()[0]),
    "version": lambda g, x: g * (1 + g._version),
    "recorded": lambda g, x: g if g.grad_fn is None else g * g,
    "accumulated": lambda g, x: g.round() if g.grad is None else g,
    "device": lambda g, x: g.round() if g.device.type == "cpu" else g,
    "device of an operand": lambda g, x: g.round() if x.device == torch.device("cpu") else g,
    "bits": lambda g, x: g.view(torch.float16).view(torch.bfloat16)[:3].float() * x,
    "bits of two": lambda g, x: torch.cat([g, g[:1]]).view(torch.float64)[:1].float() * x,
    "count": by_count,
    "added": lambda g, x: g + x,
    "added number": lambda g, x: g.add(1.0),
    "subtracted": lambda g, x: torch.sub(x, g),
    "number minus": lambda g, x: 1 - g,
    "added alpha": lambda g, x: torch.add(x, g, alpha=2.0),
    "divisor": lambda g, x: x / g,
    "product": lambda g, x: g * g.sum() * x,
    "matmul": lambda g, x: g @ torch.outer(g, x),
    "where": lambda g, x: torch.where(x > 1, g, x),
    "where number": lambda g, x: torch.where(x > 1, g, 2.0),
    "where of g": lambda g, x: torch.where(g > 0, g, 2 * g),
    "cat": lambda g, x: torch.cat([g[:1], x[1:]]),
    "stack": lambda g, x: torch.stack([g, x]).sum(0),
    "pad": lambda g, x: F.pad(g, (1, 0), value=3.0)[1:],
    "lerp": lambda g, x: torch.lerp(g, x, 0.5),
    "addcmul": lambda g, x: torch.addcmul(x, g, x),
    "conv1d": lambda g, x: F.conv1d(g[None, None], x[None, None, :1], x[:1])[0, 0],
    "sort": lambda g, x: torch.sort(g).values,
    "argsort": lambda g, x: g[g.argsort()],
    "max": lambda g, x: g - g.max(),
    "index_add": lambda g, x: x.index_add(0, FIRST, g[:1]),
    "scatter_add": lambda g, x: x.scatter_add(0, FIRST, g[:1]),
    "sum of integers": lambda g, x: g.sum(dtype=torch.int64).to(g.dtype) * x,
    "tanh_backward": lambda g, x: torch.ops.aten.tanh_backward(x, g),
    "threshold_backward": lambda g, x: torch.ops.aten.threshold_backward(x, g, 0),
    "softmax_backward": lambda g, x: torch.ops.aten._softmax_backward_data(x, g, 0, g.dtype),
}
OPERATORS = {
    name: ao.register_op("x", pure=True, name=f"users {name}", x=rule)(lambda x: x.sin())
    for name, rule in NOT_LINEAR.items()
}


def twice(op, x):
    """The operator called twice on equal operands, its cotangents being unlike."""
    return (op(x * 2) * 3 + op(x * 2) * torch.tensor([-1.0, 0.5, 4.0])).sum()


def gradient(op, **options):
    x = ao.tensor([1.0, 2.0, 3.0])
    with ao.AutogradGraph(**options):
        twice(op, x).backward()
    return x.grad


@pytest.mark.parametrize("name", OPERATORS)
def test_a_rule_that_is_not_linear_is_never_proved(name):
    op = OPERATORS[name]
    x = ao.tensor([1.0, 2.0, 3.0])
    with ao.AutogradGraph(optimize=True) as graph:
        v = graph.verify(twice(op, x), engines=("structural", "linear", "rewrite"))
    assert v.status is Status.UNDECIDED, v
    assert v.reason in (Reason.UNSUPPORTED, Reason.UNDERIVED)


@pytest.mark.parametrize("name", sorted(set(OPERATORS) - {"count", "memory"}))
def test_a_verified_run_takes_no_merge_that_changes_a_gradient(name):
    op = OPERATORS[name]
    try:
        found = gradient(op, optimize=True, verify=True)
    except ao.VerificationError:
        return                                  # it was refuted
    assert torch.equal(found, gradient(op))


@pytest.mark.parametrize("rule", [
    lambda g, x: g * x.cos(),
    lambda g, x: g * torch.special.erfcx(x),            # a function without meaning, not of the cotangent
    lambda g, x: torch.where(x > 1, g, 0.0) * 2,
    lambda g, x: (g.flip(0).cumsum(0) / x).flip(0),
    lambda g, x: torch.outer(x, x) @ g,
    lambda g, x: torch.cat([g[:1], torch.zeros_like(x)[1:]]),
    lambda g, x: g * torch.arange(3.0, device=g.device) if g.device.type == "cpu" else g.round(),
    lambda g, x: g.view(3, 1).view(dtype=torch.float32).reshape(3) if x.dtype is torch.float64 else g.view(3, 1)[:, 0],
], ids=range(8))
def test_a_rule_that_is_seen_to_be_linear_is_proved(rule):
    name = f"users linear {next(COUNT)}"
    op = ao.register_op("x", pure=True, name=name, x=rule)(lambda x: x.sin())
    x = ao.tensor([1.0, 2.0, 3.0])
    with ao.AutogradGraph(optimize=True, verify=True) as graph:
        loss = twice(op, x)
        v = graph.verify(loss)
        assert v.status is Status.PROVED, v
        assert not any("torch's own" in c for c in v.conditions)
        loss.backward()
        assert graph.verdicts[-1].status is Status.PROVED
    assert torch.allclose(x.grad, gradient(op))


def test_the_backward_of_a_class_is_no_derivative_of_torchs():
    class Normed(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.sin()

        @staticmethod
        def backward(ctx, g):
            return g / g.norm()

    x = ao.tensor([1.0, 2.0, 3.0])
    with ao.AutogradGraph(optimize=True) as graph:
        y = Normed.apply(x)
        loss = ((y * x).sin() + (y * x).sin() * 2).sum()
        task = Task(graph.tape.snapshot(), [loss.grad_fn], None, None, None)
        assert PULLBACK not in [h.op for h in task.used()]
        v = graph.verify(loss)              # it is called once before and after, with one cotangent
    assert v.status is Status.PROVED
    assert len(v.conditions) == 1


def test_a_rewrite_passes_over_no_rule_that_is_not_linear():
    rules = {"scaled": lambda g: g * 2, "rounded": lambda g: (g * 2).round()}
    for label, rule in rules.items():
        op = ao.register_op("x", pure=True, name=f"users {label}", meaning=lambda x: x * 2, x=rule)(lambda x: x * 2)
        x = ao.tensor([1.3, 2.0])
        with ao.AutogradGraph() as graph:
            inner = op(x)
            a, b = x * 4, inner * 2
            loss = (inner * 0.3 + a + b * 0.4).sum()
            nodes = graph.tape.snapshot()
            i, j = (next(k for k, n in enumerate(nodes) if n is t._node) for t in (a, b))
            v = verify(nodes, [loss._node], None, [i if k == j else k for k in range(len(nodes))],
                       engines=("structural", "linear", "rewrite"))
        assert (v.status is Status.PROVED) == (label == "scaled"), (label, v)


def test_no_operator_is_called_like_a_word_of_proofs():
    names = {*LINEAR, *JOINTLY, *MEANING, *PULLBACKS, *KERNELS, *instruction_names.WORDS, instruction_names.MERGED,
             instruction_names.SEED, instruction_names.HOOK, instruction_names.PULLBACK, instruction_names.RULE,
             instruction_names.CONSTANT, instruction_names.FULL}
    assert {n for n in names - set(OPS) if "::" not in n} == RESERVED
    for name in ("pullback", *sorted(n for n in names if "::" in n), "aten::sigmoid_backward"):
        with pytest.raises(ao.ArgumentError, match="choose another name"):
            ao.register_op("x", name=name, x=lambda g: g)(lambda x: x)
        assert name not in OPS


def test_lists_that_hold_other_numbers_are_told_apart():
    from autograd_opt.verification.program.calls import beside

    t = torch.ones(1)
    assert beside([t, t], 2) == "2 tensors"
    assert beside([t, 1], 1) != beside([t, 2], 1)
    assert beside({"a": [t, 1]}, 1) != beside({"b": [t, 1]}, 1)
