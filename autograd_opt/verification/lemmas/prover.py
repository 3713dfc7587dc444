"""The lemmas that the checker composes, each proved by sympy.

For every operator with a meaning: its rule is the derivative of <g, f(x)>, elementwise on
small shapes of pairwise distinct sizes (broadcasting included), in every case of its kinks,
and linear in g.  For every line of `checker.LINEAR`: the operator is linear there.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from autograd_opt.errors import ArgumentError
from autograd_opt.ops.table import OPS
from autograd_opt.verification.lemmas import claims
from autograd_opt.verification.lemmas.cases import CASES
from autograd_opt.verification.lemmas.claims import Proof
from autograd_opt.verification.lemmas.watched import Asked
from autograd_opt.verification.program.kernels import KERNELS
from autograd_opt.verification.semantics.evaluate import known
from autograd_opt.verification.semantics.index_ops import MOVEMENTS
from autograd_opt.verification.semantics.operators import MEANING
from autograd_opt.verification.strategies.subprocess_limit import Late, results

PATIENCE = 20
"""How many times its processor time a proof may take by the clock."""


def prove_all(seconds: float = 10.0, ops: Sequence[str] | None = None) -> list[Proof]:
    """Prove every lemma, each operator within `seconds`, in a subprocess that is ended when it takes longer.

    Parameters
    ----------
    seconds : limit for one operator.
    ops : only these.

    Returns
    -------
    list of Proof : one per operator and claim; `undecided` where sympy or time did not suffice.
    """
    names = [n for n in (ops or CASES) if n in OPS and known(n)]
    return [proof for proofs in in_subprocess(names, seconds) for proof in proofs]


def in_subprocess(names: Sequence[str], seconds: float) -> Iterator[list[Proof]]:
    """Prove in a child process; end it and start another when one operator takes too long.

    `seconds` of processor time: what is proved does not depend on what else the machine does.
    """
    queue = list(names)
    while queue:
        try:
            for proofs in results(partial(prove_within, seconds), queue, PATIENCE * seconds, each=True):
                queue.pop(0)
                yield proofs
        except Late as late:
            yield [Proof(queue.pop(0), "gradient", "undecided", str(late), seconds)]


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
