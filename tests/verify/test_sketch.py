"""Rules run on sketches: additive where the trace says so, by the same steps, and nothing is done on the way."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from autograd_opt.node import Vjp
from autograd_opt.ops.table import MULTI, OPS
from autograd_opt.verify.additive import additive, sketched
from autograd_opt.verify.calls import Untraceable
from autograd_opt.verify.cases import CASES
from autograd_opt.verify.claims import forward, instance
from autograd_opt.verify.ir import Vocabulary
from autograd_opt.verify.rules import trace_rule
from autograd_opt.verify.sketch import ADDITIVE, Sketch, Sketching
from autograd_opt.verify.symbols import Symbols


def signatures(name: str) -> Any:
    """The operator as it is proved: vocabulary, head, types of the operands, which are wanted."""
    for case in CASES[name]:
        try:
            vocabulary, types, args = instance(name, case)
            head, _ = forward(Symbols(), name, case, vocabulary, types, args)
        except Exception:  # a case of something else
            continue
        yield vocabulary, head, types, [t is not None and k not in case.values for k, t in enumerate(types)]


def asked(op: Any, vocabulary: Any, head: Any, types: Any, needs: Any) -> Any:
    with Sketching():
        return sketched(vocabulary, op, head, types, needs)


@pytest.mark.parametrize("name", sorted(n for n in CASES if n in OPS and not OPS[n].flags & MULTI))
def test_a_sketch_says_what_the_trace_says(name):
    op = OPS[name]
    for vocabulary, head, types, needs in signatures(name):
        found = asked(op, vocabulary, head, types, needs)
        if found is None:
            continue
        used: set[Any] = set()
        assert additive(trace_rule(vocabulary, op, head, types, needs), vocabulary, head.type, types, used)
        assert {h[:2] for h in found} == {h[:2] for h in used}


@pytest.mark.parametrize("name", "add sub mul div neg exp log sin cos tanh sqrt square reciprocal sigmoid matmul mT "
                                 "tanh_backward".split())
def test_frequent_rules_need_no_trace(name):
    assert any(asked(OPS[name], *rest) is not None for rest in signatures(name))


def of_sin(rule: Any) -> Any:
    vocabulary = Vocabulary()
    kind = vocabulary.type((3,), torch.float32, torch.device("cpu"))
    head = vocabulary.heads[vocabulary.head("sin", (), kind, True)]
    sin = OPS["sin"].vjps[0]
    OPS["sin"].vjps[0] = Vjp(rule, (16,), (), sin.needs)
    try:
        return asked(OPS["sin"], vocabulary, head, [kind], [True])
    finally:
        OPS["sin"].vjps[0] = sin


def changed(g: Any, x: Any) -> Any:
    g += x
    return g


@pytest.mark.parametrize("rule", [
    lambda g, x: g * g, lambda g, x: g * x.cos() + 1.0, lambda g, x: x.cos(), lambda g, x: g.exp() * x,
    lambda g, x: torch.where(g > 0, g, x), lambda g, x: torch.where(g > 0, g, 0.5 * g), lambda g, x: x / g,
    lambda g, x: g + x, lambda g, x: 1.0 + g, lambda g, x: torch.where(x > 0, g, 1.0), lambda g, x: 2.0,
    lambda g, x: [g],
    lambda g, x: g if x > 0 else -g, lambda g, x: g if x else -g, lambda g, x: g * float(x[0]), lambda g, x: g * len(x),
    lambda g, x: g * x.item(), lambda g, x: g * max(x), lambda g, x: g * sum(x), lambda g, x: g * (0 in x),
    lambda g, x: g * x.sum(dtype=torch.float64), lambda g, x: g * x.double(), lambda g, x: g * torch.ones(3),
    lambda g, x: g * x.data, lambda g, x: g.view(1, 3), lambda g, x: g * x.nothing,
    lambda g, x: changed(g, x), lambda g, x: g.mul_(2), lambda g, x: g.copy_(x), lambda g, x: g.__setitem__(0, x),
    lambda g, x: torch.mul(g, 2, out=x), lambda g, x: g.requires_grad_(), lambda g, x: g * x.backward(),
    lambda g, x: g.register_hook(print)])
def test_what_is_not_shown_is_left_to_the_trace(rule):
    assert of_sin(rule) is None


@pytest.mark.parametrize("rule", [
    lambda g, x: g * x.cos(), lambda g, x: g, lambda g, x: 0.0 * g, lambda g, x: torch.zeros_like(g),
    lambda g, x: (g / 2).mul(x) - g, lambda g, x: torch.where(x > 0, g, 0.0), lambda g, x: g.sum() * x,
    lambda g, x: g * x.ndim if x.dtype is torch.float32 and isinstance(x, torch.Tensor) else None,
    lambda g, x: torch.stack([g, g * x]).sum(0), lambda g, x: None])
def test_what_is_additive_is_seen(rule):
    assert of_sin(rule) is not None


@pytest.mark.parametrize("draw", [lambda: torch.rand(3), lambda: torch.randn(()), lambda: torch.empty(3).normal_(),
                                  lambda: torch.bernoulli(torch.tensor(0.5)), lambda: torch.randperm(3)])
def test_nothing_is_drawn_and_nothing_is_made(draw):
    torch.manual_seed(3)
    before = torch.get_rng_state()
    assert of_sin(lambda g, x: g * draw()) is None
    assert of_sin(lambda g, x: [draw(), g][1]) is None
    assert torch.equal(torch.get_rng_state(), before)


def test_every_operator_of_python_goes_through_the_table():
    """A method that a sketch did not have would be the one that every Python object has."""
    tensors = {n for n in vars(torch.Tensor) | vars(torch._C.TensorBase) if n.startswith("__") and n.endswith("__")}
    inherited = {n for n in tensors if hasattr(object, n) and n not in vars(Sketch)}
    assert inherited <= {"__dict__", "__dir__", "__format__", "__new__", "__reduce_ex__", "__repr__"}


def test_a_sketch_is_no_value():
    x = Sketch((3,), torch.float32, ADDITIVE, [])
    for look in (bool, float, int, len, iter, range, lambda x: x[0], lambda x: x.tolist(), lambda x: 1 in x):
        with pytest.raises((Untraceable, TypeError)):
            look(x)
    assert isinstance(x, torch.Tensor)
    assert (x.ndim, x.dim(), x.shape, x.is_complex(), x.is_floating_point()) == (1, 1, (3,), False, True)
