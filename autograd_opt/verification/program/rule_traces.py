"""A gradient rule as a template: what it does, traced once per signature.

A rule of the operator table runs on traces once per signature (operator, attributes, types,
which operands want a cotangent); the backward sweep is the templates, one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from autograd_opt.abi import torch_private as private
from autograd_opt.graph import thread_state
from autograd_opt.verification.program.attribute_encoding import encode
from autograd_opt.verification.program.calls import Untraceable
from autograd_opt.verification.program.instructions import Head, Vocabulary
from autograd_opt.verification.program.tracer import Tracer

EXTRA, RESULTS, TURNED = 9, 12, 192
PRIVATE = {7, 8, EXTRA, RESULTS}
"""Argument codes of rules that read the run or the node itself: nothing here can trace those."""


@dataclass(frozen=True, slots=True)
class Template:
    """What a rule does: steps over the environment [g or its parts, ans, operands..., earlier steps]."""

    steps: tuple[tuple[int, tuple[int, ...]], ...]
    results: tuple[tuple[int, int], ...]

    def numbered(self, given: Iterable[int], table: dict[Any, int], commutes: Collection[int] = ()) -> dict[int, int]:
        """Equal numbers for equal computations of each operand's cotangent, from those of what the rule reads."""
        numbers = list(given)
        for head, refs in self.steps:
            reads = [numbers[r] for r in refs]
            key = head, *(sorted(reads) if head in commutes and len(reads) == 2 else reads)
            numbers.append(table.setdefault(key, len(table)))
        return {k: numbers[position] for k, position in self.results}


def laid_out(op: Any) -> bool:
    """Is a rule told how operands lie in memory?"""
    return any(code >= TURNED for vjp in (*op.vjps, op.joint) if vjp is not None for code in vjp.codes)


class Parts:
    """The cotangents of a node with several outputs, as its rule sees them."""

    __slots__ = ("parts",)

    def __init__(self, parts: list[Any]):
        self.parts = parts


def arguments(
    vjp: Any,
    op: Any,
    head: Head,
    types: Sequence[int | None],
    needs: Sequence[bool],
    g: Any,
    ans: Callable[[], Any],
    operand: Callable[[int], Any],
    tracer: Tracer,
    kept: Callable[[], Any] | None = None,
) -> tuple[list[Any], dict[str, Any]]:
    """What a rule is called with, by its argument codes."""
    vocabulary = tracer.vocabulary

    def metadata(t: int | None) -> tuple[Any, Any]:
        if t is None:
            return (), None
        shape, dtype, _, _ = vocabulary.types[t]
        return torch.Size(shape or ()), getattr(torch, dtype) if dtype else None

    args = [g]
    parts_of_type = vocabulary.types[head.type].parts
    for code in vjp.codes:
        if code in (EXTRA, RESULTS) and kept is not None:
            args.append(kept() if code == EXTRA else kept()[-len(parts_of_type):])
            continue
        if code in PRIVATE:
            raise Untraceable(f"the rule of {op.name} is private")
        if code >= TURNED:
            args.append(tracer.turned and len(metadata(types[code - TURNED])[0]) == 2)
        elif code >= 128:
            args.append(metadata(types[code - 128])[1])
        elif code >= 64:
            args.append(metadata(types[code - 64])[0])
        elif code >= 16:
            args.append(operand(code - 16))
        elif code == 1:
            args.append(ans())
        elif code == 2:
            parts = tuple([None if p is None else (*metadata(p), torch.device("meta")) for p in parts_of_type])
            args.append(parts or metadata(head.type)[0])
        elif code == 3:
            args.append(tuple(needs))
        elif code == 4:
            args.append([metadata(t)[0] for t in types])
        elif code == 5:
            args.append([operand(k) for k in range(len(types))])
        elif code == 10:
            args.append([None if k == 0 else operand(k) for k in range(len(types))])
        elif code == 6:
            args.append(getattr(torch, vocabulary.types[head.type].dtype))
        else:
            raise Untraceable(f"argument code {code}")
    values = head.values() if vjp.attributes else {}
    return tracer.given(args, {a: values.get(a, op.attributes.get(a)) for a in vjp.attributes})


VIEWS = {
    "view_region": ("view_embed",),
    "view_erase": ("view_erase",),
    "view_embed": ("view_region",),
    "view_place": ("view_erase", "view_region"),
    "as_strided": ("view_embed",),
    "erase_index": ("erase_index",),
}
"""Writes through views: each one's rule is another of them, with the node's own geometry."""


def through_views(
    vocabulary: Vocabulary, op: Any, head: Head, types: Sequence[int | None], needs: Sequence[bool]
) -> Template:
    """The rule of a write through a view, which works in place and so cannot be traced."""
    steps: list[tuple[int, tuple[int, ...]]] = []
    results: list[tuple[int, int]] = []
    for k in range(len(types) - 1, -1, -1):
        kind = types[k]
        if needs[k] and kind is not None:
            results.append((k, 2 + len(types) + len(steps)))
            steps.append((vocabulary.head(VIEWS[op.name][k], head.attributes, kind), (0,)))
    return Template(tuple(steps), tuple(results))


def through_item(
    vocabulary: Vocabulary, head: Head, types: Sequence[int | None], needs: Sequence[bool]
) -> Template:
    """The rule of `x[index] = value`: the cotangent with g[index] zero, and g[index], summed where value broadcasts."""
    steps: list[tuple[int, tuple[int, ...]]] = []
    results: list[tuple[int, int]] = []
    index = tuple([(k, text) for k, text in head.attributes if k == "index"])

    def step(name: str, attributes: Any, type: int, operand: int) -> int:
        steps.append((vocabulary.head(name, attributes, type), (operand,)))
        return 1 + len(types) + len(steps)

    kind = types[1] if len(types) > 1 else None
    if kind is not None and needs[1]:
        whole, part = vocabulary.types[head.type], vocabulary.types[kind]
        with recording_paused():
            shape = tuple(torch.empty(whole.shape or (), device="meta")[head.value("index")].shape)
        at = step("slice", index, vocabulary.intern(whole._replace(shape=shape)), 0)
        narrow = (1,) * (len(part.shape or ()) - len(shape)) + shape
        if narrow != shape:
            at = step("reshape", (("shape", encode(narrow)),), vocabulary.intern(whole._replace(shape=narrow)), at)
        if narrow != part.shape:
            size = (("size", encode(part.shape)),)
            at = step("sum_to_size", size, vocabulary.intern(whole._replace(shape=part.shape)), at)
        if whole.dtype != part.dtype:
            raise Untraceable("a value of another dtype is written")
        results.append((1, at))
    if needs[0] and types[0] is not None:
        results.append((0, step("erase_index", index, types[0], 0)))
    return Template(tuple(steps), tuple(results))


def trace_rule(
    vocabulary: Vocabulary,
    op: Any,
    head: Head,
    types: Sequence[int | None],
    needs: Sequence[bool],
    parts: Sequence[bool] | None = None,
    tracer: Callable[[Vocabulary, int, str], Tracer] = Tracer,
    kept: Callable[..., Any] | None = None,
) -> Template:
    """Run the rules of one signature, on the traces of such a tracer.

    `kept` makes what the operator's kernel has kept for its rule, of the operands and attributes: for lemmas.

    Environment of the template: the cotangent (or one place per part), the output, the
    operands in order (absent ones too), then the steps.

    Raises
    ------
    Untraceable : the rule looks at values, draws random numbers, or reads the run itself.
    """
    if op.name in VIEWS:
        return through_views(vocabulary, op, head, types, needs)
    if op.name == "setitem":
        return through_item(vocabulary, head, types, needs)
    first = 1 if parts is None else len(parts)
    result = vocabulary.types[head.type]
    device = result.device or next(vocabulary.types[p].device for p in result.parts if p is not None)
    above = tracer(vocabulary, first + 1 + len(types), device)
    numbers = head.values() if None in types else {}

    def operand(k: int) -> Any:
        if k >= len(types):
            raise Untraceable("the rule reads what its kernel kept beside the result")
        t = types[k]
        if t is None:
            name = op.operands[k] if k < len(op.operands) else f"#{k}"
            return above.number(name, numbers.get(name))
        return above.value(t, first + 1 + k)

    def ans() -> Any:
        if vocabulary.types[head.type].shape is None:
            raise Untraceable("the rule reads several outputs at once")
        return above.value(head.type, first)

    def g() -> Any:
        if parts is None:
            return above.value(head.type, 0)
        return Parts([above.value(result.parts[k], k) if there else None for k, there in enumerate(parts)])

    def extra() -> Any:
        assert kept is not None
        return kept(*[operand(k) for k in range(len(types))], **{**op.attributes, **{
            k: v for k, v in head.values().items() if k in op.attributes}})

    more = extra if kept is not None else None
    results: list[tuple[int, int]] = []
    with recording_paused(), above:
        if op.joint is not None:
            args, kwargs = arguments(op.joint, op, head, types, needs, g(), ans, operand, above, more)
            found = list(op.joint.fn(*args, **kwargs) or ())
            pairs = [(k, found[k] if k < len(found) else None) for k in range(len(types) - 1, -1, -1) if needs[k]]
            for k, value in pairs:
                settle(above, vocabulary, results, k, types[k], value)
        else:
            for k in range(len(types) - 1, -1, -1):
                if not needs[k] or k >= len(op.vjps) or op.vjps[k] is None:
                    continue
                args, kwargs = arguments(op.vjps[k], op, head, types, needs, g(), ans, operand, above, more)
                settle(above, vocabulary, results, k, types[k], op.vjps[k].fn(*args, **kwargs))
    return Template(tuple(above.steps), tuple(results))


def settle(
    tracer: Tracer, vocabulary: Vocabulary, results: list[tuple[int, int]], k: int, type: Any, value: Any
) -> None:
    """The edge rule: bring a cotangent to its operand's shape and dtype."""
    if value is None:
        return
    shape, dtype, _, _ = vocabulary.types[type]
    value = tracer.taken(value)
    if value is None:
        raise Untraceable("the rule returns something that is not traced")
    if shape is not None:
        with private.DisableTorchFunction():            # not asked of the tracer, which would only hand it on
            found, kind = tuple(value.shape), value.dtype
        if found != shape:
            value = value.sum_to_size(shape)
        wanted = getattr(torch, dtype)
        if kind != wanted:
            if value.is_complex() and not wanted.is_complex:
                value = value.real
            value = value.to(wanted)
    results.append((k, value.position))


@contextmanager
def recording_paused() -> Iterator[None]:
    """No active graph sees what happens here."""
    old = thread_state.pause()
    try:
        yield
    finally:
        thread_state.resume(old)
