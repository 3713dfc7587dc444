"""graph.explain(a, b): one value, or the part of the key that differs."""

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import autograd_opt as ao
from autograd_opt import errors
from autograd_opt.inspection.attributes import attribute_difference

X = [0.5, 1.5]
Program = Callable[[Any], tuple[Any, Any]]


def written(x: Any) -> tuple[Any, Any]:
    k = x * 1
    first = k.sin()
    k.add_(1)
    return first, k.sin()


def written_outside(x: Any) -> tuple[Any, Any]:
    c = torch.ones(2)
    first = x * c
    c.mul_(2)
    return first, x * c


def without_grad(x: Any) -> tuple[Any, Any]:
    with torch.no_grad():
        first = x.exp()
    return first, x.exp()


def hooked(x: Any) -> tuple[Any, Any]:
    first, second = x.exp(), x.exp()
    second.register_hook(lambda g: None)
    return first, second


DIFFERENT: dict[str, tuple[Program, str, str]] = {
    "operator": (lambda x: (x.sin(), x.cos()), "operator", "sin"),
    "attribute": (lambda x: (x.sum(dim=0), x.sum(dim=0, keepdim=True)), "attribute keepdim", "False and True"),
    "number": (lambda x: (x * 2, x * 3), "attribute y", "2 and 3"),
    "type of a number": (lambda x: (x * 2, x * 2.0), "attribute y", "2 and 2.0"),
    "dtype": (lambda x: (x.sum(dtype=torch.float64), x.sum(dtype=torch.float32)), "attribute dtype", "f64 and f32"),
    "write": (written, "operand 0", "written between them by add_"),
    "write outside": (written_outside, "operand 1", "written between them by"),
    "grad mode": (without_grad, "requires_grad", "computed without gradient"),
    "hook": (hooked, "hook", "pinned by a hook"),
    "constants": (lambda x: (x * torch.ones(2), x * torch.ones(2)), "leaf", "equal values now"),
    "deep": (lambda x: ((x.sin() * 2).exp(), (x.cos() * 2).exp()), "operator", "sin"),
    "opaque": (lambda x: (torch.cdist(x[None], x[None]), torch.cdist(x[None], x[None])), "purity", "recorded whole"),
    "leaf": (lambda x: (x, x + 1), "leaf", "is a leaf"),
}


@ao.register_op("x, *, k=None", name="with_k", pure=True, x=lambda g, x, *, k: g)
def with_k(x: Any, *, k: Any = None) -> Any:
    return x * 1.0


def nan_of(bits: int) -> float:
    return float(struct.unpack("<d", struct.pack("<Q", bits))[0])


NAN, OTHER_NAN = nan_of(0x7FF8000000000000), nan_of(0xFFF8000000000001)
KEYS: list[tuple[Any, Any, str]] = [
    (0.0, -0.0, "attribute k: 0.0 and -0.0"),
    (0j, complex(0, -0.0), "attribute k: 0j and -0j"),
    (NAN, OTHER_NAN, "attribute k: nan (bits 0x7ff8000000000000) and nan (bits 0xfff8000000000001)"),
    (complex(0, NAN), complex(0, OTHER_NAN), "(bits 0x0000000000000000 and 0xfff8000000000001)"),
    ((1, (2, 0.0)), (1, (2, -0.0)), "attribute k[1][1]: 0.0 and -0.0"),
    ((1, 2), (1, 2, 3), "attribute k: (1, 2) and (1, 2, 3)"),
    (slice(0, 1), slice(0, 1.0), "attribute k.stop: 1 and 1.0"),
    (1, True, "attribute k: 1 and True"),
    ("a" * 50 + "b" + "a" * 50, "a" * 50 + "c" + "a" * 50, "attribute k: …baaa"),
    (np.float64(1), np.float64(1), "float64 has no key: such a value is taken for equal to none"),
    ({1}, {1}, "attribute k: {1} and another of the same text; set has no key"),
    ((3, {1}), (3, {2}), "attribute k[1]: {1} and {2}; set has no key"),
    (len, len, "has no key"),
    (torch.ones(2), torch.zeros(2), "attribute k: f32[2] and another of the same text; Tensor has no key"),
]


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize(("first", "second", "text"), KEYS)
def test_the_bit_in_which_attributes_differ(first: Any, second: Any, text: str, optimize: bool) -> None:
    x = ao.tensor(X)
    with ao.AutogradGraph(optimize=optimize) as graph:
        a, b = with_k(x, k=first), with_k(x, k=second)
        answer = graph.explain(a, b)
        assert not answer.same
        assert text in answer.differences[0].text
        assert answer.differences[0].part == "attribute k"
        assert graph.report().near_misses[0].reason == answer.differences[0].text


@pytest.mark.parametrize("value", [NAN, -0.0, (1, [2.0]), torch.Size([2]), slice(0, None), "a", None, torch.float32])
def test_attributes_of_one_key_are_one(value: Any) -> None:
    x = ao.tensor(X)
    with ao.AutogradGraph(optimize=True) as graph:
        assert graph.explain(with_k(x, k=value), with_k(x, k=value)).same
    alike = list(value) if isinstance(value, tuple) else value
    assert attribute_difference("k", value, alike) is None


def test_lists_are_tuples_to_torch_alone() -> None:
    x = ao.tensor(X)
    with ao.AutogradGraph(optimize=True) as graph:
        assert graph.explain(x.sum([0]), x.sum((0,))).same
        for one, other, text in (((1,), [1], "attribute k: (1,) and [1]"), (((2,),), (torch.Size([2]),), "(Size)")):
            answer = graph.explain(with_k(x, k=one), with_k(x, k=other))
            assert not answer.same
            assert text in str(answer), answer


@pytest.mark.parametrize("name", ["mul", "add", "pow", "clamp"])
def test_the_sign_of_a_zero_operand_is_named(name: str) -> None:
    x = ao.tensor(X)
    with ao.AutogradGraph(optimize=True) as graph:
        answer = graph.explain(getattr(x, name)(0.0), getattr(x, name)(-0.0))
    assert "0.0 and -0.0" in str(answer)


@pytest.mark.parametrize("name", DIFFERENT)
def test_what_differs(name: str) -> None:
    program, part, text = DIFFERENT[name]
    x = ao.tensor(X)
    with ao.AutogradGraph(optimize=True) as graph:
        a, b = program(x)
        answer = graph.explain(a, b)
    assert not answer.same
    assert part in [d.part for d in answer.differences], str(answer)
    assert text in str(answer)


@pytest.mark.parametrize("program", [
    lambda x: (x.exp(), x.exp()),
    lambda x: (x * x.sin(), x.sin() * x),
    lambda x: (x.exp(), 0)[:1] * 2,
], ids=["same", "commuted", "itself"])
def test_one_value(program: Program) -> None:
    x = ao.tensor(X)
    with ao.AutogradGraph(optimize=True) as graph:
        answer = graph.explain(*program(x))
        assert answer.same, str(answer)
        assert answer.to_dict()["same"]
        assert "<pre>" in answer._repr_html_()


def test_random_draws_are_two_values() -> None:
    x = ao.tensor(X)
    with ao.AutogradGraph(optimize=True) as graph:
        a, b = F.dropout(x, 0.5), F.dropout(x, 0.5)
        assert not graph.explain(a, b).same


def test_the_place_of_the_write_is_named() -> None:
    x = ao.tensor(X)
    with ao.AutogradGraph(optimize=True) as graph:
        answer = graph.explain(*written(x))
    line = written.__code__.co_firstlineno + 3
    assert f"operand 0 (x) was written between them by add_ at test_explain_pair.py:{line}" in str(answer)


def test_the_place_of_a_write_outside_the_record_is_named() -> None:
    x = ao.tensor(X)
    with ao.AutogradGraph(optimize=True) as graph:
        answer = graph.explain(*written_outside(x))
    line = written_outside.__code__.co_firstlineno + 3
    assert f"by an operation outside the record at test_explain_pair.py:{line}" in str(answer)


def test_wrong_arguments() -> None:
    x = ao.tensor(X)
    with ao.AutogradGraph(optimize=True) as graph:
        y = x.exp()
        with pytest.raises(TypeError, match="not a tensor"):
            graph.explain(y, 3)  # type: ignore[arg-type]
        with pytest.raises(errors.GraphError, match="second tensor has no node"):
            graph.explain(y, torch.ones(2))
    with pytest.raises(errors.GraphError, match="is not open, and its nodes are released"):
        graph.explain(y, y)


def test_a_tensor_of_another_graph_is_said_to_be_one() -> None:
    x = ao.tensor(X)
    with ao.AutogradGraph():
        y = x.exp()
        with ao.AutogradGraph() as inner:
            z = x.sin()
            with pytest.raises(errors.GraphError, match=r"first tensor has no node in .*: another graph recorded it"):
                inner.explain(y, z)
