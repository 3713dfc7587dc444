"""Hazard 6: every attribute of every mergeable operator is part of its key, with type and bits."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import autograd_opt as ao
from autograd_opt.graph import plain_values
from autograd_opt.graph.arrays import flat_arrays
from autograd_opt.ops.table import MULTI, OPS, PURE, VARIADIC
from autograd_opt.record import recorder
from autograd_opt.record.context import forget_places

MERGEABLE = [name for name, op in OPS.items() if op.flags & PURE and not op.flags & (MULTI | VARIADIC)]


def variants(value: Any) -> list[Any]:
    """Values that a careless key might take for `value`, and others."""
    near: list[Any] = [
        0,
        0.0,
        -0.0,
        False,
        1,
        1.0,
        True,
        None,
        2,
        -1,
        0.5,
        float("nan"),
        "mean",
        (0,),
        (1, 0),
        (0.0,),
        (),
        torch.float32,
        torch.float64,
        torch.channels_last,
        torch.contiguous_format,
        2**40,
        2**40 + 1,
    ]
    key = plain_values.attribute_key({"a": value})
    return [v for v in near if plain_values.attribute_key({"a": v}) != key]


def record(name: str, tensors: list[torch.Tensor], attributes: dict[str, Any]) -> Any:
    """The node of one call of operator `name`, whose kernel here makes a result that is no operand."""
    op = OPS[name]
    operands = tuple(tensors[k] for k in range(len(op.operands)))
    forget_places()             # what was learned of the line below is no matter of keys
    result = recorder.apply(op, lambda *a: tensors[0].detach().clone().unsqueeze(0), (), {}, operands, attributes)
    return result._node


@pytest.mark.parametrize("name", [n for n in MERGEABLE if OPS[n].attributes])
def test_one_changed_attribute_is_another_value(name: str) -> None:
    op = OPS[name]
    tensors = [ao.tensor(torch.rand(2, 2), requires_grad=False) for _ in range(max(1, len(op.operands)))]
    with ao.AutogradGraph(passes=["cse", "prune"]) as graph:
        first = record(name, tensors, dict(op.attributes))
        twin = record(name, tensors, dict(op.attributes))
        assert twin.value_number == first.value_number
        numbers = {first.value_number}
        for attribute, default in op.attributes.items():
            if _keyless(default):
                continue
            for value in variants(default):
                other = record(name, tensors, {**op.attributes, attribute: value})
                assert other.value_number not in numbers, f"{name}: {attribute}={value!r} is taken for {default!r}"
        key, *_ = flat_arrays(graph.tape)
        same = [n.index for n in graph.tape.snapshot() if not n.is_leaf and key[n.index] == key[first.index]]
        assert same == [first.index, twin.index]


def _keyless(value: Any) -> bool:
    try:
        plain_values.attribute_key({"a": value})
    except TypeError:
        return True
    return False


@pytest.mark.parametrize("name", [n for n in MERGEABLE if OPS[n].operands])
def test_another_operator_or_operand_is_another_value(name: str) -> None:
    op = OPS[name]
    tensors = [ao.tensor(torch.rand(2, 2), requires_grad=False) for _ in range(1 + len(op.operands))]
    with ao.AutogradGraph(passes=["cse", "prune"]):
        first = record(name, tensors, dict(op.attributes))
        shifted = record(name, tensors[1:], dict(op.attributes))
        assert shifted.value_number != first.value_number
        for other in (n for n in MERGEABLE if n != name and len(OPS[n].operands) == len(op.operands)):
            assert record(other, tensors, dict(op.attributes)).value_number != first.value_number


def test_the_bits_of_attribute_values() -> None:
    values = [
        0,
        0.0,
        -0.0,
        False,
        None,
        1,
        1.0,
        True,
        "",
        "0",
        (),
        (0,),
        (0.0,),
        ((0,),),
        (0, 0),
        float("nan"),
        float("inf"),
        -float("inf"),
        0j,
        complex(0.0, -0.0),
        1j,
        slice(0, 1),
        slice(0, 1, 1),
        slice(None),
        Ellipsis,
        torch.float32,
        torch.strided,
        torch.device("cpu"),
        torch.device("cuda", 0),
        torch.preserve_format,
        -1,
        10**30,
    ]
    keys = [plain_values.attribute_key({"a": v}) for v in values]
    assert len(set(keys)) == len(values)


def test_names_and_values_do_not_run_together() -> None:
    pairs = [
        {"a": 1, "b": 2},
        {"a": 12},
        {"a": 1, "ab": 2},
        {"ab": 1, "a": 2},
        {"a": "b1"},
        {"a": ("b", 1)},
        {"a": ("b1",)},
    ]
    assert len({plain_values.attribute_key(p) for p in pairs}) == len(pairs)


def test_a_value_without_a_key_is_equal_to_nothing() -> None:
    with pytest.raises(TypeError):
        plain_values.attribute_key({"a": torch.ones(1)})
    with pytest.raises(TypeError):
        plain_values.attribute_key({"a": object()})
