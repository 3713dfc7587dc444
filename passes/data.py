"""Arithmetic on the data of terms: permutations and numbers, each as one integer.

A permutation of up to `MOST_AXES` axes is packed four bits an axis, its length
in the lowest four. A number is its IEEE bits.
"""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

from autograd_opt.passes.terms import bits_of, number_of

__all__ = [
    "FUNCTIONS",
    "MOST_AXES",
    "axes_of",
    "is_exact_product",
    "is_exact_sum",
    "is_identity",
    "is_small_power_of_two",
    "packed",
]

MOST_AXES = 14
MOST_BITS = 10
"""Powers of two up to this exponent have an exact inverse in every floating dtype."""
LEAST, MOST = 2.0**-960, 2.0**960
"""Between these, the error that a product or a sum of two numbers is rounded by is a number itself."""


def packed(axes: Sequence[int]) -> int:
    """Return a permutation as one integer.

    Examples
    --------
    >>> hex(packed([2, 0, 1]))
    '0x1023'
    >>> axes_of(packed([2, 0, 1]))
    [2, 0, 1]
    """
    if len(axes) > MOST_AXES:
        raise ValueError(f"{len(axes)} axes are more than {MOST_AXES}")
    code = len(axes)
    for place, axis in enumerate(axes):
        code |= axis << 4 * (place + 1)
    return code


def axes_of(code: int) -> list[int]:
    """Return the permutation that `packed` wrote."""
    return [code >> 4 * (place + 1) & 15 for place in range(code & 15)]


def is_identity(code: int) -> bool:
    """Whether a permutation leaves every axis where it is."""
    return axes_of(code) == list(range(code & 15))


def is_small_power_of_two(bits: int) -> bool:
    """Whether a number and its inverse are exact in every floating dtype."""
    number = number_of(bits)
    if not math.isfinite(number) or number == 0:
        return False
    mantissa, exponent = math.frexp(number)
    return abs(mantissa) == 0.5 and abs(exponent - 1) <= MOST_BITS


def is_exact_product(a: int, b: int) -> bool:
    """Whether the product of two numbers is a number, without rounding.

    Asked of products from 2**-960 on: below, the error of one may itself be no number.

    Examples
    --------
    >>> is_exact_product(bits_of(0.5), bits_of(0.1)), is_exact_product(bits_of(0.2), bits_of(0.1))
    (True, False)
    """
    x, y = number_of(a), number_of(b)
    product = x * y
    if x == 0 or y == 0:
        return math.isfinite(product)
    return LEAST <= abs(product) < math.inf and Fraction(x) * Fraction(y) == Fraction(product)


def is_exact_sum(a: int, b: int) -> bool:
    """Whether the sum of two numbers, less than 2**960 each, is a number, without rounding.

    Examples
    --------
    >>> is_exact_sum(bits_of(0.5), bits_of(2.0)), is_exact_sum(bits_of(0.2), bits_of(0.1))
    (True, False)
    """
    x, y = number_of(a), number_of(b)
    return abs(x) < MOST and abs(y) < MOST and Fraction(x) + Fraction(y) == Fraction(x + y)


def _compose(first: int, then: int) -> int:
    axes = axes_of(first)
    return packed([axes[axis] for axis in axes_of(then)])


FUNCTIONS: dict[str, Callable[..., int]] = {
    "compose": _compose,
    "negative": lambda a: bits_of(-number_of(a)),
    "product": lambda a, b: bits_of(number_of(a) * number_of(b)),
    "total": lambda a, b: bits_of(number_of(a) + number_of(b)),
    "inverse": lambda a: bits_of(1 / number_of(a)),
}
"""Functions of data in a replacement: ``q.p``, ``-c``, ``a*b``, ``a+b``, ``1/c``."""
