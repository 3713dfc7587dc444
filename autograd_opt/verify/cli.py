"""`autograd-opt verify`: run a script and prove the optimization before each of its backward runs."""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from autograd_opt.graph import AutogradGraph
from autograd_opt.verify import Budget, Status, Verification, verify


@contextmanager
def watching(budget: Budget, limit: int) -> Iterator[list[tuple[str, Verification]]]:
    """While open, every backward run of an optimizing graph is verified first; yields (graph, verdict) pairs."""
    found: list[tuple[str, Verification]] = []
    seen: set[tuple[str, str]] = set()
    prepare = AutogradGraph.prepare

    def prepared(self: Any, roots: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
        out = prepare(self, roots, *args, **kwargs)
        if self.optimize and len(found) < limit:
            v = verify(self.tape.snapshot(), list(roots), budget=budget)
            if (v.original, v.optimized) not in seen or not v.original:
                seen.add((v.original, v.optimized))
                found.append((self.label, v))
        return out

    AutogradGraph.prepare = prepared  # type: ignore[method-assign]
    try:
        yield found
    finally:
        AutogradGraph.prepare = prepare  # type: ignore[method-assign]


@click.command("verify")
@click.argument("script", type=click.Path(exists=True, dir_okay=False))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--json", "as_json", is_flag=True, help="One JSON object on stdout; what the script prints goes to stderr."
)
@click.option("--seconds", default=30.0, show_default=True, help="Limit for one proof.")
@click.option(
    "--limit", default=50, show_default=True, help="Backward runs to verify; structures seen before are not counted."
)
def verify_command(script: str, arguments: tuple[str, ...], as_json: bool, seconds: float, limit: int) -> None:
    """Run SCRIPT and prove, before each backward run, that optimized gradients equal unoptimized ones.

    Exit code 0: every one proved. 1: one refuted or undecided, or nothing to verify.
    """
    argv, out = sys.argv, sys.stdout
    sys.argv = [script, *arguments]
    sys.path.insert(0, str(Path(script).resolve().parent))
    if as_json:
        sys.stdout = sys.stderr
    try:
        with watching(Budget(seconds=seconds), limit) as found:
            runpy.run_path(script, run_name="__main__")
    finally:
        sys.argv, sys.stdout = argv, out
        sys.path.pop(0)
    counts = {s.value: sum(v.status is s for _, v in found) for s in Status}
    if as_json:
        click.echo(json.dumps({"counts": counts, "runs": [{"graph": g, **v.to_dict()} for g, v in found]}, default=str))
    else:
        for label, v in found:
            click.echo(
                f"{label}: {v}  [{v.stats.get('nodes', 0)} nodes, {v.stats.get('merged', 0)} merged, "
                f"{v.stats.get('seconds', 0.0):.3f} s]"
            )
        click.echo(
            ", ".join(f"{n} {s}" for s, n in counts.items())
            if found
            else "nothing to verify: no AutogradGraph(optimize=True) of the script ran backward"
        )
    if not found or counts["proved"] != len(found):
        sys.exit(1)
