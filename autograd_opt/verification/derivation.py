"""The derivation of a proof as plain data, which `check_certificate.py` checks without this library.

Both programs; for each instruction what the checker did with it, and the lemma for that; for each cotangent of the
optimized program the sum of original ones that it was shown to be.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from autograd_opt.verification.check_certificate import DECIDING, sealed
from autograd_opt.verification.checker.checker import claimed_sums
from autograd_opt.verification.checker.propagate import LINEARLY, NOTHING, OPERAND, PLUS, SCALE, TOGETHER, Simulation
from autograd_opt.verification.lemmas.cases import CASES, Case
from autograd_opt.verification.lemmas.claims import forward, instance
from autograd_opt.verification.program.instruction_names import PULLBACK
from autograd_opt.verification.program.instructions import Head, Program
from autograd_opt.verification.program.linear import TRUSTED, joint_slots, slots
from autograd_opt.verification.semantics.casework import by_cases
from autograd_opt.verification.semantics.domain import Outside, TooLarge
from autograd_opt.verification.semantics.symbols import Symbols
from autograd_opt.verification.strategies.task import Task

WORDS = {PLUS: "sum", SCALE: "scale", LINEARLY: "linear", TOGETHER: "together", NOTHING: "zero", OPERAND: "unchanged"}
Claims = list[tuple[int, list[tuple[str, int]]]]


def derivation(task: Task) -> dict[str, Any]:
    """Why the optimized values and gradients of a task are the original ones, where the checker has proved it."""
    original, optimized = task.original, task.optimized
    simulation = Simulation(task.vocabulary)
    claims = claims_that_hold(original, optimized, task.leader, simulation)
    used = list(dict.fromkeys([*original.heads, *optimized.heads]))
    place = {h: k for k, h in enumerate(used)}
    heads = [task.vocabulary.heads[h] for h in used]
    lemmas: dict[Any, int] = {}
    texts: list[dict[str, Any]] = []
    rules = []
    for (number, types), (kind, detail) in simulation.kinds.items():
        word = WORDS.get(kind, "plain") if detail or kind in (NOTHING, OPERAND) else "plain"
        head, lemma = task.vocabulary.heads[number], None
        dims = list(head.value("dims", ()))
        if word == "unchanged" and head.op == "permute" and dims != list(range(len(dims))):
            word, detail = "linear", (0,)        # axes counted from the end
        if word in ("linear", "together"):
            key = head.op, str(head.value("#of", "")), word, detail, repr(deciding(head.op, head.attributes))
            if key not in lemmas:
                lemmas[key] = len(texts)
                texts.append(lemma_of(head, word, detail))
            lemma = lemmas[key]
        said = {"sum": detail, "scale": str(detail)}.get(word, list(detail) if lemma is not None else None)
        rules.append([place[number], list(types), word, said, lemma])
    data: dict[str, Any] = {
        "types": [[t.shape, t.dtype, t.device, t.parts] for t in task.vocabulary.types],
        "heads": [[h.op, h.attributes, h.type, h.grad, h.effect] for h in heads],
        **{name: {"heads": [place[h] for h in p.heads], "operands": p.operands}
           for name, p in (("original", original), ("optimized", optimized))},
        "goals": [list(goal) for goal in task.compared],
        "claims": claims, "rules": rules, "lemmas": texts,
    }
    return {**data, "sha256": sealed(data)}


def claims_that_hold(original: Program, optimized: Program, leader: Sequence[int], simulation: Simulation) -> Claims:
    """Positions of optimized cotangents, each with the original ones whose sum it is."""
    first = simulation.run(original)
    sums = claimed_sums(original, optimized, leader)
    combos = simulation.combined(original, optimized, sums, first)
    rejected: list[tuple[int, str]] = []
    simulation.run(optimized, combos, rejected)
    wrong = {position for position, _ in rejected}
    held = {position: [("1", where) for where in sums[node]] for node, position in optimized.cotangents.items()
            if position in combos and position not in wrong}
    return sorted(held.items())


@functools.lru_cache(1024)
def statement(op: str, word: str, detail: tuple[int, ...]) -> tuple[list[list[str]], list[str]] | None:
    """Symbols of each operand, and elements of the result, of the first instance of an operator that has this shape."""
    cases = CASES.get(op, ())
    if op in ("cat", "stack"):
        cases = (Case(((1,),) * len(detail), {"dim": 0}),)
    for case in cases:
        values: list[str] = []
        symbols: list[list[str]] = []
        try:
            wrong = by_cases(functools.partial(collect, op, case, word, detail, symbols, values), set())
        except (Outside, TooLarge, ValueError, TypeError, LookupError):
            continue
        if not wrong and values:
            return symbols, values
    return None


def collect(op: str, case: Case, word: str, detail: tuple[int, ...], symbols: list[list[str]], values: list[str],
            D: Symbols) -> str:
    """Add the elements of the result in one case of its kinks; why the instance is none of this lemma."""
    vocabulary, types, args = instance(op, case)
    head, value = forward(D, op, case, vocabulary, types, args)
    present = [a for a in args if a is not None]
    floating = [a.dtype == object for a in present]
    fits = set(detail) <= set(slots(head, floating)) if word == "linear" else joint_slots(head, floating) == detail
    if not fits:
        return "it is linear otherwise"
    symbols[:] = [[str(s) for s in a.reshape(-1)] if a.dtype == object else [] for a in present]
    for part in value if isinstance(value, tuple) else (value,):
        values += [str(e) for e in np.asarray(part, dtype=object).reshape(-1) if str(e) not in values]
    return ""


def deciding(op: str, attributes: Sequence[tuple[str, str]]) -> list[list[str]]:
    """The attributes that decide where an operator is linear; a number that is multiplied with may be any."""
    return [[name, "" if op in ("mul", "div") else value] for name, value in attributes if name in DECIDING]


def lemma_of(head: Head, word: str, detail: tuple[int, ...]) -> dict[str, Any]:
    """The lemma that an operator is linear so: its formula, or why it is assumed."""
    groups = [[k] for k in detail] if word == "linear" else [list(detail)]
    said = {"op": head.op, "linear": groups, "given": deciding(head.op, head.attributes)}
    found = None if head.op == PULLBACK or head.op in TRUSTED else statement(head.op, word, detail)
    if found is not None:
        return {**said, "kind": "sympy", "symbols": found[0], "value": found[1]}
    why = f"torch's own derivative of {head.value('#of')}" if head.op == PULLBACK else \
        "it rounds, copies or chooses" if head.op in TRUSTED else "it has no formula here"
    return {**said, "kind": "assumed", "why": why}
