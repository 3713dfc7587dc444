"""Elementwise functions of stretches beside torch's kernels, bit for bit."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

import autograd_opt as ao
from autograd_opt.plans import blocks, elementwise
from autograd_opt.plans.elementwise import EXPRESSIONS, compared, evaluate, expression_of, samples

Tensor = torch.Tensor
NUMBERS = {"threshold_backward": 0.5, "pow": 3.0}
NOT_EXACT = {("sigmoid.default", torch.float32): 2} | {
    (f"{name}.default", dtype): 1 for name in ("maximum", "minimum") for dtype in (torch.float32, torch.float64)
}
"""What torch computes by functions of its own, within so many units of the last place; of zeros, by their places."""


def arguments(function: Any, name: str) -> tuple[Any, ...]:
    """A call's arguments, with "float" or "bool" in the place of each tensor and a number in that of each number."""
    tensor = "bool" if name.startswith(("logical_", "bitwise_")) else "float"
    kinds = [
        tensor if str(a.type) == "Tensor" else NUMBERS.get(name, 2.0)
        for a in function._schema.arguments
        if str(a.type) == "Tensor" or not a.has_default_value()
    ]
    return ("bool", *kinds[1:]) if name == "where" else tuple(kinds)


def overload(entry: str) -> Any:
    name, kind = entry.split(".")
    return getattr(getattr(torch.ops.aten, name), kind)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("entry", EXPRESSIONS)
def test_bits_of_torchs_kernel(entry: str, dtype: torch.dtype) -> None:
    function = overload(entry)
    _, far = compared(function, arguments(function, entry.split(".")[0]), {}, EXPRESSIONS[entry], dtype)
    missing = not all(map(blocks.available, elementwise.SYMBOLS))
    if missing and far > 1:
        pytest.skip("torch is built without the vector functions that this kernel calls")
    assert far <= NOT_EXACT.get((entry, dtype), 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(
    ("entry", "kwargs"),
    [
        ("add.Tensor", {"alpha": 2.5}),
        ("sub.Tensor", {"alpha": -0.3}),
        ("addcmul.default", {"value": -0.7}),
        ("addcdiv.default", {"value": 1.3}),
        ("addcmul.default", {"value": 1}),
    ],
)
def test_bits_with_factors(entry: str, kwargs: dict[str, float], dtype: torch.dtype) -> None:
    function = overload(entry)
    assert compared(function, arguments(function, entry.split(".")[0]), kwargs, EXPRESSIONS[entry], dtype)[1] == 0


@pytest.mark.parametrize("exponent", [2, 3, 0.5, -0.5, -1, -2, 1])
def test_bits_of_powers(exponent: float) -> None:
    for dtype in (torch.float32, torch.float64):
        assert (
            compared(
                torch.ops.aten.pow.Tensor_Scalar, ("float", exponent), {}, EXPRESSIONS["pow.Tensor_Scalar"], dtype
            )[1]
            == 0
        )


def test_other_powers_are_not_computed_in_stretches() -> None:
    assert expression_of(torch.ops.aten.pow.Tensor_Scalar, ("float", 1.7), {}, torch.float64) is None


def test_a_wrong_function_is_found() -> None:
    """The comparison is not empty: a function that is nearly right is refused."""
    assert elementwise.difference(torch.ops.aten.sin.default, ("float",), {}, ("cos", "0"), torch.float64) > 1
    assert (
        elementwise.difference(torch.ops.aten.relu.default, ("float",), {}, ("relu_unsigned", "0"), torch.float32) > 1
    )
    assert (
        elementwise.difference(torch.ops.aten.mul.Tensor, ("float", 3.0), {}, ("mul", "0", 3.0000001), torch.float64)
        > 1
    )


@pytest.mark.parametrize("length", [1, 2, 3, 7, 8, 15, 16, 17, 63, 511, 512, 513, 1025])
def test_every_length(length: int) -> None:
    x, y = samples(torch.float32, 0)[:length].contiguous(), samples(torch.float32, 1)[:length].contiguous()
    found = evaluate(("add", ("mul", "0", "1"), ("exp", "1")), [x, y], torch.float32, torch.float32)
    assert torch.equal(found.nan_to_num(), (x * y + y.exp()).nan_to_num())


def test_steps_that_name_no_place_are_refused() -> None:
    with pytest.raises(ValueError, match="names what there is not"):
        blocks.Stretch([(0, 5, 0, -1, -1, 0.0)], [("whole", (), ()), ("result", (), ())], 4, 4)


def test_a_function_that_was_not_found_is_refused() -> None:
    """A library without vector functions has no code for them: the step is refused, and nothing runs."""
    code = """
from autograd_opt.plans import blocks
try:
    blocks.Stretch([(blocks.NAMES["exp"], 1, 0, -1, -1, 0.0)], [("whole", (), ()), ("result", (), ())], 4, 4)
except ValueError as error:
    print(error)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "step 0 wants a function that was not found: exp\n"


ZEROS = torch.tensor([0.0, -0.0])
SHORT: dict[str, tuple[Callable[..., Tensor], Tensor, Tensor]] = {
    "maximum": (torch.maximum, ZEROS[:1], ZEROS[1:]),
    "minimum": (torch.minimum, ZEROS[:1], ZEROS[1:]),
    "no difference": (lambda x, y: torch.sub(x, y, alpha=0), ZEROS[1:], ZEROS[:1]),
    "a rounded product": (lambda x, y: torch.add(x, 3, alpha=0.1) + 0 * y, torch.full((5,), torch.pi / 2), ZEROS[:1]),
}


@pytest.mark.parametrize("case", SHORT)
def test_bits_of_short_rows(case: str) -> None:
    """Which expression has torch's bits is asked for these factors, and for rows that fill no vector."""
    function, x, y = SHORT[case]
    for first in (lambda x, y: torch.sub(x, y, alpha=2), lambda x, y: torch.add(x, 3, alpha=2)):
        before = ao.compile(first, exact=True)
        for _ in range(3):
            before(x, x)
    compiled = ao.compile(function, exact=True)
    for _ in range(3):
        found, right = compiled(x, y), function(x, y)
        assert [v.hex() for v in found.tolist()] == [v.hex() for v in right.tolist()]
