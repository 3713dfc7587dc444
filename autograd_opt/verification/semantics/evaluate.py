"""Running programs over a number domain: one instruction, and all that some positions need."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from autograd_opt.ops.table import OPS, USERS
from autograd_opt.verification.program.calls import Untraceable
from autograd_opt.verification.program.instruction_names import CONSTANT, FULL, MERGED, PULLBACK, WORDS
from autograd_opt.verification.program.instructions import Head, Program, Vocabulary
from autograd_opt.verification.program.kernels import KERNELS
from autograd_opt.verification.program.rule_traces import recording_paused
from autograd_opt.verification.program.tracer import Tracer
from autograd_opt.verification.program.user_rules import ran
from autograd_opt.verification.semantics.domain import Array, Domain, Outside
from autograd_opt.verification.semantics.operators import MEANING, PULLBACKS
from autograd_opt.verification.semantics.real_numbers import require_real


def known(op: str) -> bool:
    """Has the operator a meaning of its own, or one in the operator table?"""
    return op in MEANING or (op in OPS and OPS[op].meaning is not None)


def apply(D: Domain, vocabulary: Vocabulary, head: Head, args: Sequence[Array], types: Sequence[int]) -> Any:
    """The value of one instruction."""
    if head.unread:
        raise Outside(f"{head.op} has an attribute that cannot be read")
    require_real(vocabulary, head, types)
    if head.op == FULL:
        return D.array(head.value("value"), vocabulary.types[head.type].shape or ())
    if head.op == CONSTANT:
        return constant(D, head, vocabulary)
    if head.op == PULLBACK:
        return kernel(D, vocabulary, head, args, types)
    if head.op in MEANING:
        shape = vocabulary.types[head.type].shape
        operands, values = placed(head, args, lambda value: shape if value == "zeros" else D.number(value))
        return MEANING[head.op](D, *operands, **values)
    table = OPS.get(head.op)
    if table is not None and table.meaning is not None:
        return by_formula(D, vocabulary, table.meaning, head, table, args, types)
    raise Outside(f"{head.op} has no meaning")


def placed(head: Head, args: Sequence[Any], number: Callable[[Any], Any]) -> tuple[list[Any], dict[str, Any]]:
    """The operands in their places, `number` of those that are attributes included; and the other attributes."""
    values = head.values()
    names = OPS[head.op].operands if head.op in OPS else WORDS[head.op][0] if head.op in WORDS else ()
    rest, operands = iter(args), []
    for n in names:
        if n in values:
            value = values.pop(n)
            operands.append(None if value is None else number(value))
        else:
            operands.append(next(rest, None))
    operands += rest
    while operands and operands[-1] is None:
        operands.pop()
    return operands, values


def constant(D: Domain, head: Head, vocabulary: Vocabulary) -> Array:
    value, dtype = head.value("value"), head.value("dtype")
    shape = vocabulary.types[head.type].shape or ()
    if dtype.is_floating_point:
        return D.array(np.asarray(value, dtype=object), shape) if shape else D.array(value, ())
    return np.asarray(value, dtype=bool if "bool" in str(dtype) else np.int64).reshape(shape)


def by_formula(
    D: Domain, vocabulary: Vocabulary, formula: Callable[..., Any], head: Head, op: Any, args: Sequence[Array],
    types: Sequence[int],
) -> Array:
    """A fused kernel by its formula in torch's operations, traced."""
    steps, _, last = traced_formula(vocabulary, formula, head, op, types)
    env = list(args)
    run(D, vocabulary, steps, env, list(types))
    return env[last]


def run(
    D: Domain, vocabulary: Vocabulary, steps: Iterable[tuple[int, tuple[int, ...]]], values: list[Any], types: list[Any]
) -> None:
    """Append the values of steps, and their types, to those that they read."""
    for number, refs in steps:
        head = vocabulary.heads[number]
        made = apply(D, vocabulary, head, [values[r] for r in refs], [types[r] for r in refs])
        values.append(made if isinstance(made, tuple) else np.asarray(made))
        types.append(head.type)


def traced_formula(
    vocabulary: Vocabulary, formula: Callable[..., Any], head: Head, op: Any, types: Sequence[int]
) -> tuple[Sequence[tuple[int, tuple[int, ...]]], list[int], int]:
    """The steps of a formula, the types of all values (operands first), and the position of the result.

    Operands before those that the operator names (a cotangent) come first.
    """
    key = (formula, head, tuple(types))
    cache = vocabulary.__dict__.setdefault("formulas", {})
    if key not in cache:
        def traced(tracer: Callable[[Vocabulary, int, str], Tracer]) -> tuple[Tracer, int]:
            made = tracer(vocabulary, len(types), vocabulary.types[head.type].device)
            return made, steps_of(made, formula, head, op, types)

        try:
            made, last = ran(traced, op, "meaning") if op in USERS else traced(Tracer)
        except Untraceable as error:
            raise Outside(str(error)) from error
        cache[key] = made.steps, [*types, *[vocabulary.heads[n].type for n, _ in made.steps]], last
    return cache[key]


def steps_of(tracer: Tracer, formula: Callable[..., Any], head: Head, op: Any, types: Sequence[int]) -> int:
    """Run a formula on traces; the position of the result."""
    values = {**op.attributes, **{k: v for k, v in head.values().items() if not k.startswith("#")}}
    before = max(0, len(types) - sum(n not in values for n in op.operands))    # an absent one is None
    with recording_paused(), tracer:
        traces = [tracer.value(t, k) for k, t in enumerate(types)]
        rest = iter(traces[before:])
        operands = [values.pop(n) if n in values else next(rest, None) for n in op.operands]
        out = formula(*traces[:before], *operands, **{k: v for k, v in values.items() if k in op.attributes})
    return int(out.position)


def kernel(D: Domain, vocabulary: Vocabulary, head: Head, args: Sequence[Array], types: Sequence[int]) -> Array:
    """A derivative that torch computes: by what is known of it, over (g, ans, *operands)."""
    name, k = head.value("#of"), head.value("#operand")
    if name in KERNELS:
        absent = dict(zip(OPS[name].operands, head.value("#absent")[-len(OPS[name].operands):], strict=True))
        coded = tuple([(n, "N") for n, gone in absent.items() if gone])
        inner = Head(name, (*coded, *head.attributes), head.type, False, 0)
        return by_formula(
            D, vocabulary, KERNELS[name][k], inner, OPS[name], [args[0], *args[2:]], [types[0], *types[2:]]
        )
    rule = PULLBACKS.get(name)
    if rule is None or k != 0:
        raise Outside(f"the derivative of {name} is torch's own")
    return rule(D, *args, **{k: v for k, v in head.values().items() if not k.startswith("#") and v is not None})


def needed_for(program: Program, wanted: Iterable[int]) -> bytearray:
    """1 at every position that some wanted one reads, directly or not."""
    needed = bytearray(len(program.heads))
    stack = list(wanted)
    while stack:
        k = stack.pop()
        if not needed[k]:
            needed[k] = 1
            stack += program.operands[k]
    return needed


def side_by_side(
    D: Domain, original: Program, optimized: Program, goals: Iterable[tuple[str, int | None, int | None]],
    free: Callable[[int, Head, tuple[int, ...]], Any],
) -> Iterator[tuple[str, Any, Any]]:
    """Each goal, (name, position in the original, in the optimized program), with its two values.

    No position is zero; a goal that is so on both sides is left out.
    """
    goals = list(goals)
    a = evaluate(D, original, [x for _, x, _ in goals if x is not None], free)
    b = evaluate(D, optimized, [y for _, _, y in goals if y is not None], free)
    for name, x, y in goals:
        left, right = (None if k is None else np.asarray(side[k]) for side, k in ((a, x), (b, y)))
        some = right if left is None else left
        if some is not None:
            zero = D.array(0, some.shape)
            yield name, zero if left is None else left, zero if right is None else right


def evaluate(
    D: Domain, program: Program, wanted: Iterable[int], free: Callable[[int, Head, tuple[int, ...]], Any],
    named: Callable[[int, Any], Any] = lambda position, value: value,
) -> dict[int, Any]:
    """Values of the instructions at `wanted` and of all that they read.

    `free(position, head, shape)` supplies leaves, seeds and draws; `named(position, value)` what stands for a value.
    """
    vocabulary = program.vocabulary
    needed = needed_for(program, wanted)
    values: dict[int, Any] = {}
    for k in range(len(needed)):
        if not needed[k]:
            continue
        head = vocabulary.heads[program.heads[k]]
        operands = program.operands[k]
        if head.op == MERGED:
            values[k] = values[operands[0]]
        elif head.op == "leaf" or (head.effect and not (known(head.op) if head.unread else head.op in MEANING)):
            values[k] = free(k, head, vocabulary.types[head.type].shape or ())
        else:
            types = [vocabulary.heads[program.heads[o]].type for o in operands]
            try:
                values[k] = named(k, apply(D, vocabulary, head, [values[o] for o in operands], types))
            except (AttributeError, IndexError, KeyError, TypeError, ValueError, ZeroDivisionError) as error:
                raise Outside(f"{head.op}, used so: {error}") from error
    return values
