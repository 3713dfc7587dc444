"""The lemmas that the checker composes, each proved by sympy.

For every operator with a meaning: its rule is the derivative of <g, f(x)>, elementwise on
small shapes of pairwise distinct sizes (broadcasting included), in every case of its kinks,
and linear in g.  For every line of `checker.LINEAR`: the operator is linear there.  A proof
is remembered under the hash of what the rule was traced to, the files that say what
operators mean, and sympy's version; `prove_all(cache=False)` proves everything anew.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import sympy
import torch

from autograd_opt.errors import ArgumentError
from autograd_opt.ops.table import OPS
from autograd_opt.verification.cache.cache_files import cache_folder, contents, put
from autograd_opt.verification.lemmas import claims
from autograd_opt.verification.lemmas.cases import CASES
from autograd_opt.verification.lemmas.claims import Proof, forward, instance
from autograd_opt.verification.lemmas.watched import Asked
from autograd_opt.verification.program.kernels import KERNELS
from autograd_opt.verification.program.linear import JOINTLY, LINEAR
from autograd_opt.verification.program.rule_traces import trace_rule
from autograd_opt.verification.semantics.evaluate import known
from autograd_opt.verification.semantics.index_ops import MOVEMENTS
from autograd_opt.verification.semantics.operators import MEANING
from autograd_opt.verification.semantics.symbols import Symbols
from autograd_opt.verification.strategies.subprocess_limit import Late, results

KINDS = [str, str, str, str, float]
PATIENCE = 20
"""How many times its processor time a proof may take by the clock."""


def cache_path() -> Path | None:
    folder = cache_folder()
    return None if folder is None else folder / "lemmas.json"


@functools.cache
def sources() -> bytes:
    """The files that say what operators mean and how they are proved."""
    folder = Path(__file__).parent.parent
    program = [folder / "program" / f"{name}.py" for name in ("kernels", "linear", "rule_traces", "tracer")]
    return b"".join([p.read_bytes() for part in ("lemmas", "semantics") for p in sorted((folder / part).glob("*.py"))]
                    + [p.read_bytes() for p in program])


def fingerprint(op: str) -> str:
    """A hash of everything a proof about this operator depends on."""
    h = hashlib.sha256(sources())
    h.update(formulas(tuple([(name, o.meaning) for name, o in OPS.items() if o.meaning is not None])))
    h.update(f"{sympy.__version__}|{torch.__version__}|{op}|{CASES[op]!r}|{LINEAR.get(op)}|{JOINTLY.get(op)}".encode())
    for case in CASES[op]:
        try:
            vocabulary, types, args = instance(op, case)
            head, _ = forward(Symbols(), op, case, vocabulary, types, args)
            needs = [t is not None and k not in case.values for k, t in enumerate(types)]
            template = trace_rule(vocabulary, OPS[op], head, types, needs)
            h.update(repr(([vocabulary.heads[n][:2] for n, _ in template.steps], template)).encode())
        except Exception:  # what cannot be traced without cases is hashed by its source
            for vjp in [*OPS[op].vjps, OPS[op].joint]:
                if vjp is not None:
                    h.update(source_of(vjp.fn).encode())
    return h.hexdigest()


@functools.lru_cache(8)
def formulas(meanings: tuple[tuple[str, Any], ...]) -> bytes:
    """What the operator table says that fused kernels compute: rules call them."""
    return "".join([f"{name}|{source_of(fn)}" for name, fn in meanings]).encode()


def source_of(fn: Any) -> str:
    try:
        return inspect.getsource(fn)
    except (OSError, TypeError):
        return repr(fn.__code__.co_code) if hasattr(fn, "__code__") else repr(fn)


def prove_all(cache: bool = True, seconds: float = 10.0, ops: Sequence[str] | None = None) -> list[Proof]:
    """Prove every lemma, each operator within `seconds`, in a subprocess that is ended when it takes longer.

    Parameters
    ----------
    cache : use and update the file of earlier proofs; False proves everything anew.
    seconds : limit for one operator.
    ops : only these.

    Returns
    -------
    list of Proof : one per operator and claim; `undecided` where sympy or time did not suffice.
    """
    names = [n for n in (ops or CASES) if n in OPS and known(n)]
    remembered: dict[str, Any] = {}
    path = cache_path()
    cache = cache and path is not None
    if cache and path is not None:
        found = contents(path)
        remembered = found if type(found) is dict else {}
    out: list[Proof] = []
    missing = []
    keys = {n: fingerprint(n) for n in names} if cache else {}
    for n in names:
        proofs = proofs_in(remembered.get(keys[n]), n) if cache else []
        out += proofs
        if not proofs:
            missing.append(n)
    for n, proofs in in_subprocess(missing, seconds):
        out += proofs
        if cache and all(p.proved for p in proofs):
            remembered[keys[n]] = [(p.op, p.claim, p.status, p.detail, p.seconds) for p in proofs]
    if cache and missing and path is not None:
        put(path, remembered)
    return out


def proofs_in(rows: Any, op: str) -> list[Proof]:
    """The proofs that a file holds of an operator; none where it says anything else."""
    if type(rows) is not list or not all(type(r) is list and list(map(type, r)) == KINDS for r in rows):
        return []
    proofs = [Proof(*r) for r in rows]
    return proofs if all(p.op == op and p.proved for p in proofs) else []


def in_subprocess(names: Sequence[str], seconds: float) -> Iterator[tuple[str, list[Proof]]]:
    """Prove in a child process; end it and start another when one operator takes too long.

    `seconds` of processor time: what is proved does not depend on what else the machine does.
    """
    queue = list(names)
    while queue:
        try:
            for proofs in results(partial(prove_within, seconds), queue, PATIENCE * seconds, each=True):
                yield queue.pop(0), proofs
        except Late as late:
            yield queue[0], [Proof(queue.pop(0), "gradient", "undecided", str(late), seconds)]


def prove_within(seconds: float, name: str) -> list[Proof]:
    """All lemmas about one operator; the process is ended that takes longer."""
    import resource  # not everywhere, nor is the start of such a process

    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(time.process_time() + seconds), hard))
    return prove(name)


def prove(op: str) -> list[Proof]:
    """All lemmas about one operator: at small shapes, then for all sizes.

    Raises
    ------
    ArgumentError : there is no such operator, or nothing to prove its lemmas from.
    """
    if op not in OPS:
        raise ArgumentError(f"there is no operator {op!r} in the table")
    if op not in CASES or not known(op):
        missing = "meaning in semantics/operators.py" if not known(op) else "instance in lemmas/cases.py"
        raise ArgumentError(f"the operator {op!r} has no {missing}, so there is nothing to prove of it")
    asked = Asked()
    small = claims.prove(op, asked)
    everywhere = for_all_sizes(op, {p.claim: p for p in small})
    doubt = next((p.detail for p in small if p.claim == "gradient" and not p.proved), "")
    if asked.sizes:                      # another rule, perhaps, at sizes that no instance has
        doubt = f"the rule asks {min(asked.sizes)}"
    if doubt:
        everywhere = [replace(p, status="undecided", detail=doubt) if p.claim.startswith("gradient") and p.proved else p
                      for p in everywhere]
    return [*small, *everywhere]


def for_all_sizes(op: str, small: dict[str, Proof]) -> list[Proof]:
    """The claims of `small` that hold whatever the sizes: by indexed sums, element by element, or by movement alone."""
    from autograd_opt.verification.lemmas import all_shapes, pointwise

    out = []
    if op in all_shapes.SIZED_CASES:
        runs = {"gradient": all_shapes.gradient, "linear": all_shapes.linearity}
        wanted = {"gradient"} & set(small) | ({"gradient"} if op in KERNELS else set())
        wanted |= {"linear"} if {"linear", "jointly"} & set(small) else set()
        for claim in sorted(wanted):
            run = partial(first_wrong_size, runs[claim], op)
            out.append(claims.attempt(op, f"{claim}, all sizes", run))
    elif all(p.proved for p in small.values()) and not any(pointwise.everywhere(op, case) for case in CASES[op]):
        for claim, p in small.items():
            name = "gradient" if claim == "gradient" else "linear"
            out.append(replace(p, claim=f"{name}, all sizes", seconds=0.0))
    if not out and op in MEANING and MEANING[op] in MOVEMENTS and {"linear", "jointly"} & set(small):
        out.append(Proof(op, "linear, all sizes", "proved", "it only moves elements"))
    return out


def first_wrong_size(run: Callable[[str, Any], str], op: str) -> str:
    """What is wrong in the first case where something is."""
    from autograd_opt.verification.lemmas.all_shapes import SIZED_CASES

    return next(filter(None, (run(op, case) for case in SIZED_CASES[op])), "")


__all__ = ["CASES", "Proof", "prove", "prove_all"]
