"""`autograd-opt verify`: run a script and prove the optimization before each of its backward runs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from autograd_opt.graph import AutogradGraph
from autograd_opt.scripts import SETTINGS, options_behind, require_script, run, stdout_to_stderr
from autograd_opt.verify import Budget, Status, Verification, verify


@contextmanager
def watching(
    budget: Budget, limit: int, on_verdict: Callable[[str, Verification], object] = lambda label, verdict: None
) -> Iterator[list[tuple[str, Verification]]]:
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
                on_verdict(self.label, v)
        return out

    AutogradGraph.prepare = prepared  # type: ignore[method-assign]
    try:
        yield found
    finally:
        AutogradGraph.prepare = prepare  # type: ignore[method-assign]


OWN_OPTIONS = ("--json", "--seconds", "--limit")


def line(label: str, v: Verification) -> str:
    """A verdict with what it is about."""
    nodes, merged, seconds = (v.stats.get(key, 0) for key in ("nodes", "merged", "seconds"))
    return f"{label}: {v}  [{nodes} nodes, {merged} merged, {seconds:.3f} s]"


@click.command("verify", context_settings=SETTINGS)
@click.option("-m", "as_module", is_flag=True, help="SCRIPT is the name of a module.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, the rest on stderr.")
@click.option("--seconds", default=30.0, show_default=True, help="Limit for one proof.")
@click.option(
    "--limit", default=50, show_default=True, help="Backward runs to verify; structures seen before are not counted."
)
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def verify_command(
    script: str, arguments: tuple[str, ...], as_module: bool, as_json: bool, seconds: float, limit: int
) -> None:
    """Run SCRIPT and prove, before each backward run, that optimized gradients equal unoptimized ones.

    Each verdict is printed when it is found.  Exit code 0: every one proved.  1: one refuted or
    undecided, nothing to verify, or the script itself failed.
    """
    options_behind("verify", OWN_OPTIONS, script, arguments)
    require_script(script, as_module)

    def show(label: str, v: Verification) -> None:
        click.echo(line(label, v), err=as_json)

    with stdout_to_stderr(as_json):
        with watching(Budget(seconds=seconds), limit, show) as found:
            code = run(script, arguments, as_module)
        sys.stdout.flush()
    counts = {s.value: sum(v.status is s for _, v in found) for s in Status}
    if as_json:
        click.echo(json.dumps({"counts": counts, "runs": [{"graph": g, **v.to_dict()} for g, v in found]}, default=str))
    else:
        click.echo(
            ", ".join(f"{n} {s}" for s, n in counts.items())
            if found
            else "nothing to verify: no AutogradGraph(optimize=True) of the script ran backward"
        )
    if code or not found or counts["proved"] != len(found):
        sys.exit(code or 1)
