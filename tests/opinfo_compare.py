"""One sample of torch's database of operators, by this library and by torch eager.

A sample passes where values, gradients, which gradients are absent, and the inputs afterwards
are torch's: float64 within 1e-7 relative and 1e-9 absolute.  Two differences are roundings, and
are told apart: a tensor of lower precision whose error, measured against torch in float64, is
within twice torch's own (the largest on this input and on copies of it that are moved by a unit in
the last place) and two units in the last place of its largest element; and, in the entries of
ILL_CONDITIONED alone, a difference within twice of what torch's own result moves by when its inputs
move like that, and any where torch's own is above 4.5e13, of inputs near 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from tests import opinfo_layouts, opinfo_runner

TOLERANCE = {torch.float64: (1e-7, 1e-9), torch.complex128: (1e-7, 1e-9), torch.float32: (1e-4, 1e-5),
             torch.complex64: (1e-4, 1e-5)}
ROUGH = (1e-2, 1e-3)
WIDE = {torch.float16: torch.float64, torch.bfloat16: torch.float64, torch.float32: torch.float64,
        torch.complex32: torch.complex128, torch.complex64: torch.complex128}
ILL_CONDITIONED = {
    ("svd_lowrank", 2, "complex128"), ("pca_lowrank", 2, "complex128"),
    *((name, order, "float64") for name in ("svd", "linalg.svd", "svd_lowrank", "pca_lowrank") for order in (1, 2)),
}
"""(entry, order, dtype) whose numbers are not determined to seven digits: the orthogonal basis of nearly
dependent columns, differentiated twice, or, where a matrix is expanded, of equal ones."""
Bound = Callable[[int, int], float | None]
DRAWS = 8
"""How many times the inputs are moved."""


@dataclass(frozen=True)
class Setting:
    """One way of running the samples."""

    order: int = 1
    optimize: bool = True
    twice: bool = True
    variant: str = "function"
    dtype: str = "float64"
    samples: int = 0
    """At most so many an entry, spread over all; 0 for all."""
    autocast: bool = False
    """Are calls made under autocast to bfloat16?"""
    layouts: int | None = None
    """How many other layouts each operand is given, and the cotangents; 0 for all, None for those of the samples."""
    kinks: str = ""
    """Which numbers of `tests/opinfo_kinks.py` replace those of the samples; none by default."""
    cotangents: str = "random"
    """`random`; `ones`; `same`, where a call made twice gets one cotangent twice; `zeros`, half of it 0.

    Of different ones a sum is taken before or after the rule, which is not the same at infinite slopes.
    """

    @property
    def name(self) -> str:
        words = [f"order{self.order}", "optimize" if self.optimize else "plain", "twice" if self.twice else "once",
                 self.variant, self.dtype, f"{self.samples or 'all'}", *(["autocast"] if self.autocast else []),
                 *([] if self.layouts is None else [f"layouts_{self.layouts or 'all'}"]),
                 *([f"kinks-{self.kinks}"] if self.kinks else [])]
        return "-".join(words)


@dataclass(frozen=True)
class Outcome:
    """What came of a sample: `passed`, `rounding`, `failed`, or `skipped` where there is nothing to compare."""

    kind: str
    why: str = ""
    strides: str = ""
    """What lies in memory otherwise than torch's, of the same numbers."""


# ----- the same call by torch -----
class Cotangents:
    """`cot(i, t)`: fixed numbers for tensor `i` of the output, None where torch has no gradient for it."""

    def __init__(self, wanted: list[bool] | None = None, requires_grad: bool = False, seed: int = 0, kind: str = "",
                 fill: str = "random"):
        self.wanted, self.requires_grad, self.seed, self.kind, self.fill = wanted, requires_grad, seed, kind, fill
        self.alike = fill != "random"
        self.made: dict[int, torch.Tensor] = {}

    def changed(self, change: Callable[[Any], Any]) -> Cotangents:
        """Others, of changed numbers."""
        other = Cotangents(None, self.requires_grad, self.seed, self.kind)
        other.made = change(self.made)
        return other

    def __call__(self, i: int, t: torch.Tensor) -> torch.Tensor | None:
        if (self.wanted is not None and not self.wanted[i]) or not (t.is_floating_point() or t.is_complex()):
            return None
        if i not in self.made:
            with torch.no_grad():
                wide = torch.complex128 if t.is_complex() else torch.float64
                generator = torch.Generator().manual_seed(1000 * self.seed + (0 if self.alike else i))
                numbers = torch.rand(t.shape, generator=generator, dtype=wide) + 0.5
                signs = torch.rand(t.shape, generator=generator) < 0.3
                c = torch.where(signs, -numbers, numbers).to(t.dtype)
                if self.fill == "ones":
                    c = torch.ones_like(c)
                elif self.fill == "zeros":
                    c = torch.where(torch.rand(t.shape, generator=generator) < 0.5, 0.0, c)
                c = opinfo_layouts.laid(c, self.kind)
            dense = t.layout is torch.strided
            self.made[i] = c.requires_grad_(self.requires_grad) if dense else c.to_sparse(layout=t.layout)
        return self.made[i]

    def leaves(self) -> list[torch.Tensor]:
        return [self.made[i] for i in sorted(self.made) if self.made[i].requires_grad]


def copies(tree: Any) -> Any:
    """Independent leaves of the same values, shapes in memory and flags; one tensor twice stays one."""
    known: dict[int, torch.Tensor] = {}

    def copy(t: Any) -> Any:
        if not isinstance(t, torch.Tensor):
            return t
        if id(t) not in known:
            d = t.detach()
            known[id(t)] = (d.clone() if d.layout is not torch.strided or d.is_conj() or d.is_neg() else
                            torch.empty(0, dtype=d.dtype).set_(d.untyped_storage().clone(), d.storage_offset(),
                                                              d.shape, d.stride())).requires_grad_(t.requires_grad)
        return known[id(t)]
    return tree_map(copy, tree)


def eager(function: Any, args: Any, kwargs: Any, cot: Any, cot2: Any, order: int) -> list[list[Any]]:
    """[outputs, gradients, gradients of gradients] by torch."""
    leaves = opinfo_runner.leaves_of(args, kwargs)
    out = function(*args, **kwargs)
    tensors = opinfo_runner.tensors(out)
    cot.wanted = [bool(t.requires_grad) for t in tensors]
    roots, given = opinfo_runner.wanted(out, cot)
    if not roots:
        return []
    found = torch.autograd.grad(roots, leaves, given, allow_unused=True, create_graph=order == 2)
    if order == 1:
        return [tree_leaves(out), list(found)]
    every = leaves + cot.leaves()
    cot2.wanted = [g is not None and g.requires_grad for g in found]
    pairs = [(g, cot2(i, g)) for i, g in enumerate(found) if g is not None and g.requires_grad]
    if not pairs:
        return []
    second = torch.autograd.grad([g for g, _ in pairs], every, [c for _, c in pairs], allow_unused=True)
    return [tree_leaves(out), list(found), list(second)]


# ----- what is the same -----
def tolerance(dtype: torch.dtype) -> tuple[float, float]:
    return TOLERANCE.get(dtype, ROUGH)


def numbers(t: torch.Tensor) -> torch.Tensor:
    """The elements, dense and detached."""
    return t.detach().to_dense() if t.layout is not torch.strided else t.detach().resolve_conj().resolve_neg()


def difference(mine: Any, theirs: Any, what: str, bound: float | None = None) -> str | None:
    """Why two leaves of a result are not the same; `bound` replaces the tolerance."""
    if not isinstance(theirs, torch.Tensor) or not isinstance(mine, torch.Tensor):
        same = mine is theirs or (type(mine) is type(theirs) and (mine == theirs or mine != mine))
        return None if same else f"{what}: {mine!r:.60} is not {theirs!r:.60}"
    for name in ("shape", "dtype", "layout"):
        if getattr(mine, name) != getattr(theirs, name):
            return f"{what}: {name} {getattr(mine, name)}, torch has {getattr(theirs, name)}"
    a, b = numbers(mine), numbers(theirs)
    if not (b.is_floating_point() or b.is_complex()):
        return None if torch.equal(a, b) else f"{what}: other values"
    rtol, atol = tolerance(b.dtype) if bound is None else (0.0, bound)
    close = torch.isclose(a, b, rtol=rtol, atol=atol, equal_nan=True)
    if bool(close.all()):
        return None
    worst = float((a - b).abs()[~close].nan_to_num(float("inf")).max())
    return f"{what}: {int((~close).sum())} of {b.numel()} elements differ, by up to {worst:.1e}"


NAMES = ("output", "gradient", "second gradient", "input afterwards")


def differences(mine: Any, theirs: Any, bound: Bound | None = None) -> list[str]:
    """Every difference; `bound(level, k)` allows more for one leaf."""
    found = []
    for level, (a, b) in enumerate(zip(mine, theirs, strict=True)):
        name = NAMES[level]
        if len(a) != len(b):
            return [f"{name}: {len(a)} leaves, torch has {len(b)}"]
        for k, (x, y) in enumerate(zip(a, b, strict=True)):
            why = difference(x, y, f"{name} {k}")
            if why and bound is not None and (allowed := bound(level, k)) is not None:
                why = difference(x, y, f"{name} {k}", allowed)
            found += [why] if why else []
    return found


def strides(t: Any) -> Any:
    """How a tensor lies, axes of one element left out."""
    if not isinstance(t, torch.Tensor) or t.layout is not torch.strided or not t.numel():
        return None
    return tuple(step for step, length in zip(t.stride(), t.shape, strict=True) if length > 1)


def other_strides(mine: Any, theirs: Any) -> str:
    """The first tensor that lies otherwise than torch's."""
    for name, a, b in zip(NAMES, mine, theirs, strict=False):
        for k, (x, y) in enumerate(zip(a, b, strict=True)):
            if strides(x) != strides(y):
                return f"{name} {k} of {tuple(y.shape)}: {strides(x)}, torch has {strides(y)}"
    return ""


# ----- what is rounding -----
def widened(tree: Any) -> Any:
    """The same numbers in float64, leaves still leaves."""
    def wide(t: Any) -> Any:
        if isinstance(t, torch.dtype):
            return WIDE.get(t, t)
        if not isinstance(t, torch.Tensor) or t.dtype not in WIDE:
            return t
        return t.detach().to(WIDE[t.dtype]).requires_grad_(t.requires_grad)
    return tree_map(wide, tree)


def moved(tree: Any, seed: int) -> Any:
    """Every element up or down by a unit in its last place, or as it is."""
    generator = torch.Generator().manual_seed(seed)

    def move(t: Any) -> Any:
        if not isinstance(t, torch.Tensor) or not (t.is_floating_point() or t.is_complex()):
            return t
        step = torch.randint(-1, 2, t.shape, generator=generator).to(t.dtype) * torch.finfo(t.dtype).eps
        return (t.detach() * (1 + step)).requires_grad_(t.requires_grad)
    return tree_map(move, tree)


def largest(t: torch.Tensor, minus: torch.Tensor | None = None) -> float:
    """The largest finite element, or difference of elements."""
    found = numbers(t) if minus is None else numbers(t) - numbers(minus)
    found = found[found.isfinite()].abs()
    return float(found.max()) if found.numel() else 0.0


@dataclass
class Reference:
    """A sample computed by torch."""

    function: Callable[..., Any]
    given: tuple[Any, dict[str, Any]]
    order: int
    step: float = 0.0
    """The unit in the last place of 1 in the lowest precision that is used, where that is not the tensor's own."""
    kind: str = ""
    """How cotangents lie."""
    fill: str = "random"
    """Which numbers cotangents have."""

    def cotangents(self, wanted: list[bool] | None = None, seed: int = 0) -> Cotangents:
        """Those of the first derivative, and by another seed of the second."""
        fill = "random" if seed else self.fill
        return Cotangents(wanted, self.order == 2 and not seed, seed, self.kind, fill)

    def run(self, given: Any, cot: Cotangents | None = None, cot2: Cotangents | None = None) -> list[list[Any]]:
        """Outputs, gradients, inputs afterwards; empty where nothing is differentiable."""
        args, kwargs = copies(given)
        self.cot, self.cot2 = cot or self.cotangents(), cot2 or self.cotangents(seed=1)
        torch.default_generator.manual_seed(0)
        found = eager(self.function, args, kwargs, self.cot, self.cot2, self.order)
        return [*found, opinfo_runner.tensors((args, kwargs))] if found else []

    def by_precision(self, mine: list[list[Any]], theirs: list[list[Any]]) -> Bound:
        """For tensors of low precision: torch's own error in each, and that of the last place."""
        draws = [(self.given, self.cot, self.cot2)]
        for seed in range(DRAWS):
            def move(tree: Any, seed: int = seed) -> Any:
                return moved(tree, seed)
            draws.append((move(self.given), self.cot.changed(move), self.cot2.changed(move)))
        pairs = [(self.run(given, cot, cot2), self.run(widened(given), cot.changed(widened), cot2.changed(widened)))
                 for given, cot, cot2 in draws]
        truth = pairs[0][1]

        def bound(level: int, k: int) -> float | None:
            a, b, exact = mine[level][k], theirs[level][k], truth[level][k]
            if not isinstance(b, torch.Tensor) or b.dtype not in WIDE or not isinstance(exact, torch.Tensor):
                return None
            error = max(largest(low[level][k], high[level][k]) for low, high in pairs)
            allowed = 2 * error + 2 * max(torch.finfo(b.dtype).eps, self.step) * largest(exact)
            return 2 * allowed if largest(a, exact) <= allowed else None
        return bound

    def by_condition(self, theirs: list[list[Any]]) -> Bound:
        """For an ill-conditioned entry: what moves of the inputs move in torch's own result."""
        others = [self.run(moved(self.given, seed)) for seed in range(DRAWS)]

        def bound(level: int, k: int) -> float | None:
            b = theirs[level][k]
            if not isinstance(b, torch.Tensor):
                return None
            # the gradients of equal singular values, say
            noise = not all(float(t.abs().max()) < 0.01 / torch.finfo(torch.float64).eps
                            for run in (theirs, *others) for t in run[level] if isinstance(t, torch.Tensor))
            return math.inf if noise else 2 * max(largest(other[level][k], b) for other in others)
        return bound


# ----- the call of this library -----
def function_of(op: Any, sample: Any, setting: Setting) -> Callable[..., Any] | None:
    """The call that a setting asks for, or None where the sample has none."""
    body = {"function": op.get_op, "method": op.get_method, "inplace": op.get_inplace}[setting.variant]()
    if body is None or (not isinstance(sample.input, torch.Tensor) and setting.variant != "function"):
        return None
    if setting.variant == "inplace" and (sample.broadcasts_input or not op.supports_inplace_autograd):
        return None

    def once(x: Any, *args: Any, **kwargs: Any) -> Any:
        x = x.clone() if setting.variant == "inplace" else x
        with torch.autocast("cpu", torch.bfloat16, enabled=setting.autocast):
            return sample.output_process_fn_grad(op.gradcheck_wrapper(body, x, *args, **kwargs))

    def twice(*args: Any, **kwargs: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16, enabled=setting.autocast):      # one: casts of leaves are kept
            return once(*args, **kwargs), once(*args, **kwargs)

    return twice if setting.twice else once


def run_sample(op: Any, sample: Any, setting: Setting, kind: str = "") -> Outcome:
    """Compare one sample, with cotangents of a `kind` of layout."""
    function = function_of(op, sample, setting)
    if function is None:
        return Outcome("skipped")
    given = ((sample.input, *sample.args), sample.kwargs)
    step = torch.finfo(torch.bfloat16).eps if setting.autocast else 0.0
    torch_ = Reference(function, given, setting.order, step, kind, setting.cotangents)
    try:
        theirs = torch_.run(given)
        wanted, wanted2 = torch_.cot.wanted, torch_.cot2.wanted
        if not theirs:
            return Outcome("skipped", "not differentiable")
    except Exception as error:
        return Outcome("skipped", f"torch has no derivative here: {error}")
    args, kwargs = copies(given)
    cot = torch_.cotangents(wanted)
    torch.default_generator.manual_seed(0)
    try:
        if setting.order == 1:
            mine: tuple[Any, ...] = opinfo_runner.grads(function, args, kwargs, cot)
        else:
            mine = opinfo_runner.grads2(function, args, kwargs, cot, torch_.cotangents(wanted2, 1))
    except Exception as error:
        return Outcome("failed", f"{type(error).__name__}: {str(error)[:160]}")
    levels = [tree_leaves(mine[0]), *mine[1:], opinfo_runner.tensors((args, kwargs))]
    found = differences(levels, theirs)
    if not found:
        return Outcome("passed", strides="" if setting.layouts is None else other_strides(levels[:-1], theirs))
    if differences(torch_.run(given), theirs):
        return Outcome("skipped", "torch's own result varies")
    why = "; ".join(found[:2])
    try:
        bound = (torch_.by_condition(theirs) if (op.full_name, setting.order, setting.dtype) in ILL_CONDITIONED else
                 torch_.by_precision(levels, theirs))
        rounding = not differences(levels, theirs, bound)
    except Exception:                        # no such call in float64
        rounding = False
    return Outcome("rounding" if rounding else "failed", why)
