"""Further instances of an operator, drawn from those that are written down: every branch that a rule might take.

Ranks 0 to 4, sizes 1, even and odd, axes counted from either end, kept or not, operands below 0 where the operator is
defined there, other values of each attribute, and the other floating dtypes.  What a rule is traced to at a drawn
instance is mostly what it was traced to at a written one: sympy is asked again only where it is another program.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from autograd_opt.ops.table import OPS
from autograd_opt.verification.counterexample.prime_field import Field
from autograd_opt.verification.lemmas.cases import CASES, FURTHER, NEGATIVE_TOO, Case
from autograd_opt.verification.lemmas.claims import coded, forward, instance, wanted
from autograd_opt.verification.lemmas.pointwise import acts_on_elements
from autograd_opt.verification.lemmas.watched import Asked, Repeated, Turned, Watching, around
from autograd_opt.verification.program.attribute_encoding import encode
from autograd_opt.verification.program.calls import Untraceable
from autograd_opt.verification.program.instructions import Head
from autograd_opt.verification.program.kernels import KEPT
from autograd_opt.verification.program.rule_traces import Template, trace_rule
from autograd_opt.verification.program.tracer import Tracer
from autograd_opt.verification.semantics.domain import Outside, TooLarge

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
SHAPES = ((), (1,), (3,), (4,), (2, 1), (1, 2), (2, 2), (2, 1, 1), (1, 1, 2), (1, 2, 2),
          (2, 1, 1, 1), (1, 1, 1, 2), (1, 1, 2, 2))
"""Of operators on single elements; few elements, for sympy is asked where a rule looks at them."""
AXES = ("dim", "dims", "dim0", "dim1", "source", "destination")
LEADING = frozenset(
    """sum mean logsumexp var std cumsum cumprod softmax log_softmax amax amin glu cat stack flip roll select narrow
    unsqueeze squeeze index_select unbind chunk split split_with_sizes movedim transpose vector_norm prod""".split())
"""Operators along an axis: those before it change nothing."""
SIZED = frozenset(
    """shape size sizes normalized_shape num_groups split_size split_sizes chunks length index equation stride start
    end""".split())
"""Attributes that have to agree with sizes."""
FIXED = frozenset("glu glu_backward T t mT mH H".split())
"""Operators of one shape."""
SPREAD = frozenset("var std var_mean std_mean".split())
"""Operators that have no value of a single element."""
KINKED = frozenset(
    """abs relu leaky_relu leaky_relu_ hardtanh relu6 hardsigmoid softshrink elu elu_ celu celu_ selu selu_ softplus
    threshold prelu_kernel maximum minimum clamp_min clamp_max clamp amax amin max_all min_all smooth_l1_loss huber_loss
    threshold_backward leaky_relu_backward elu_backward softplus_backward hardswish_backward logit_backward
    smooth_l1_loss_backward huber_loss_backward binary_cross_entropy_backward""".split())
"""Operators whose derivative is another one in parts: each element doubles or triples the cases."""
LARGEST_KINKED = 2
LARGEST = 12
"""Elements of a drawn operand, at most."""


def cases_of(op: str, asked: Asked | None = None) -> Iterator[Case]:
    """The written instances of an operator, those that are drawn from them, and those that its rules have asked for."""
    given = (*CASES[op], *FURTHER.get(op, ()))
    written = tuple(dict.fromkeys((*given, *(c for case in given for c in resized(op, case)))))
    yield from written
    seen = set(map(repr, written))
    for case in written:
        for other in (*reshaped(op, case), *axes(op, case), *signs(op, case), *dtypes(case), *needed(op, case)):
            if repr(other) not in seen:
                seen.add(repr(other))
                yield other
    telling = (*given, *(c for case in given if single(case) for c in resized(op, case)))
    for case in answers(op, telling, asked) if asked is not None else ():
        if repr(case) not in seen:
            seen.add(repr(case))
            yield case


def single(case: Case) -> bool:
    """True if no operand has two elements, whose exchange a change might be."""
    return all(np.prod(s, dtype=int) <= 1 for s in case.shapes if s is not None)


def answers(op: str, written: tuple[Case, ...], asked: Asked) -> Iterator[Case]:
    """Attributes on both sides of the constants that rules compare them with, where the operator has a meaning."""
    defaults = OPS[op].attributes
    for name, constants in list(asked.constants.items()):
        for case in written:
            old = case.attributes.get(name, defaults.get(name))
            if type(old) not in (int, float) or (name not in defaults and name not in case.attributes):
                continue
            for constant in constants:
                for value in around(constant):
                    drawn = float(value) if type(old) is float else int(value)
                    other = replace(case, attributes={**case.attributes, name: drawn})
                    if encode(drawn) == encode(old) or (elements := elements_of(op, other)) is None:
                        continue
                    if not elements:         # right or wrong, a rule gives nothing there
                        asked.opaque.add(f"{name} with {constant}, where no instance has a value")
                    yield other


def elements_of(op: str, case: Case) -> int | None:
    """How many elements of the value are not 0 there; None where the operator has none."""
    try:
        value = evaluated(op, case)[3]
    except Exception:  # whatever a meaning does with an attribute that torch refuses
        return None
    return sum(map(np.count_nonzero, value if isinstance(value, tuple) else (value,)))


def resized(op: str, case: Case) -> Iterator[Case]:
    """One of the sizes is 1 everywhere, or 2, where the operator has a value of the same ranks."""
    sizes = sorted({n for s in case.shapes if s for n in s})
    if case.values or SIZED & case.attributes.keys() or op in FIXED:
        return
    for size, other in ((n, m) for n in sizes for m in (1, 2) if n != m):
        shapes = tuple([s and tuple([other if n == size else n for n in s]) for s in case.shapes])
        drawn = replace(case, shapes=shapes)
        elements = [np.prod(s, dtype=int) for s in shapes if s is not None]
        most = LARGEST_KINKED if op in KINKED else LARGEST
        if max(elements) <= most and (other > 1 or op not in SPREAD) and elements_of(op, drawn):
            yield drawn


def reshaped(op: str, case: Case) -> Iterator[Case]:
    """Other ranks and sizes of an operator on single elements, whose operands are of one shape."""
    shapes = {s for s in case.shapes if s is not None}
    if len(shapes) != 1 or len(next(iter(shapes))) != 1 or case.values:
        return
    vocabulary, types, _ = instance(op, case)
    kinds = [t for t in types if t is not None]
    if acts_on_elements(vocabulary, Head(op, coded(op, case.attributes), kinds[0], True, 0), kinds):
        for shape in SHAPES:
            yield replace(case, shapes=tuple([None if s is None else shape for s in case.shapes]))


def axes(op: str, case: Case) -> Iterator[Case]:
    """Axes counted from the end, one more in front, kept or not."""
    rank = max((len(s) for s in case.shapes if s is not None), default=0)
    rank += op in ("unsqueeze", "stack")
    named = {k: v for k, v in case.attributes.items() if k in AXES and op != "tile" and "shape" not in case.attributes}

    def shift(v: Any, by: int) -> Any:
        return tuple([d + by for d in v]) if isinstance(v, (tuple, list)) else v + by

    if named and all(d >= 0 for v in named.values() for d in (v if isinstance(v, (tuple, list)) else (v,))):
        yield replace(case, attributes={**case.attributes, **{k: shift(v, -rank) for k, v in named.items()}})
        for front in ((1,), (2,), (1, 1), (2, 1)) if op in LEADING and not case.values else ():
            shapes = tuple([None if s is None else (*front, *s) for s in case.shapes])
            if rank + len(front) <= 4 and all(s is None or np.prod(s) <= LARGEST for s in shapes):
                moved = {k: shift(v, len(front)) for k, v in named.items()}
                yield replace(case, shapes=shapes, attributes={**case.attributes, **moved})
    if "keepdim" in OPS[op].attributes:
        yield replace(case, attributes={**case.attributes, "keepdim": not case.attributes.get("keepdim", False)})


def signs(op: str, case: Case) -> Iterator[Case]:
    """Operands below 0, where the operator is defined there."""
    for k in NEGATIVE_TOO.get(op, ()):
        if k in case.positive:
            yield replace(case, positive=tuple([p for p in case.positive if p != k]), negative=(k,))


def needed(op: str, case: Case) -> Iterator[Case]:
    """Single operands that want a cotangent, of a rule that is told which."""
    joint = OPS[op].joint
    able = [k for k, s in enumerate(case.shapes) if s is not None and k not in case.values]
    if joint is not None and case.needs is None and len(able) > 1:
        for k in able:
            yield replace(case, needs=(k,))


def dtypes(case: Case) -> Iterator[Case]:
    if not any(isinstance(v, torch.dtype) for v in case.attributes.values()):
        for dtype in DTYPES:
            yield replace(case, dtype=dtype)


def evaluated(op: str, case: Case) -> tuple[Any, Any, Any, Any]:
    """Vocabulary, types, head and value of an instance, in whole numbers."""
    vocabulary, types, args = instance(op, case)
    D = Field(1, 1 << 20)
    numbers = [D.array(np.arange(a.size) + 3 + LARGEST * k, a.shape) if a is not None and a.dtype == object else a
               for k, a in enumerate(args)]
    return vocabulary, types, *forward(D, op, case, vocabulary, types, numbers)


def trace_of(op: str, case: Case, asked: Asked) -> Any:
    """What the rule is traced to, without the names of dtypes, and of shapes where it works element by element.

    None where that cannot be told without sympy.

    Raises
    ------
    Outside : the rule is another one where operands are one tensor, or torch is set otherwise.
    """
    try:
        vocabulary, types, head, value = evaluated(op, case)
        parts = [True] * len(value) if isinstance(value, tuple) else None

        def traced(tracer: Callable[..., Tracer]) -> Template:
            return trace_rule(vocabulary, OPS[op], head, types, wanted(case, types), parts, tracer, KEPT.get(op))

        template, turned = traced(Tracer), traced(Turned)
        before = len(parts or [0]) + 1
        one = {before + k: before + types.index(t) for k, t in enumerate(types) if t is not None}
        if traced(functools.partial(Watching, asked)) != template:
            raise Unlike("the rule asks whether numbers are of just Python's types")
        for said, found in elsewhere(traced, one, op in KEPT):
            if found != (template if said else repeated(template, one)):
                raise Unlike(f"the rule is another one {said or 'where operands are one tensor'}")
    except Unlike:
        raise
    except (Outside, TooLarge, Untraceable, TypeError, ValueError, LookupError, RuntimeError, ZeroDivisionError):
        return None
    kinds = [*([head.type] if parts is None else vocabulary.types[head.type].parts), head.type, *types]
    single, steps = parts is None and turned == template, []
    for number, refs in (*template.steps, *(turned.steps if turned != template else ())):
        inner = vocabulary.heads[number]
        single = single and acts_on_elements(vocabulary, inner, [kinds[r] for r in refs])
        attributes = tuple([(k, "d" if text.startswith("dtorch.") else text) for k, text in inner.attributes])
        steps.append((inner.op, attributes, vocabulary.types[inner.type].shape, refs))
        kinds.append(inner.type)
    if single and acts_on_elements(vocabulary, head, [t for t in types if t is not None]):
        return True, case.negative, tuple([(o, a, r) for o, a, _, r in steps]), template.results, len(types)
    return False, case.negative, case.shapes, repr(case.attributes), tuple(steps), template.results, turned.results


class Unlike(Outside):
    """A rule is a function of more than its arguments' values, shapes and dtypes."""


def elsewhere(traced: Callable[..., Template], one: dict[int, int], kept: bool) -> Iterator[tuple[str, Template]]:
    """The rule where operands are one tensor (said so by no words), and where torch is set otherwise."""
    yield "", traced(functools.partial(Repeated, one))
    if not kept:
        with torch.set_grad_enabled(not torch.is_grad_enabled()):
            yield "where gradients are recorded", traced(Tracer)
    before = torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled()
    try:
        torch.set_default_dtype(torch.float64 if before[0] is torch.float32 else torch.float32)
        torch.use_deterministic_algorithms(not before[1])
        yield "where torch's default dtype or determinism is another", traced(Tracer)
    finally:
        torch.set_default_dtype(before[0])
        torch.use_deterministic_algorithms(before[1])


def repeated(template: Template, one: dict[int, int]) -> Template:
    """The template with the first of equal places for all of them."""
    return Template(tuple([(h, tuple([one.get(r, r) for r in refs])) for h, refs in template.steps]),
                    tuple([(k, one.get(p, p)) for k, p in template.results]))
