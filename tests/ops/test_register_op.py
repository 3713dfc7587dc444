"""Operators of the user's: what is wrong at registration is said there, what a rule returns is looked at."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import autograd_opt as ao
from autograd_opt.errors import ArgumentError, ArgumentTypeError, GraphError
from autograd_opt.inspection.formulas import formulas_of
from autograd_opt.ops.table import BINDERS, CALLS, OPS

OPTIMIZE = pytest.mark.parametrize("optimize", [False, True], ids=["plain", "optimize"])


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    known = set(OPS)
    yield
    for name in set(OPS) - known:
        del OPS[name], BINDERS[name]
    for called in [c for c, to in CALLS.items() if isinstance(to, str) and to not in OPS]:
        del CALLS[called]


def gradients(op: Any, *operands: Tensor, optimize: bool = False, second: bool = False) -> Any:
    for x in operands:
        x.grad = None
    with ao.AutogradGraph(optimize=optimize):
        loss = (op(*operands) * torch.tensor([1.0, 2.0, 3.0])).sum()
        if second:
            firsts = torch.autograd.grad(loss, operands, create_graph=True)
            loss = sum((g * g).sum() for g in firsts)
        loss.backward()
    return [x.grad for x in operands]


def eager(function: Any, *operands: Tensor, second: bool = False) -> Any:
    copies = [torch.tensor(x.tolist(), requires_grad=True) for x in operands]
    loss = (function(*copies) * torch.tensor([1.0, 2.0, 3.0])).sum()
    if second:
        loss = sum((g * g).sum() for g in torch.autograd.grad(loss, copies, create_graph=True))
    loss.backward()
    return [x.grad for x in copies]


# ----- what rules return -----
WRONG = {
    "a sum": (lambda g: g.sum(), r"Function wrongBackward returned an invalid gradient at index 0 - got \[\] but "
                                 r"expected shape compatible with \[3\].*operand 'x'"),
    "a part": (lambda g: g[:1], r"invalid gradient at index 0 - got \[1\] but expected shape compatible with \[3\]"),
    "a number": (lambda g: 2.0, r"expected Variable or None \(got float\).*wrong.*'x'"),
    "text": (lambda g: "a", r"expected Variable or None \(got str\)"),
    "a tuple": (lambda g: (g,), r"expected Variable or None \(got tuple\)"),
}


@OPTIMIZE
@pytest.mark.parametrize("name", WRONG)
def test_a_cotangent_that_does_not_fit_is_refused(name: str, optimize: bool) -> None:
    rule, words = WRONG[name]
    op = ao.register_op("x", name="wrong", x=rule)(lambda x: x * 1.0)
    x = ao.tensor([1.0, 2.0, 3.0])
    for way in (lambda y: y.backward(), lambda y: torch.autograd.grad(y, x)):
        with ao.AutogradGraph(optimize=optimize), pytest.raises(GraphError, match=words) as caught:
            way(op(x).sum())
        assert "while differentiating wrong, recorded at" in caught.value.__notes__[0]
        assert x.grad is None
    with ao.AutogradGraph(optimize=optimize) as graph:
        assert graph.verify((op(x) + op(x)).sum()).status == "proved"       # one value, whatever its rule does


@pytest.mark.parametrize("rule", [lambda g: torch.stack([g, g]), lambda g: torch.stack([g, g])[None]])
def test_a_cotangent_that_the_operand_broadcasts_to_is_summed(rule: Any) -> None:
    x = ao.tensor([1.0, 2.0, 3.0])
    op = ao.register_op("x", name="wide", x=rule)(lambda x: x * 1.0)
    assert gradients(op, x)[0].tolist() == [2.0, 4.0, 6.0]
    with ao.AutogradGraph():
        (g,) = torch.autograd.grad(op(x).sum(), x)
    assert g.tolist() == [2.0, 2.0, 2.0]


@OPTIMIZE
@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize("elementwise", [False, True])
def test_broadcast_operands(optimize: bool, second: bool, elementwise: bool) -> None:
    def scaled(x: Tensor, y: Tensor) -> Tensor:
        return x * y * y

    single = ao.register_op("x, y", name="single", pure=True, elementwise=elementwise, x=lambda g, y: g * y * y,
                            y=lambda g, x, y: 2 * g * x * y)(scaled)
    joint = ao.register_op("x, y", name="joint", pure=True, elementwise=elementwise,
                           joint=lambda g, x, y: (g * y * y, 2 * g * x * y))(scaled)
    x, y = ao.tensor([1.0, 2.0, 3.0]), ao.tensor([4.0])
    for op in (single, joint):
        for mine, torchs in zip(gradients(op, x, y, optimize=optimize, second=second),
                                eager(scaled, x, y, second=second), strict=True):
            torch.testing.assert_close(mine, torchs, rtol=0, atol=0)
        with ao.AutogradGraph(optimize=True) as graph:
            assert graph.verify((op(x, y) * op(x, y)).sum()).status == "proved"


def test_a_batch_of_cotangents() -> None:
    op = ao.register_op("x, y", name="batched", x=lambda g, y: g * y, y=lambda g, x: g * x)(lambda x, y: x * y)
    x, y = ao.tensor([1.0, 2.0, 3.0]), ao.tensor([4.0])
    with ao.AutogradGraph():
        dx, dy = torch.autograd.grad(op(x, y), [x, y], torch.eye(3), is_grads_batched=True)
    assert dx.equal(4 * torch.eye(3))
    assert dy.equal(torch.tensor([[1.0], [2.0], [3.0]]))


COUNTED = {
    "too few": (lambda g, x, y: (g * y,), 1), "too many": (lambda g, x, y: (g * y, g * x, g), 3),
    "a tensor": (lambda g, x, y: g * y, 1), "nothing": (lambda g: None, 1), "a list": (lambda g: [g], 1),
}


@pytest.mark.parametrize("name", COUNTED)
def test_a_joint_rule_gives_one_for_each_operand(name: str) -> None:
    rule, count = COUNTED[name]
    op = ao.register_op("x, y", name="counted", joint=rule)(lambda x, y: x * y)
    x = ao.tensor([1.0, 2.0, 3.0])
    with ao.AutogradGraph(), pytest.raises(
            GraphError, match=rf"incorrect number of gradients \(expected 2, got {count}\).*x, y") as caught:
        op(x, x * 2).sum().backward()
    assert "while differentiating counted" in caught.value.__notes__[0]


def test_a_joint_rule_may_leave_one_out() -> None:
    x, y = ao.tensor([1.0, 2.0, 3.0]), ao.tensor([4.0, 5.0, 6.0])
    op = ao.register_op("x, y", name="left_out", joint=lambda g, y: (g * y, None, None))(lambda x, y: x * y)
    dx, dy = gradients(op, x, y)
    assert dx.tolist() == [4.0, 10.0, 18.0]
    assert dy is None
    seen = []
    op = ao.register_op("x, y", name="asks", joint=lambda g, needs, x_shape: (seen.append((needs, x_shape)), g)[::-1])(
        lambda x, y: x + y.detach())
    assert gradients(lambda x: op(x, torch.ones(3)), x)[0].tolist() == [1.0, 2.0, 3.0]
    assert seen == [((True, False), (3,))]


def test_no_gradient_is_said_with_none() -> None:
    op = ao.register_op("x, y", name="without", x=lambda g, y: g * y, y=None)(lambda x, y: x * y)
    x, y = ao.tensor([1.0, 2.0, 3.0]), ao.tensor([4.0, 5.0, 6.0])
    dx, dy = gradients(op, x, y)
    assert dx.tolist() == [4.0, 10.0, 18.0]
    assert dy is None


@OPTIMIZE
def test_one_function_makes_several_operators(optimize: bool) -> None:
    def same(x: Tensor) -> Tensor:
        return x * 1.0

    ten = ao.register_op("x", name="ten", pure=True, x=lambda g: g * 10)(same)
    twenty = ao.register_op("x", name="twenty", pure=True, x=lambda g: g * 20)(same)
    x = ao.tensor([1.0, 1.0, 1.0])
    for op, factor in ((ten, 10.0), (twenty, 20.0), (ten, 10.0)):
        assert gradients(op, x, optimize=optimize)[0].tolist() == [factor, 2 * factor, 3 * factor]
    assert gradients(lambda x: ten(x) + twenty(x), x, optimize=optimize)[0].tolist() == [30.0, 60.0, 90.0]


def test_an_operator_of_torchs_own_function_leaves_that_alone() -> None:
    op = ao.register_op("x", name="my_sin", x=lambda g: g * 7)(torch.sin)
    x = ao.tensor([1.0, 1.0, 1.0])
    assert gradients(op, x)[0].tolist() == [7.0, 14.0, 21.0]
    torch.testing.assert_close(gradients(torch.sin, x), eager(torch.sin, x))


def test_an_operator_gives_one_tensor() -> None:
    x = ao.tensor([1.0])
    for k, result in enumerate((lambda x: (x.sin(), x.cos()), lambda x: None, lambda x: 3)):
        op = ao.register_op("x", name=f"several_{k}", x=lambda g: g)(result)
        with ao.AutogradGraph(), pytest.raises(ArgumentTypeError, match=r"several_\d returned .*one tensor.*test_reg"):
            op(x)


SCALED = {
    "a tensor": lambda op, x, k: op(x, k=k),
    "a result": lambda op, x, k: op(x, k=k * 2),
    "of one number": lambda op, x, k: op(x, k=k.sum()),
    "by its place": lambda op, x, k: op(x, k),
    "in a list": lambda op, x, k: op(x, k=[k]),
    "deep in others": lambda op, x, k: op(x, k={"a": (1, [k])}),
}


def first(k: Any) -> Tensor:
    """The tensor that such an attribute holds."""
    while not isinstance(k, Tensor):
        k = next(iter(k.values())) if isinstance(k, dict) else k[-1]
    return k


@OPTIMIZE
@pytest.mark.parametrize("how", SCALED)
def test_no_attribute_is_a_tensor_that_a_gradient_would_have_to_reach(how: str, optimize: bool) -> None:
    op = ao.register_op("x, *, k=None", name="scaled", pure=True, x=lambda g, *, k: g * first(k))(
        lambda x, k=None: x * first(k))
    x, k = ao.tensor([1.0, 2.0, 3.0]), ao.tensor([2.0, 3.0, 4.0])
    with ao.AutogradGraph(optimize=optimize):
        with pytest.raises(ArgumentError, match=r"scaled: the attribute k.*make it an operand"):
            SCALED[how](op, x, k)
        with torch.no_grad():
            SCALED[how](op, x, k)
        SCALED[how](op, x, k.detach()).sum().backward()
    assert torch.equal(x.grad, eager(lambda x: SCALED[how](op, x, k.detach()), x)[0] / torch.tensor([1.0, 2.0, 3.0]))


class Mode(enum.IntEnum):
    SLOW = 2


VALUES = [Mode.SLOW, np.float32(2), np.int64(2), np.float64(2), np.bool_(True), np.ones(1), torch.tensor(2.0),
          torch.tensor(2), [torch.tensor(2.0)], (Mode.SLOW,), [np.float32(2)], {"a": Mode.SLOW}, 2, 2.0, True,
          torch.Size([2])]


@OPTIMIZE
@pytest.mark.parametrize("operand", [False, True])
@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_function_and_its_rule_get_what_the_call_gave(value: Any, operand: bool, optimize: bool) -> None:
    seen = []

    def noted(x: Any, k: Any) -> Any:
        seen.append(k)
        return x * 2

    op = ao.register_op("x, k" if operand else "x, *, k=None", name="noted", pure=True, **(
        {"x": lambda g, k: noted(g, k), "k": None} if operand else {"x": lambda g, *, k: noted(g, k)}))(
        lambda x, k=None: noted(x, k))
    x = ao.tensor([1.0, 2.0])
    with ao.AutogradGraph(optimize=optimize):
        (op(x, k=value) + op(x, k=value)).sum().backward()
    assert torch.equal(x.grad, torch.tensor([4.0, 4.0]))
    assert len(seen) > 1
    for k in seen:
        assert k is value or (type(k), repr(k)) == (type(value), repr(value))


WRITES = {
    "itself": lambda x, y: x.mul_(y),
    "the second": lambda x, y: x * y.add_(1),
    "a view": lambda x, y: (x[:1].zero_(), x * y)[1],
    "out=": lambda x, y: torch.mul(x, y, out=y),
    "data": lambda x, y: (x.detach().add_(1), x * y)[1],
}


@OPTIMIZE
@pytest.mark.parametrize("pure", [False, True])
@pytest.mark.parametrize("how", WRITES)
def test_an_operator_that_writes_to_an_operand_is_refused(how: str, pure: bool, optimize: bool) -> None:
    op = ao.register_op("x, y", name="writes", pure=pure, x=lambda g, y: g * y, y=lambda g, x: g * x)(WRITES[how])
    x = ao.tensor([1.0, 2.0, 3.0])
    with ao.AutogradGraph(optimize=optimize), pytest.raises(GraphError, match=r"writes writes to its operand [xy] in "):
        op(x * 1, x.detach() * 2)


def test_formulas_are_those_of_the_rules() -> None:
    ao.register_op("x", name="told", x=lambda g, x: g * x.cos())(torch.sin)
    assert formulas_of(OPS["told"]) == {"x": "g * x.cos()"}


# ----- two operands in either order -----
def product(name: str, commutative: bool = True) -> Any:
    return ao.register_op("x, y, *, k=1.0", name=name, pure=True, commutative=commutative,
                          x=lambda g, y, *, k: g * y * k, y=lambda g, x, *, k: g * x * k,
                          meaning=lambda x, y, k=1.0: x * y * k)(lambda x, y, k=1.0: x * y * k)


@OPTIMIZE
@pytest.mark.parametrize("commutative", [False, True])
def test_operands_in_either_order_are_one_value_where_they_commute(commutative: bool, optimize: bool) -> None:
    op = product("either", commutative)
    x, y = ao.tensor([1.0, 2.0, 3.0]), ao.tensor([4.0, 5.0, 6.0])
    with ao.AutogradGraph(optimize=optimize) as graph:
        a, b, c = op(x, y), op(y, x), op(y, x, k=2.0)
        loss = (a.sin() + b.sin() * 2 + c.sin()).sum()
        merged = 2 * (commutative and optimize)
        assert graph.report().reused == merged
        assert graph.verify(loss).status == "proved"
        loss.backward()
        assert [run.merged for run in graph.runs] == ([merged] if merged else [])
    u, v = (torch.tensor(t.tolist(), requires_grad=True) for t in (x, y))
    ((u * v).sin() + (v * u).sin() * 2 + (v * u * 2.0).sin()).sum().backward()
    torch.testing.assert_close(x.grad, u.grad)
    torch.testing.assert_close(y.grad, v.grad)


def test_operands_in_another_order_keep_the_layout_that_they_give() -> None:
    op = product("laid_out")
    x = ao.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    with ao.AutogradGraph(optimize=True) as graph:
        p, q = x * 1, (x * 2).t().contiguous().t()
        results = [op(p, q), op(q, p), op(q, p), op(p, q)]
        assert [r.stride() for r in results] == [(p * q).stride(), (q * p).stride()] * 1 + [
            (q * p).stride(), (p * q).stride()]
        assert len({r.stride() for r in results}) == 2
        assert graph.report().reused == 2 + 2        # of each order the second, and of the products here
        sum(r.sum() * (k + 1) for k, r in enumerate(results)).backward()
    torch.testing.assert_close(x.grad, 10 * 4 * x.detach())


def test_a_promise_to_commute_that_is_wrong_is_not_proved() -> None:
    op = ao.register_op("x, y", name="no_promise", pure=True, commutative=True, x=lambda g: g, y=lambda g: -g,
                        meaning=lambda x, y: x - y)(lambda x, y: x - y)
    x, y = ao.tensor([1.0, 2.0, 3.0]), ao.tensor([4.0, 5.0, 6.0])
    with ao.AutogradGraph(optimize=True) as graph:
        verdict = graph.verify((op(x, y).sin() + op(y, x).cos()).sum())
    assert verdict.status != "proved"
    assert "no_promise" in verdict.culprit


@OPTIMIZE
def test_operands_that_commute_after_a_run(optimize: bool) -> None:
    op = product("run")
    x = ao.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    p, q = x.detach() * 1, (x.detach() * 2).t().contiguous().t()
    with ao.AutogradGraph(optimize=optimize):
        for _ in range(3):
            for a, b in ((x, p), (x, q), (p, x), (q, x), (x, q)):
                op(a, b).sum().backward()
    torch.testing.assert_close(x.grad, 3 * (2 * p + 3 * q))


def test_products_of_complex_numbers_keep_their_order() -> None:
    x, y = ao.tensor([1j, 2, 3]), ao.tensor([4, 5j, 6])
    with ao.AutogradGraph(optimize=True) as graph:
        assert (x * y).equal(y * x)
        assert graph.report().reused == 0


# ----- registration -----
def sine(x: Any) -> Any:
    return x.sin()


def rule(g: Any) -> Any:
    return g


REFUSED: dict[str, tuple[Any, str]] = {
    "no signature": (lambda: ao.register_op(None), r"signature is of type NoneType"),
    "a bare decorator": (lambda: ao.register_op(sine), r"signature is of type function, and comes first.*@register_op"),
    "no operand": (lambda: ao.register_op("*, k=1"), "names no operand"),
    "a blank": (lambda: ao.register_op("x y", x=rule), r"'x y' is no name"),
    "twice": (lambda: ao.register_op("x, x", x=rule), r"names 'x' twice"),
    "a keyword": (lambda: ao.register_op("lambda"), r"'lambda' is no name"),
    "a word of rules": (lambda: ao.register_op("ans"), r"'ans' is a word of rules"),
    "an option": (lambda: ao.register_op("name"), r"'name' is a word of rules or of register_op"),
    "no default": (lambda: ao.register_op("x, *, k", x=rule), r"attribute 'k' needs a default, as in 'k=1.0'"),
    "no value": (lambda: ao.register_op("x, *, k=what", x=rule), r"cannot be read \(NameError"),
    "order": (lambda: ao.register_op("k=1, x", x=rule), r"cannot be read .*operands first"),
    "no rules": (lambda: ao.register_op("x"), r"no rule for x: give x=lambda g: ..., or x=None"),
    "one rule of two": (lambda: ao.register_op("x, y", x=rule), r"no rule for y: "),
    "a number": (lambda: ao.register_op("x", name="r", x=3), r"r: x=3 is of type int: a rule is a function"),
    "a joint number": (lambda: ao.register_op("x", joint=3), r"joint=3 is of type int: a rule is a function"),
    "both": (lambda: ao.register_op("x", joint=rule, x=rule), r"joint= is the rule of all operands.*give either"),
    "no g": (lambda: ao.register_op("x", x=lambda x: x), r"first parameter of the rule x= is the cotangent g, not 'x'"),
    "of unknown parameters": (lambda: ao.register_op("x", x=torch.cos), r"x=<built-in .*write x=lambda g"),
    "nothing asked": (lambda: ao.register_op("x", x=lambda: 1), r"cotangent g, and there is none"),
    "an unknown word": (lambda: ao.register_op("x", x=lambda g, z: g)(sine), r"sine: a rule names 'z'"),
    "of another": (lambda: ao.register_op("x", x=rule, y=rule), r"'y' is neither an operand"),
    "of a name": (lambda: ao.register_op("ramp", x=rule), r"'x' is neither an operand.*the signature comes first"),
    "of an attribute": (lambda: ao.register_op("x, *, k=1", x=rule, k=rule), r"'k' is an attribute"),
    "an unknown option": (lambda: ao.register_op("x", x=rule, purr=True), r"'purr' is neither .*did you mean 'pure'"),
    "a name": (lambda: ao.register_op("x", name=3, x=rule), r"name=3 is of type int"),
    "an empty name": (lambda: ao.register_op("x", name="", x=rule), r"name='' is empty"),
    "a taken name": (lambda: ao.register_op("x", name="sin", x=rule)(sine), r"'sin' exists already"),
    "yes or no": (lambda: ao.register_op("x", pure="no", x=rule), r"pure='no': choose True or False"),
    "a lone operand": (lambda: ao.register_op("x", commutative=True, x=rule), r"commutative=True is about two"),
    "a meaning": (lambda: ao.register_op("x", meaning="sin", x=rule), r"meaning='sin' is of type str"),
    "no function": (lambda: ao.register_op("x", name="r", x=rule)(3), r"r decorates a function, not 3"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_registration_is_refused(name: str) -> None:
    register, words = REFUSED[name]
    known = set(OPS)
    with pytest.raises((ArgumentError, ArgumentTypeError), match=rf"(?s){words}.*test_register_op\.py:\d+\]"):
        register()
    assert set(OPS) == known
