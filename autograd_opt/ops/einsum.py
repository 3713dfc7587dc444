"""Rules: einsum."""

from __future__ import annotations

import functools
import math
import string
from typing import Any, NamedTuple

import torch

from autograd_opt.abi import torch_private as private
from autograd_opt.graph import thread_state
from autograd_opt.graph.tensor import CustomTensor
from autograd_opt.ops.helpers import H
from autograd_opt.ops.table import OTHERS, PURE, VARIADIC, define

einsum: Any = private.VariableFunctions.einsum
"""What `torch.einsum` calls, which looks for an order of its operands first: for two there is none."""
TENSORS = (torch.Tensor, torch.nn.Parameter, CustomTensor)


@functools.lru_cache(1024)
def spelled_out(equation: str, dims: tuple[int, ...]) -> tuple[tuple[str, ...], str]:
    """The letters of the operands, of these numbers of axes, and of the result, those of an ellipsis among them.

    Only plain equations have a rule: no letter twice in an operand.
    """
    left, arrow, out = equation.replace(" ", "").partition("->")
    if "." in equation:
        counts = {n - len(term) + 3 for term, n in zip(left.split(","), dims, strict=False) if "..." in term}
        free = [c for c in string.ascii_letters if c not in equation]
        if len(counts) != 1 or not 0 <= min(counts) <= len(free) or equation.replace("...", "").count("."):
            raise TypeError("no rule for this equation")
        axes = "".join(free[:counts.pop()])
        if not arrow:
            out, arrow = "..." + "".join(sorted(c for c in set(left) - set(".,") if left.count(c) == 1)), "->"
        left, out = left.replace("...", axes), out.replace("...", axes)
    terms = tuple(left.split(","))
    if len(terms) != len(dims) or any(len(set(term)) != len(term) or len(term) != n
                                      for term, n in zip(terms, dims, strict=True)):
        raise TypeError("no rule for this equation")
    return terms, out if arrow else "".join(sorted(c for c in set(left) - {","} if left.count(c) == 1))


def bind_einsum(equation: str, operands: Any, path: Any = None) -> Any:
    """Operands of one type; equal letters stand for equal sizes, also those of the axes of an ellipsis."""
    if any(t.dtype != operands[0].dtype for t in operands):
        raise TypeError("no rule for operands of several types")
    shapes = [t.shape for t in operands]
    terms, out = spelled_out(equation, tuple(map(len, shapes)))
    if len(terms) == 1 and len(out) == len(terms[0]) and thread_state.get_recording() is not None:
        raise TypeError("axes in another order are a view, which the rule does not give")
    sizes: dict[str, int] = {}
    for term, shape in zip(terms, shapes, strict=True):
        for letter, n in zip(term, shape, strict=True):
            if sizes.setdefault(letter, n) != n:
                raise TypeError("no rule for broadcasting")
    return tuple(operands), {"equation": f"{','.join(terms)}->{out}", "path": path}


def einsum_back(g: Any, needs: Any, values: Any, shapes: Any, *, equation: str, path: Any) -> list[Any]:
    """The cotangents of the operands, handed down the pairs of operands that `path` contracts, last pair first.

    With n operands these are 3 n contractions of two; an einsum of `g` and all others for each operand takes n times n.
    Two operands are one product of matrices, where nothing records the calls.
    """
    terms, pairs = contracted(equation, tuple(path) if path else ())
    if len(values) == 2 and type(g) in TENSORS:
        x, y = H(values[0]), H(values[1])
        how = product_of(equation, x, y)
        if how is not None:
            g = fold(g, how.out)
            return [unfold(g, fold(y, how.y).mT, how.x) if needs[0] else None,
                    unfold(fold(x, how.x).mT, g, how.y) if needs[1] else None]
    needed = [*needs]
    for a, b in pairs:
        needed.append(needed[a] or needed[b])
    products: dict[int, Any] = {}

    def product(number: int) -> Any:
        if number < len(values):
            return H(values[number])
        if number not in products:
            a, b = pairs[number - len(values)]
            products[number] = contract(f"{terms[a]},{terms[b]}->{terms[number]}", product(a), product(b))
        return products[number]

    cotangents: list[Any] = [None] * len(terms)
    cotangents[-1] = g
    for number in range(len(terms) - 1, len(values) - 1, -1):
        for one, other in (pairs[number - len(values)], pairs[number - len(values)][::-1]):
            if needed[one]:
                cotangents[one] = cotangent(cotangents[number], terms[number], terms[one], terms[other], product(other))
    if not pairs and needed[0]:
        cotangents[0] = cotangent(g, equation.partition("->")[2], terms[0], "", None)
    return [c if c is None or c.shape == shape else c.expand(shape)
            for c, shape in zip(cotangents, shapes, strict=False)]


@functools.lru_cache(1024)
def contracted(equation: str, path: tuple[int, ...]) -> tuple[tuple[str, ...], tuple[tuple[int, int], ...]]:
    """The letters of the operands and of what is contracted in turn, and the pairs of numbers of what makes each."""
    inputs, _, out = equation.partition("->")
    terms = inputs.split(",")
    left, pairs = list(range(len(terms))), []
    order = list(path) or [0, 1] * (len(terms) - 1)
    while len(left) > 1:
        i, j = sorted((order.pop(0), order.pop(0)))
        b, a = left.pop(j), left.pop(i)
        kept = set(out).union(*(terms[k] for k in left))
        terms.append("".join(dict.fromkeys(c for c in terms[a] + terms[b] if c in kept)) if left else out)
        left.append(len(terms) - 1)
        pairs.append((a, b))
    return tuple(terms), tuple(pairs)


@functools.lru_cache(1024)
def factor(letters: str, term: str, rest: str | None) -> tuple[str, tuple[int, ...]]:
    """The equation of a cotangent, and the axes that it lacks: those of letters that were summed alone."""
    seen = "".join(c for c in term if c in letters or c in (rest or ""))
    lacking = tuple(i for i, c in enumerate(term) if c not in seen)
    return f"{letters}->{seen}" if rest is None else f"{letters},{rest}->{seen}", lacking


def cotangent(g: Any, letters: str, term: str, rest: str, other: Any) -> Any:
    """The cotangent of one of two factors, from that of their product; a letter that was summed alone has size 1."""
    equation, lacking = factor(letters, term, None if other is None else rest)
    part = einsum(equation, (g,)) if other is None else contract(equation, g, other)
    for i in lacking:
        part = part.unsqueeze(i)
    return part


# ----- two operands, by the product of matrices that their einsum is -----
class Side(NamedTuple):
    """How a tensor is laid out as a matrix or a batch of matrices: by its axes as they lie in memory, if it can be."""

    order: tuple[int, ...] | None        # of its axes; None: as they are
    unfolded: tuple[int, ...]            # its sizes in that order
    sizes: tuple[int, ...]               # those of the matrix
    turned: bool                         # are its columns where rows belong?
    back: tuple[int, ...] | None         # the order of axes that brings the tensor back


class Contraction(NamedTuple):
    """The operands and the result of a product `x @ y`."""

    x: Side
    y: Side
    out: Side


@functools.lru_cache(4096)
def contraction(equation: str, x_shape: torch.Size, y_shape: torch.Size) -> Contraction | None:
    """The product of matrices that `equation` is; None where a letter is summed alone, or none is summed."""
    inputs, _, out = equation.partition("->")
    x, y = inputs.split(",")
    size = dict(zip(x + y, (*x_shape, *y_shape), strict=True))
    batch, summed = [c for c in out if c in x and c in y], [c for c in x if c in y and c not in out]
    rows, columns = [c for c in out if c not in y], [c for c in out if c not in x]
    both = len(batch) + len(summed)
    if not summed or both + len(rows) != len(x) or both + len(columns) != len(y):
        return None

    def side(term: str, first: list[str], second: list[str]) -> Side:
        groups, turned = (first, second), [*batch, *first, *second] != list(term) == [*batch, *second, *first]
        if turned:
            groups = second, first
        letters = [*batch, *groups[0], *groups[1]]
        order, unfolded = tuple(map(term.index, letters)), tuple(size[c] for c in letters)
        sizes = tuple(math.prod(size[c] for c in group) for group in ((batch, *groups) if batch else groups))
        if letters == list(term):
            return Side(None, unfolded, sizes, turned, None)
        return Side(order, unfolded, sizes, turned, tuple(map(letters.index, term)))

    return Contraction(side(x, rows, summed), side(y, summed, columns), side(out, rows, columns))


def fold(t: Any, side: Side) -> Any:
    """The matrix, or batch of matrices, that a tensor is."""
    t = (t if side.order is None else t.permute(side.order)).reshape(side.sizes)
    return t.mT if side.turned else t


def unfold(x: Any, y: Any, side: Side) -> Any:
    """The tensor whose matrix is `x @ y`, computed as it lies in memory."""
    if side.turned:
        x, y = y.mT, x.mT
    found = (x.mm(y) if len(side.sizes) == 2 else x.bmm(y)).view(side.unfolded)
    return found if side.back is None else found.permute(side.back)


def product_of(equation: str, x: Any, y: Any) -> Contraction | None:
    """The product of matrices that computes a call which nothing records, if there is one."""
    if type(x) in TENSORS and type(y) in TENSORS and thread_state.get_recording() is None:
        return contraction(equation, x.shape, y.shape)
    return None


def contract(equation: str, x: Any, y: Any) -> Any:
    """`einsum` of two operands; by the kernel that it ends in, where nothing records the call."""
    how = product_of(equation, x, y)
    return einsum(equation, (x, y)) if how is None else unfold(fold(x, how.x), fold(y, how.y), how.out)


define("einsum", "*tensors, equation='', path=None", VARIADIC | PURE | OTHERS, "torch._VF.einsum", bind=bind_einsum,
       joint=einsum_back,
       forward=lambda *tensors, equation, path: torch.einsum(equation, *tensors))
