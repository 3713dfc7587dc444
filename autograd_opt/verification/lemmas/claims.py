"""The lemmas about one operator: its rule is the derivative, and it is linear where the checker says so."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import sympy
import torch

from autograd_opt.ops.table import OPS
from autograd_opt.verification.lemmas.cases import CASES, FURTHER, Case
from autograd_opt.verification.lemmas.watched import Asked, Turned
from autograd_opt.verification.program.attribute_encoding import encode
from autograd_opt.verification.program.calls import Untraceable
from autograd_opt.verification.program.instruction_names import PULLBACK
from autograd_opt.verification.program.instructions import Head, Vocabulary
from autograd_opt.verification.program.kernels import KEPT
from autograd_opt.verification.program.linear import JOINTLY, LINEAR, joint_slots, slots
from autograd_opt.verification.program.rule_traces import laid_out, trace_rule
from autograd_opt.verification.program.tracer import Tracer
from autograd_opt.verification.semantics.casework import by_cases
from autograd_opt.verification.semantics.definedness import NONNEGATIVE, NONZERO, Condition, asked_in, undefined
from autograd_opt.verification.semantics.domain import Domain, Outside, TooLarge
from autograd_opt.verification.semantics.evaluate import apply
from autograd_opt.verification.semantics.evaluate import run as run_steps
from autograd_opt.verification.semantics.operators import PULLBACKS
from autograd_opt.verification.semantics.symbols import Symbols, fresh


@dataclass(frozen=True)
class Proof:
    """One line of the table of lemmas."""

    op: str
    claim: str
    status: str
    detail: str = ""
    seconds: float = 0.0

    @property
    def proved(self) -> bool:
        return self.status == "proved"


def attempt(op: str, claim: str, run: Callable[[], str], notes: Iterable[str] = ()) -> Proof:
    """`run` says what is wrong, or nothing: then the claim is proved, where the notes are not 0."""
    start = time.process_time()
    try:
        wrong = run()
        status = "refuted" if wrong else "proved"
        detail = wrong or (f"where {', '.join(sorted(notes))} is not 0" if notes else "")
    except (Outside, Untraceable, TooLarge) as error:
        status, detail = "undecided", str(error)
    except Exception as error:  # a claim that cannot be run is not proved, and says why
        status, detail = "undecided", f"{type(error).__name__}: {error}"
    return Proof(op, claim, status, detail, time.process_time() - start)


def prove(op: str, asked: Asked | None = None) -> list[Proof]:
    """The lemmas about one operator at small shapes, one after the other; what its rules ask is noted."""
    out = []
    for claim, run in (("gradient", gradient), ("linear", linearity), ("jointly", partial(linearity, jointly=True))):
        if (claim == "linear" and op not in LINEAR) or (claim == "jointly" and op not in JOINTLY):
            continue
        if claim == "gradient" and not any(OPS[op].vjps) and OPS[op].joint is None:
            continue
        notes: set[str] = set()
        all_cases = partial(first_wrong_gradient, asked=asked) if claim == "gradient" else first_wrong
        out.append(attempt(op, claim, partial(all_cases, run, op, notes), notes))
    return out


def first_wrong(run: Any, op: str, notes: set[str]) -> str:
    """What is wrong in the first case where something is."""
    return next(filter(None, (run(op, case, notes) for case in (*CASES[op], *FURTHER.get(op, ())))), "")


def first_wrong_gradient(run: Any, op: str, notes: set[str], asked: Asked | None = None) -> str:
    """What is wrong at the first written or drawn instance where something is.

    Where the rule is traced to what has been shown to be the derivative, sympy is not asked again.

    Raises
    ------
    Outside : a rule counts with an attribute before it compares it.
    """
    from autograd_opt.verification.lemmas.drawn import cases_of, trace_of

    shown = set()
    asked = Asked() if asked is None else asked
    tracers = (Tracer, Turned) if laid_out(OPS[op]) else (Tracer,)
    for case in cases_of(op, asked):
        trace = trace_of(op, case, asked)
        if trace is not None and trace in shown:
            continue
        for recording in (False, True) if op in KEPT else (False,):      # where a rule may ask which of both it is
            for tracer in tracers:
                with torch.set_grad_enabled(recording):
                    wrong = run(op, case, notes, tracer)
                if wrong:
                    return f"{wrong}, at {described(case)}"
        shown.add(trace)
    if asked.opaque:
        raise Outside(f"the rule compares {min(asked.opaque)}")
    return ""


def described(case: Case) -> str:
    """An instance in words."""
    said = [f"shapes {case.shapes}", *[f"{k}={v!r}" for k, v in case.attributes.items()]]
    said += [f"operand {k} below 0" for k in case.negative]
    return ", ".join(said + ([str(case.dtype)] if case.dtype is not torch.float64 else []))


def instance(op: str, case: Case) -> tuple[Vocabulary, list[int | None], list[Any]]:
    """Vocabulary, operand types and symbols of a case."""
    vocabulary = Vocabulary()
    types: list[int | None] = []
    args: list[Any] = []
    for k, shape in enumerate(case.shapes):
        if shape is None:
            types.append(None)
            args.append(None)
        elif k in case.values:
            value = case.values[k]
            types.append(vocabulary.type(shape, torch.bool if value.dtype == bool else torch.int64, "cpu"))
            args.append(value)
        else:
            types.append(vocabulary.type(shape, case.dtype, "cpu"))
            args.append(fresh("xyzuvw"[k], shape, k in case.positive, k in case.negative))
    return vocabulary, types, args


def coded(op: str, attributes: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    defaults = OPS[op].attributes
    return tuple(
        sorted((k, encode(v)) for k, v in attributes.items() if k not in defaults or encode(defaults[k]) != encode(v))
    )


def typed(vocabulary: Vocabulary, value: Any, dtype: torch.dtype) -> int:
    """The type of a computed value (a tuple for several outputs)."""
    if isinstance(value, tuple):
        return vocabulary.type(tuple((v.shape, dtype, "cpu") for v in value), None, None)
    return vocabulary.type(np.shape(value), dtype, "cpu")


def wanted(case: Case, types: Sequence[int | None]) -> list[bool]:
    """Which operands' cotangents the lemma is about."""
    return [t is not None and k not in case.values and (case.needs is None or k in case.needs)
            for k, t in enumerate(types)]


def forward(
    D: Domain, op: str, case: Case, vocabulary: Vocabulary, types: Sequence[int | None], args: Sequence[Any]
) -> tuple[Head, Any]:
    """The operator's value, and its head."""
    attributes = coded(op, case.attributes)
    guess = next(t for t, s in zip(types, case.shapes, strict=True) if t is not None)
    present = [a for a in args if a is not None]
    kinds = [t for t in types if t is not None]
    value = apply(D, vocabulary, Head(op, attributes, guess, True, 0), present, kinds)
    value = value if isinstance(value, tuple) else np.asarray(value)
    number = vocabulary.head(op, attributes, typed(vocabulary, value, case.dtype), True, 0)
    return vocabulary.heads[number], value


def gradient(op: str, case: Case, notes: set[str], tracer: Callable[..., Tracer] = Tracer) -> str:
    """Is the rule the derivative of <g, f(x)>, and linear in g?  The first difference, or an empty string."""

    def run(D: Symbols) -> str:
        vocabulary, types, args = instance(op, case)
        given: list[Condition] = []
        asked: list[Condition] = []
        D.noted = given
        head, ans = forward(D, op, case, vocabulary, types, args)
        many = isinstance(ans, tuple)
        if many:
            g = [fresh(f"g{k}_", a.shape) for k, a in enumerate(ans)]
            pairing = sum(((gk * ak).sum() for gk, ak in zip(g, ans, strict=True)), sympy.Integer(0))
        else:
            g = [fresh("g", np.shape(ans))]
            pairing = np.asarray(g[0] * ans).sum()
        needs = wanted(case, types)
        env: list[Any] = [*g, None if many else ans, *args]
        kinds: list[Any] = [vocabulary.type(v.shape, case.dtype, "cpu") for v in g] + [head.type, *types]
        template = trace_rule(vocabulary, OPS[op], head, types, needs, [True] * len(g) if many else None, tracer,
                              KEPT.get(op))
        D.noted = asked
        run_steps(D, vocabulary, template.steps, env, kinds)
        D.noted = None
        results = dict(template.results)
        if op in PULLBACKS:                      # what programs take its kernel for is the rule's, too
            reads = [k for k, e in enumerate(env[: len(g) + 1 + len(args)]) if e is not None]
            of = ("#of", encode(op)), ("#operand", encode(0)), *head.attributes
            pullback = Head(PULLBACK, of, head.type, False, 0)
            taken = apply(D, vocabulary, pullback, [env[k] for k in reads], [kinds[k] for k in reads])
            for x, y in zip(np.asarray(taken).reshape(-1), np.asarray(env[results[0]]).reshape(-1), strict=True):
                if not D.shown(x - y):
                    return f"the rule gives {y}, and its kernel is taken to give {x}"
        gs = [s for part in g for s in part.reshape(-1)]
        for k, need in enumerate(needs):
            if not need:
                continue
            found = (
                np.broadcast_to(np.asarray(env[results[k]], dtype=object), args[k].shape)
                if k in results
                else D.array(0, args[k].shape)
            )
            for x, e in zip(args[k].reshape(-1), found.reshape(-1), strict=True):
                e = sympy.sympify(e.item() if isinstance(e, np.ndarray) else e)
                expected = sympy.diff(pairing, x)
                given += asked_in(expected)
                if not D.shown(e - expected):
                    return f"d/d{x}: the rule gives {D.settled(e)}, the derivative is {D.settled(expected)}"
                wrong = not_linear(D, D.settled(e), gs)
                if wrong:
                    return wrong
        given += [(what, sign * d) for d, sign in D.cases if sign for what in (NONZERO, NONNEGATIVE)]
        beyond = undefined(((what, D.settled(e)) for what, e in asked), [(what, D.settled(e)) for what, e in given])
        if beyond:
            raise Outside(beyond)
        return ""

    return by_cases(run, notes)


def each_term_has_one(e: Any, gs: set[Any]) -> bool:
    """True if each term of a sum has one of these symbols as a factor, and none of them anywhere else."""
    for term in sympy.Add.make_args(e):
        factors = sympy.Mul.make_args(term)
        rest = [f for f in factors if f not in gs]
        if len(rest) != len(factors) - 1 or not all(gs.isdisjoint(f.free_symbols) for f in rest):
            return False
    return True


def not_linear(D: Symbols, e: Any, gs: list[Any]) -> str:
    """Linear and homogeneous in the cotangent?"""
    if each_term_has_one(e, set(gs)):
        return ""
    if not D.shown(e.subs(dict.fromkeys(gs, 0), simultaneous=True)):
        return f"{e} is not 0 for a cotangent of 0"
    factors = [sympy.expand(sympy.diff(e, s)) for s in gs if s in e.free_symbols]
    if all(f.free_symbols.isdisjoint(gs) for f in factors):
        return ""
    for s in gs:
        if s in e.free_symbols and not D.shown(sympy.diff(e, s, 2)):
            return f"{e} is not linear in {s}"
    for s in gs:
        d = sympy.diff(e, s)
        if any(t in sympy.expand(d).free_symbols for t in gs) and not all(D.shown(sympy.diff(d, t)) for t in gs):
            return f"{e} is not linear in the cotangent"
    return ""


def linearity(op: str, case: Case, notes: set[str], jointly: bool = False) -> str:
    """Is the operator linear where `LINEAR` says so; `jointly`: in the operands of `JOINTLY` taken together?"""

    def run(D: Symbols) -> str:
        vocabulary, types, args = instance(op, case)
        kinds = [t for t in types if t is not None]
        present = [a for a in args if a is not None]
        head, _ = forward(D, op, case, vocabulary, types, args)
        floating = [vocabulary.types[t].dtype == "float64" for t in kinds]
        a, b = sympy.symbols("a b", real=True)

        def at(values: dict[int, Any]) -> Any:
            given = [np.asarray(values.get(k, x), dtype=object if k in values else None) for k, x in enumerate(present)]
            out = apply(D, vocabulary, head, given, kinds)
            return out if isinstance(out, tuple) else (out,)

        for group in [joint_slots(head, floating)] if jointly else [(slot,) for slot in slots(head, floating)]:
            u = {k: fresh(f"s{k}_", present[k].shape) for k in group}
            v = {k: fresh(f"t{k}_", present[k].shape) for k in group}
            mixed = {k: a * u[k] + b * v[k] for k in group}
            for whole, left, right in zip(at(mixed), at(u), at(v), strict=True):
                for e in np.asarray(whole - a * left - b * right).reshape(-1):
                    if not D.shown(e):
                        return f"{'together' if jointly else f'operand {group[0]}'}: {e} is not 0"
        return ""

    return by_cases(run, notes)
