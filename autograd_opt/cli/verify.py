"""`autograd-opt verify`: run a script and prove the optimization before each of its backward runs."""

from __future__ import annotations

import html as markup
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from autograd_opt._common.files import written_whole
from autograd_opt.api.graph import AutogradGraph
from autograd_opt.api.proved_graph import interior
from autograd_opt.cli.main import Number
from autograd_opt.cli.run_script import PAGE, SETTINGS, options_behind, require_script, run, stdout_to_stderr
from autograd_opt.engine import entry
from autograd_opt.errors import VerificationError
from autograd_opt.optimizer.merging import run_passes
from autograd_opt.record.sites import Numbered
from autograd_opt.verification.strategies.task import Task
from autograd_opt.verify import Budget, Status, Verification, verify


@dataclass
class Found:
    """What was verified: (graph, verdict), each structure once; runs of known structures, and those past the limit."""

    runs: list[tuple[str, Verification]] = field(default_factory=list)
    repeated: int = 0
    skipped: int = 0

    @property
    def counts(self) -> dict[str, int]:
        return {s.value: sum(v.status is s for _, v in self.runs) for s in Status}

    @property
    def proved(self) -> bool:
        """Was there something, and was all of it proved?"""
        return bool(self.runs) and not self.skipped and self.counts["proved"] == len(self.runs)

    def summary(self) -> str:
        if not self.runs:
            return "nothing to verify: no AutogradGraph(optimize=True) of the script ran backward"
        text = ", ".join(f"{n} {s}" for s, n in self.counts.items())
        if self.repeated:
            text += f"; {self.repeated} more runs had the structure of one of these"
        return text + (f"; {self.skipped} runs were not verified: raise --limit" if self.skipped else "")

    def to_dict(self) -> dict[str, Any]:
        return {"counts": self.counts, "repeated": self.repeated, "skipped": self.skipped,
                "runs": [{"graph": g, **v.to_dict()} for g, v in self.runs]}

    def page(self, title: str) -> str:
        """A page with every verdict."""
        body = "".join(f"<h2>{markup.escape(label)}</h2>{v._repr_html_()}" for label, v in self.runs)
        title = markup.escape(title)
        return (f"<!doctype html><html lang='en'><meta charset='utf-8'><title>{title}</title>"
                f"<body style='font-family: sans-serif'><h1>{title}</h1><p>{markup.escape(self.summary())}</p>{body}"
                "</body></html>\n")


def line(label: str, v: Verification) -> str:
    """A verdict with what it is about."""
    nodes, merged, seconds = (v.stats.get(key, 0) for key in ("nodes", "merged", "seconds"))
    return f"{label}: {v}  [{nodes} nodes, {merged} merged, {seconds:.3f} s]"


@contextmanager
def watching(
    budget: Budget, limit: int, on_verdict: Callable[[str, Verification], object] = lambda label, verdict: None
) -> Iterator[Found]:
    """While open, every backward run of an optimizing graph is verified first."""
    found = Found()
    seen: set[tuple[str, str]] = set()
    prepare, usual = AutogradGraph.prepare, entry.backward_usual

    def prepared(self: Any, roots: Sequence[Any], inputs: Any = None, *args: Any, **kwargs: Any) -> Any:
        try:
            out = prepare(self, roots, inputs, *args, **kwargs)
        except VerificationError:  # with verify=True the graph asks itself
            found.runs.append((self.label, self.verdicts[-1]))
            on_verdict(*found.runs[-1])
            raise
        if not self.optimize:
            return out
        question = asked(self, roots, inputs)
        if len(found.runs) >= limit:
            if structure(question) in seen:
                found.repeated += 1
            else:
                found.skipped += 1
            return out
        v = verify(**question, budget=budget)
        if (v.original, v.optimized) in seen and v.original:
            found.repeated += 1
        else:
            seen.add((v.original, v.optimized))
            found.runs.append((self.label, v))
            on_verdict(self.label, v)
        return out

    AutogradGraph.prepare = prepared  # type: ignore[method-assign]
    # the short way asks nothing where no value has repeated
    entry.backward_usual = lambda *_: False
    try:
        with Numbered():
            yield found
    finally:
        AutogradGraph.prepare = prepare  # type: ignore[method-assign]
        entry.backward_usual = usual


def asked(graph: AutogradGraph, roots: Sequence[Any], inputs: Any) -> dict[str, Any]:
    """What `verify` is asked about this run: where it wants cotangents of results, those merge with nothing."""
    nodes = graph.tape.snapshot()
    inner = interior(inputs)
    if not inner:
        return {"nodes": nodes, "roots": list(roots)}
    result = run_passes(graph.tape, [n.index for n in roots], graph.pipeline, inner)[1]
    return {"nodes": nodes, "roots": list(roots), "leaves": graph._goals(inner), "leader": result.leader.tolist(),
            "alive": result.alive.tolist()}


def structure(question: dict[str, Any]) -> tuple[str, str] | None:
    """The hashes that a verdict about this run would have; None where there would be none."""
    try:
        task = Task(**{"leaves": None, "leader": None, "alive": None, **question})
        return task.original.digest(), task.optimized.digest()
    except Exception:  # what is wrong with it is not looked into beyond the limit
        return None


@click.command("verify", context_settings=SETTINGS)
@click.option("-m", "as_module", is_flag=True, help="SCRIPT is the name of a module.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, the rest on stderr.")
@PAGE
@click.option("--seconds", type=Number(min=0), default=30.0, show_default=True, help="Limit for one proof.")
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True,
              help="Structures to verify; one that repeats counts once.")
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def verify_command(script: str, arguments: tuple[str, ...], as_module: bool, as_json: bool, html: Path | None,
                   seconds: float, limit: int) -> None:
    """Run SCRIPT and prove, before each backward run, that optimized gradients equal unoptimized ones.

    Each verdict is printed when it is found.  Exit code 0: every one proved, and the script ended well.  1: one
    refuted, undecided or beyond the limit, nothing to verify, or the script itself failed.
    """
    options_behind(script, arguments)
    require_script(script, as_module)

    def work() -> int:
        return verified(script, arguments, as_module, as_json, html, Budget(seconds=seconds), limit)

    code = to_its_end(work) if sys.stdout is sys.__stdout__ else work()
    if code:
        sys.exit(code)


def verified(script: str, arguments: tuple[str, ...], as_module: bool, as_json: bool, html: Path | None,
             budget: Budget, limit: int) -> int:
    """Run the script, print what is found, and return the exit code."""
    screen = sys.stderr if as_json else sys.stdout

    def show(label: str, v: Verification) -> None:
        click.echo(line(label, v), file=screen)

    with stdout_to_stderr(as_json):
        with watching(budget, limit, show) as found:
            code = run(script, arguments, as_module)
        sys.stdout.flush()
    if html is not None:
        with written_whole(html) as draft:
            draft.write_text(found.page(f"optimizations of {' '.join([script, *arguments])}"), encoding="utf-8")
    click.echo(json.dumps(found.to_dict(), default=str) if as_json else found.summary())
    if code:
        click.echo(f"{script} ended with exit code {code}: what it would have run after that is not verified", err=True)
    return code or int(not found.proved)


def to_its_end(work: Callable[[], int]) -> int:
    """The exit code of work in a process of its own; 1 where that ends before it has said that it is done.

    A script that leaves through `os._exit(0)`, or replaces its process, would pass otherwise.
    """
    if not hasattr(os, "fork"):
        return work()
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        os.close(reads)
        code = work()
        os.write(writes, b"done")
        sys.exit(code)
    os.close(writes)
    while True:
        try:
            _, status = os.waitpid(child, 0)
            break
        except KeyboardInterrupt:                # the script has been interrupted as well
            continue
    code = os.waitstatus_to_exitcode(status)
    with os.fdopen(reads, "rb", closefd=True) as end:
        os.set_blocking(end.fileno(), False)     # something that the script has started may hold the other end
        done = end.read() == b"done"
    if done or code > 0:
        return code
    click.echo("the script left before its end: nothing is said of what it ran", err=True)
    return 128 - code if code else 1
