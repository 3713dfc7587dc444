"""The table of operators: own rule, proved for all sizes, proved at small shapes, or tested only.

    python scripts/operator_table.py [FILE]

proves everything anew and prints the table, or writes it to FILE.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from autograd_opt.ops.table import OPS
from autograd_opt.verification.lemmas.cases import CASES
from autograd_opt.verification.lemmas.claims import Proof
from autograd_opt.verification.lemmas.drawn import AXES, cases_of
from autograd_opt.verification.lemmas.prover import prove_all
from autograd_opt.verification.program.kernels import KERNELS
from autograd_opt.verification.program.linear import JOINTLY, LINEAR
from autograd_opt.verification.semantics.operators import PULLBACKS

STRUCTURE = ("leaf", "output")
ALL, SMALL, TESTED, NONE = "proved for all sizes", "proved at small shapes", "tested only", ""


def classes(proofs: Sequence[Proof]) -> dict[str, tuple[str, str, str, str]]:
    """Operator -> whose rule, how well its gradient is known, how well its linearity, and remarks."""
    found: dict[tuple[str, str], Proof] = {}
    for p in proofs:
        claim = p.claim.replace("jointly", "linear")
        old = found.get((p.op, claim))
        if old is None or old.proved:
            found[p.op, claim] = p
    out = {}
    for name, op in OPS.items():
        if name in STRUCTURE:
            continue
        own = op.joint is not None or any(op.vjps)
        rule = "torch's kernel" if name in KERNELS or name in PULLBACKS else "own" if own else "torch's"
        grades = []
        for claim, there in (("gradient", own), ("linear", name in LINEAR or name in JOINTLY)):
            everywhere, small = found.get((name, f"{claim}, all sizes")), found.get((name, claim))
            wrong = next((p for p in (everywhere, small) if p is not None and p.status == "refuted"), None)
            grades.append(
                "REFUTED" if wrong else ALL if everywhere and everywhere.proved and (small is None or small.proved)
                else SMALL if small and small.proved
                else TESTED if claim == "gradient" or there else NONE
            )
        small = found.get((name, "gradient"))
        out[name] = (rule, grades[0], grades[1], small.detail[:90].replace("|", "\\|") if small else "")
    return out


def stated(op: str) -> str:
    """For what the lemmas about an operator are shown, in words: ranks, sizes, signs, attributes, dtypes."""
    cases = list(cases_of(op))
    shapes = [s for c in cases for s in c.shapes if s is not None]
    said = [f"ranks {', '.join(map(str, sorted({len(s) for s in shapes})))}",
            f"sizes {', '.join(map(str, sorted({n for s in shapes for n in s}) or ['none']))}"]
    above = {k for c in cases for k in c.positive} - {k for c in cases for k in c.negative}
    said += [f"{OPS[op].operands[k]} > 0" for k in sorted(above) if k < len(OPS[op].operands)]
    values: dict[str, dict[str, None]] = {}
    for c in cases:
        for k, v in c.attributes.items():
            if k not in ("shape", "size", "sizes", "index", "normalized_shape", "equation", *AXES):
                values.setdefault(k, {})[str(v)] = None
    said += [f"{k} {', '.join(v)}" for k, v in values.items()]
    kinds = sorted({str(c.dtype).removeprefix("torch.") for c in cases})
    return "; ".join([*said, ", ".join(kinds)])


def table(proofs: Sequence[Proof]) -> str:
    """The table as markdown."""
    rows = ["| operator | rule | rule is the derivative | linear | | shown for |", "|---|---|---|---|---|---|"]
    for name, row in classes(proofs).items():
        shown = stated(name).replace("|", "\\|") if name in CASES and "proved" in row[1] else ""
        rows.append(f"| {name} | {' | '.join(row)} | {shown} |")
    return "\n".join(rows)


def summary(proofs: Sequence[Proof]) -> str:
    """How many operators stand where, and what it took."""
    grades = [row[1] for row in classes(proofs).values()]
    return (
        f"{len(grades)} operators. The rule is proved to be the derivative: for all sizes, of {grades.count(ALL)}; at "
        f"small shapes, of {grades.count(SMALL)} more. {grades.count(TESTED)} are tested only. "
        f"Refuted: {grades.count('REFUTED')}."
    )


def main() -> None:
    start = time.process_time()
    proofs = prove_all(seconds=60)      # the table is the same on a machine that does other things
    text = (
        "# Operators: what is proved of each\n\n"
        "Written by `python scripts/operator_table.py docs/operators.md`; what the words mean is in "
        "[verification](verification.md). Proofs are about real numbers. *For all sizes*: at every size of the ranks,\n"
        "attributes and dtypes that the last column names; *at small shapes*: for the instances there.\n\n"
        f"{summary(proofs)}\n\n<details><summary>All operators</summary>\n\n{table(proofs)}\n\n</details>\n"
    )
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(text)
    else:
        print(text)
    print(f"{summary(proofs)} {sum(p.seconds for p in proofs):.1f} s in proofs, "
          f"{time.process_time() - start:.1f} s of CPU time here", file=sys.stderr)


if __name__ == "__main__":
    main()
