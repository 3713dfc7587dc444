"""The kernels of torch that a stretch can compute, each as an expression in functions of `blocks.h`.

Where several expressions are given, the first that has the bits of torch's kernel on this machine is used; `difference`
compares them once, by dtype, on sample values of every kind.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from typing import Any

import torch

from autograd_opt.abi.symbols import addresses
from autograd_opt.plans import blocks
from autograd_opt.plans.emission import Emission, Expression, Value
from autograd_opt.plans.operators import base_name, functional

Tensor = torch.Tensor
FLOATS = {torch.float32: 4, torch.float64: 8}
"""The dtypes that a stretch computes in, and their bytes."""
MOST_ULPS = 1
"""How far a result may be from torch's, in units of its last place, for `exact=False`."""


SYMBOLS = {
    "exp": "Exp",
    "vector_sqrt": "Sqrt",
    "sin": "Sin",
    "cos": "Cos",
    "tan": "Tan",
    "tanh": "Tanh",
    "log": "Ln",
    "log2": "Log2",
    "log10": "Log10",
    "erf": "Erf",
    "erfc": "Erfc",
    "erfinv": "ErfInv",
    "atan": "Atan",
    "asin": "Asin",
    "acos": "Acos",
}
"""Functions of the vector mathematics library that torch is linked with, by their symbols without `vms` and `vmd`."""


def power(x: Any, exponent: Any) -> list[Expression]:
    """The powers that torch computes by products and roots."""
    known: dict[float, Expression] = {
        2.0: ("square", x),
        3.0: ("cube", x),
        0.5: ("vector_sqrt", x),
        -0.5: ("rsqrt", x),
        -1.0: ("reciprocal", x),
        -2.0: ("inverse_square", x),
        1.0: ("copy", x),
    }
    return [known[float(exponent)]] if isinstance(exponent, (int, float)) and float(exponent) in known else []


def added(x: Any, y: Any, alpha: Any = 1) -> list[Expression]:
    return [("add", x, y)] if alpha == 1 else [("add_scaled", x, y, Value(alpha)), ("add", x, ("mul", y, alpha))]


def subtracted(x: Any, y: Any, alpha: Any = 1) -> list[Expression]:
    return [("sub", x, y)] if alpha == 1 else [("sub_scaled", x, y, Value(alpha)), ("sub", x, ("mul", y, alpha))]


def unary(*names: str) -> dict[str, Callable[..., list[Expression]]]:
    return {f"{name}.default": functools.partial(lambda name, x: [(name, x)], name) for name in names}


def binary(**functions: str) -> dict[str, Callable[..., list[Expression]]]:
    return {
        f"{name}.{kind}": functools.partial(lambda f, x, y: [(f, x, y)], function)
        for name, function in functions.items()
        for kind in ("Tensor", "Scalar")
    }


EXPRESSIONS: dict[str, Callable[..., list[Expression]]] = {
    **unary("neg", "abs", "sgn", "rsqrt", "reciprocal", "floor", "ceil", "trunc"),
    **unary(*(name for name in SYMBOLS if name != "vector_sqrt")),
    **binary(mul="mul", div="div", eq="eq", ne="ne", lt="lt", le="le", gt="gt", ge="ge"),
    "maximum.default": lambda x, y: [("maximum", x, y)],
    "minimum.default": lambda x, y: [("minimum", x, y)],
    "add.Tensor": added,
    "add.Scalar": added,
    "sub.Tensor": subtracted,
    "sub.Scalar": subtracted,
    "rsub.Tensor": lambda x, y, alpha=1: subtracted(y, x, alpha),
    "rsub.Scalar": lambda x, y, alpha=1: [("sub", y, x)] if alpha == 1 else [],
    "sqrt.default": lambda x: [("vector_sqrt", x), ("sqrt", x)],
    "relu.default": lambda x: [("relu", x), ("relu_unsigned", x)],
    "sign.default": lambda x: [("sgn", x)],
    "square.default": lambda x: [("square", x)],
    "pow.Tensor_Scalar": power,
    "sigmoid.default": lambda x: [("sigmoid_of_exp", ("exp", ("neg", x)))],
    "clone.default": lambda x, memory_format=None: [("copy", x)],
    "threshold_backward.default": lambda g, x, threshold: [("threshold_backward", g, x, Value(threshold))],
    "tanh_backward.default": lambda g, y: [("tanh_backward", g, y), ("tanh_backward_fused", g, y)],
    "sigmoid_backward.default": lambda g, y: [("sigmoid_backward", g, y)],
    "where.self": lambda condition, x, y: [("where", condition, x, y)],
    "addcmul.default": lambda x, y, z, value=1: [
        ("addcmul", x, y, z, Value(value)),
        ("addcmul_fused", x, y, z, Value(value)),
    ],
    "addcdiv.default": lambda x, y, z, value=1: [("addcdiv", x, y, z, Value(value))],
    "logical_not.default": lambda x: [("logical_not", x)],
    "bitwise_not.default": lambda x: [("logical_not", x)],
    "logical_and.default": lambda x, y: [("logical_and", x, y)],
    "bitwise_and.Tensor": lambda x, y: [("logical_and", x, y)],
    "logical_or.default": lambda x, y: [("logical_or", x, y)],
    "bitwise_or.Tensor": lambda x, y: [("logical_or", x, y)],
}
"""Overload of an operator (`name.overload`) -> expressions of its operands, the likeliest first."""
COMPARISONS = frozenset("eq ne lt le gt ge".split())
"""Operators whose result is a bool."""


@functools.cache
def set_up() -> None:
    """Find the vector functions in torch's library; those that are missing are not computed in stretches."""
    found: list[dict[str, int]] = [{}, {}]
    for name, symbol in SYMBOLS.items():
        both = addresses({"float": f"vms{symbol}", "double": f"vmd{symbol}"})
        if both is not None:
            found[0][name], found[1][name] = both["float"], both["double"]
    blocks.install(*found)


def functions_of(expression: Any) -> Iterable[str]:
    """The functions that an expression names."""
    if isinstance(expression, tuple) and not isinstance(expression, Value):
        yield expression[0]
        for part in expression[1:]:
            yield from functions_of(part)


def key_of(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """What of a call decides which expression is right: kinds of operands, exponents, and whether factors are 1.

    How a number is rounded that is multiplied by another one is asked of each pair.
    """
    alone = not (name.startswith("pow") or any(isinstance(v, (int, float)) and v != 1 for v in kwargs.values()))

    def kind(a: Any) -> Any:
        if not isinstance(a, (int, float)):
            return str(a)
        return a == 1 if alone else float(a).hex()

    return (name, tuple(map(kind, args)), tuple((k, kind(v)) for k, v in sorted(kwargs.items())))


SPECIAL = 21 * 21
"""How many of the samples are pairs of special values."""


@functools.cache
def samples(dtype: torch.dtype, number: int) -> Tensor:
    """Values of every kind: of many sizes, and special ones; as many for each operand, in another order."""
    generator = torch.Generator().manual_seed(number)
    info = torch.finfo(dtype)
    special = torch.tensor(
        [
            0.0,
            -0.0,
            1.0,
            -1.0,
            0.5,
            -0.5,
            math.inf,
            -math.inf,
            math.nan,
            info.max,
            info.min,
            info.tiny,
            info.tiny / 4,
            -info.tiny / 4,
            20.0,
            -20.0,
            88.0,
            -104.0,
            710.0,
            math.pi / 2,
            1e5,
        ],
        dtype=dtype,
    )
    scale = torch.tensor([1e-6, 1e-2, 0.3, 1.0, 3.0, 30.0, 1e4], dtype=dtype).repeat_interleave(300)
    spread = torch.randn(scale.shape, dtype=dtype, generator=generator) * scale
    near = torch.rand(700, dtype=dtype, generator=generator) * 2 - 1
    crossed = special.repeat_interleave(len(special)) if number == 0 else special.repeat(len(special))
    rest = torch.cat([spread, near])
    return torch.cat([crossed, rest[torch.randperm(len(rest), generator=generator)]])


def lengths(values: Tensor) -> list[Tensor]:
    """The sample whole, and pieces of it whose last vectors are not full."""
    return [values, *(values[k * 71 : k * 71 + k] for k in range(1, 36))]


def triples(values: Tensor) -> list[Tensor]:
    """The special values in rows that fill no vector."""
    return [*values[:SPECIAL].split(3)]


@torch.no_grad()
def difference(
    function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], expression: Expression, dtype: torch.dtype
) -> int:
    """The largest difference from torch's kernel, in units of the last place; 0 is bit for bit.

    `args` has a string in the place of each tensor: "float" or "bool".  A NaN equals any NaN.  Which zero is the
    larger one torch's kernel itself answers otherwise in short rows: that counts as one unit.
    """

    def distance(*pieces: Tensor) -> int:
        kinds = [a for a in args if isinstance(a, str)]
        tensors = [t if kind == "float" else t > 0 for t, kind in zip(pieces, kinds, strict=False)]
        given = iter(tensors)
        expected = function(*(next(given) if isinstance(a, str) else a for a in args), **kwargs)
        return ulps(evaluate(expression, tensors, dtype, expected.dtype), expected)

    operands = [samples(dtype, k) for k in range(3)]
    worst = max(map(distance, *map(lengths, operands)))
    return worst or int(any(map(distance, *map(triples, operands))))


def ulps(found: Tensor, expected: Tensor) -> int:
    """The largest distance between two tensors, counted in numbers of their dtype."""
    if expected.dtype == torch.bool:
        return 0 if torch.equal(found, expected) else 1 << 30
    if not torch.equal(found.isnan(), expected.isnan()):
        return 1 << 30
    kind = torch.int32 if expected.dtype == torch.float32 else torch.int64
    steps = [
        torch.where(bits < 0, torch.iinfo(kind).min - bits, bits).double()
        for bits in (t.nan_to_num(nan=0.0, posinf=math.inf, neginf=-math.inf).view(kind) for t in (found, expected))
    ]
    if not torch.equal(found.signbit() | found.isnan(), expected.signbit() | expected.isnan()):
        return 1 << 30
    return int((steps[0] - steps[1]).abs().max()) if found.numel() else 0


def evaluate(expression: Expression, tensors: list[Tensor], dtype: torch.dtype, result: torch.dtype) -> Tensor:
    """Compute an expression whose operands are the numbers of `tensors`, as strings."""
    set_up()
    shape = tensors[0].shape
    out = torch.empty(shape, dtype=result)
    emission = Emission(int)
    for t in tensors:
        emission.place("whole_bool" if t.dtype == torch.bool else "whole")
    emission.emit(expression, emission.place("result_bool" if result == torch.bool else "result"))
    stretch = blocks.Stretch(emission.steps, emission.places, out.numel(), FLOATS[dtype])
    memory = [*(t.contiguous() for t in tensors), out]
    for place, t in enumerate(memory):
        stretch.point(place, t.data_ptr())
    for place, x in emission.numbers.items():
        stretch.set_number(place, x)
    stretch.run()
    return out


CHOSEN: dict[Any, tuple[int, int]] = {}
"""What `key_of` says of a call, and its dtype -> which of its expressions, and how far it is from torch's kernel."""


def expression_of(
    function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], dtype: torch.dtype, exact: bool = False
) -> Callable[..., Expression] | None:
    """How a stretch computes a call, or None.

    `args` has "float" or "bool" in the place of each tensor.  What is returned makes the expression of whatever
    stands for the operands.
    """
    name = f"{base_name(function).removesuffix('_')}.{function._overloadname}"
    make = EXPRESSIONS.get(name)
    if make is None:
        return None
    key = (key_of(name, args, kwargs), dtype)
    if key not in CHOSEN:
        CHOSEN[key] = compared(function, args, kwargs, make, dtype)
    number, far = CHOSEN[key]
    if far > (0 if exact else MOST_ULPS):
        return None

    def made(*operands: Any) -> Expression:
        given = iter(operands)
        return make(*(next(given) if isinstance(a, str) else a for a in args), **kwargs)[number]

    return made


def compared(
    function: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    make: Callable[..., list[Expression]],
    dtype: torch.dtype,
) -> tuple[int, int]:
    """Which of the expressions is nearest to torch's kernel, and how near."""
    set_up()
    count = iter("012")
    try:
        candidates = make(*(next(count) if isinstance(a, str) else a for a in args), **kwargs)
    except TypeError:  # arguments that no expression is written for
        return 0, 1 << 30
    plain = functional(function)
    found = [
        (difference(plain, args, kwargs, e, dtype) if all(map(blocks.available, functions_of(e))) else 1 << 30, k)
        for k, e in enumerate(candidates)
    ]
    far, number = min(found, default=(1 << 30, 0))
    return number, far

