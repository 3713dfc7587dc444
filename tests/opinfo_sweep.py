"""Every sample of torch's own database of operators, compared with torch eager.

    python -m tests.opinfo_sweep                            first derivatives, each sample twice in one graph
    python -m tests.opinfo_sweep --order 2 --samples 5      second derivatives of five samples an entry
    python -m tests.opinfo_sweep --layouts 0 --once         operands and cotangents in every layout, one at a time
    python -m tests.opinfo_sweep --kinks finite             operands at bounds, ties, zeros (`special`: infinite, NaN)
    python -m tests.opinfo_sweep --all                      every configuration of the table in the documentation
    python -m tests.opinfo_sweep --table                    writes that table from what has been run

What counts as the same is in `tests/opinfo_compare.py`.  Entries run in a
process of their own kind: when it crashes or hangs, the entry says so and the rest goes on.
Results are lines of JSON, one an entry; a second call goes on where the first one stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

import torch

from tests import opinfo_runner
from tests.opinfo_compare import ILL_CONDITIONED, Setting, run_sample
from tests.opinfo_kinks import FILLS, LEFT_OUT, kinked
from tests.opinfo_layouts import cases

HERE = Path(__file__).resolve().parent.parent
RESULTS = Path(os.environ.get("OPINFO_RESULTS") or HERE / "build" / "opinfo")
PAGE = HERE / "docs" / "opinfo.md"
SILENCE = 900.0
"""Seconds without a word after which a worker is taken to hang."""


SETTINGS = (
    Setting(), Setting(optimize=False, twice=False), Setting(variant="method"), Setting(variant="inplace"),
    Setting(dtype="complex128"), Setting(dtype="float32", samples=5), Setting(dtype="bfloat16", twice=False),
    Setting(order=2), Setting(order=2, optimize=False, twice=False), Setting(order=2, variant="inplace"),
    Setting(order=2, dtype="complex128", samples=5), Setting(dtype="float32", autocast=True),
    Setting(order=2, dtype="float32", samples=5, autocast=True),
    Setting(twice=False, layouts=0), Setting(order=2, twice=False, layouts=1),
    Setting(dtype="bfloat16", twice=False, samples=5, layouts=1),
)


@dataclass
class Entry:
    """What came of one entry of the database."""

    op: str
    passed: int = 0
    rounding: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    reasons: list[str] = field(default_factory=list)
    strides: int = 0
    """Samples with the same numbers in another layout than torch's."""
    lies: str = ""


# ----- entries -----
def entries(dtype: torch.dtype = torch.float64, order: int = 1) -> list[Any]:
    """The differentiable entries of the database, in its order."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    return [op for op in op_db if op.supports_autograd and (order == 1 or op.supports_gradgrad)
            and dtype in op.supported_dtypes("cpu") & op.supported_backward_dtypes("cpu")]


def samples_of(op: Any, dtype: torch.dtype, most: int) -> list[Any]:
    more = {"include_conjugated_inputs": True} if dtype.is_complex and op.test_conjugated_samples else {}
    found = list(op.sample_inputs("cpu", dtype, requires_grad=True, **more))
    if not most or len(found) <= most:
        return found
    return [found[k * (len(found) - 1) // (most - 1 or 1)] for k in range(most)]


def calls_of(op: Any, setting: Setting) -> Iterator[tuple[str, Any, str, Setting]]:
    """Yield the name of each call, its sample, the layout of its cotangents, and the setting of their numbers."""
    if (op.full_name, setting.kinks) in LEFT_OUT:
        return
    samples = samples_of(op, getattr(torch, setting.dtype), setting.samples)
    if setting.layouts is not None:
        yield from ((*case, setting) for case in cases(samples, setting.layouts))
        return
    for k, sample in enumerate(samples):
        if setting.kinks:
            for changed, cotangents in kinked(sample, setting.kinks, k):
                yield f"sample {k}", changed, "", replace(setting, cotangents=cotangents)
        else:
            yield f"sample {k}", sample, "", setting


def run_entry(op: Any, setting: Setting, beat: Callable[[], None]) -> Entry:
    """All samples of an entry; `beat` says after each that the worker lives."""
    entry, begin = Entry(op.full_name), time.thread_time()
    torch.manual_seed(0)
    for name, sample, kind, each in calls_of(op, setting):
        outcome = run_sample(op, sample, each, kind)
        beat()
        setattr(entry, outcome.kind, getattr(entry, outcome.kind) + 1)
        if outcome.strides:
            entry.strides, entry.lies = entry.strides + 1, entry.lies or f"{name}: {outcome.strides}"
        if outcome.kind == "failed":
            entry.reasons.append(f"{name}: {outcome.why}")
    entry.reasons = entry.reasons[:3]
    entry.seconds = round(time.thread_time() - begin, 2)
    return entry


def work(setting: Setting, path: Path, pattern: str) -> None:
    """The worker: every entry that the file does not have yet."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    opinfo_runner.OPTIMIZE = setting.optimize
    done = {e.op for e in read(path)}
    with path.open("a") as f:
        for op in entries(getattr(torch, setting.dtype), setting.order):
            if op.full_name not in done and re.search(pattern, op.full_name):
                f.write(json.dumps({"begins": op.full_name}) + "\n")
                f.flush()
                f.write(json.dumps(asdict(run_entry(op, setting, lambda: os.utime(path)))) + "\n")
                f.flush()


def read(path: Path) -> list[Entry]:
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [Entry(**line) for line in lines if "op" in line]


def sweep(setting: Setting, pattern: str = "", fresh: bool = False) -> list[Entry]:
    """Run a setting in worker processes; an entry that ends one is noted as such."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{setting.name}.jsonl"
    if fresh:
        path.unlink(missing_ok=True)
    while True:
        worker = subprocess.Popen([sys.executable, "-m", "tests.opinfo_sweep", "--worker", json.dumps(asdict(setting)),
                                   "--ops", pattern], cwd=HERE, env={**os.environ, "OMP_NUM_THREADS": "1"})
        hangs, begin = False, time.time()
        while worker.poll() is None:
            time.sleep(0.2)
            if time.time() - max(begin, path.stat().st_mtime if path.exists() else 0.0) > SILENCE:
                worker.kill()
                hangs = True
        if worker.returncode == 0:
            return read(path)
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        if not lines or "begins" not in lines[-1]:
            raise SystemExit(f"the worker ends before its first entry (exit {worker.returncode})")
        with path.open("a") as f:
            why = "no answer in time" if hangs else f"the process ends (exit {worker.returncode})"
            f.write(json.dumps(asdict(Entry(lines[-1]["begins"], failed=1, reasons=[why]))) + "\n")


# ----- the table -----
def summary(found: Sequence[Entry]) -> str:
    counted = [e for e in found if e.passed or e.rounding or e.failed]
    good = sum(not e.failed for e in counted)
    passed, rounding, failed, skipped = (
        sum(getattr(e, k) for e in found) for k in ("passed", "rounding", "failed", "skipped"))
    seconds = sum(e.seconds for e in found)
    every = passed + rounding + failed
    return (f"{good} of {len(counted)} | {passed + rounding:,} of {every:,} | {rounding:,} | {skipped:,} | "
            f"{seconds:,.0f}")


REASONS: dict[str, str] = {}
"""Entry -> why it falls short, where the first difference does not say it."""


def table() -> Iterator[str]:
    """The page of the documentation, line by line."""
    yield "# torch's own database of operators"
    yield ""
    yield ("`python -m tests.opinfo_sweep --all`, then `--table`, makes this page: every differentiable entry of "
           f"`torch.testing`'s operator database (torch {torch.__version__}, CPU), value and gradients beside torch "
           "eager. *Twice*: each call is made two times in one graph, so that everything merges. *Other layouts*: each "
           "sample once for every operand and every way in which it can lie otherwise in memory (stepped, turned, "
           "channels last, expanded, behind its beginning; or in one of these ways), with cotangents that do so, too. "
           "Skipped: torch itself has no derivative, or another result at each run. *Run*: how many entries of the "
           "database a sweep has come to; the rest of a row counts these.")
    yield ""
    yield ("float64 and complex128 agree within 1e-7 relative and 1e-9 absolute. *Rounding* counts those among the "
           "samples that agree which do so only in one of two ways: a tensor of lower precision is, measured against "
           "torch in float64, as good as torch's own (twice its error on this and on nearby inputs, and two units in "
           "the last place of its largest element); or the entry is " +
           " or ".join(f"`{op}` (order {order}, {dtype})" for op, order, dtype in sorted(ILL_CONDITIONED)) +
           ", where columns are nearly dependent, and torch's own result moves at least half as far when its inputs "
           "move by a unit in the last place.")
    yield ""
    yield ("| order | optimize | calls | variant | dtype | samples an entry | run | entries that agree | samples that "
           "agree | rounding | skipped | CPU s | day |")
    yield "|---|---|---|---|---|---|---|---|---|---|---|---|---|"
    short: dict[tuple[str, str], list[str]] = {}
    for s in SETTINGS:
        path = RESULTS / f"{s.name}.jsonl"
        found = read(path)
        if not found:
            continue
        run = f"{len(found)} of {len(entries(getattr(torch, s.dtype), s.order))}"
        yield (f"| {s.order} | {s.optimize} | {'twice' if s.twice else 'once'} | {s.variant} | "
               f"{s.dtype}{', autocast' if s.autocast else ''}{'' if s.layouts is None else ', other layouts'} | "
               f"{s.samples or 'all'} | {run} | {summary(found)} | {date.fromtimestamp(path.stat().st_mtime)} |")
        for e in found:
            if e.failed:
                why = REASONS.get(e.op) or e.reasons[0].replace("|", "\\|")
                short.setdefault((e.op, why), []).append(f"order {s.order} {s.variant} {s.dtype}, {e.failed} samples")
    yield ""
    yield "## Entries that fall short" if short else "No entry falls short in these settings."
    yield ""
    if short:
        yield "| entry | where | why |"
        yield "|---|---|---|"
        for (op, why), places in sorted(short.items()):
            yield f"| `{op}` | {'; '.join(places)} | {why} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--order", type=int, default=1, choices=(1, 2))
    parser.add_argument("--plain", action="store_true", help="optimize=False")
    parser.add_argument("--once", action="store_true", help="each sample is called once, not twice")
    parser.add_argument("--variant", default="function", choices=("function", "method", "inplace"))
    parser.add_argument("--dtype", default="float64")
    parser.add_argument("--samples", type=int, default=0, help="at most so many an entry (0: all)")
    parser.add_argument("--autocast", action="store_true", help="under autocast to bfloat16")
    parser.add_argument("--layouts", type=int, help="operands and cotangents in so many other layouts (0: all)")
    parser.add_argument("--kinks", default="", choices=("", *FILLS), help="replace the operands by numbers at kinks")
    parser.add_argument("--ops", default="", help="regular expression on the entry's name")
    parser.add_argument("--all", action="store_true", help="every setting of the table, one after the other")
    parser.add_argument("--fresh", action="store_true", help="forget earlier results")
    parser.add_argument("--table", action="store_true", help=f"write {PAGE.relative_to(HERE)}")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        setting = Setting(**json.loads(given.worker))
        work(setting, RESULTS / f"{setting.name}.jsonl", given.ops)
        return 0
    if given.table:
        PAGE.write_text("\n".join(table()) + "\n")
        return 0
    one = Setting(given.order, not given.plain, not given.once, given.variant, given.dtype, given.samples,
                  given.autocast, given.layouts, given.kinks)
    failed = 0
    for setting in SETTINGS if given.all else (one,):
        found = sweep(setting, given.ops, given.fresh)
        print(f"{setting.name}: entries, samples, rounding, skipped, seconds: {summary(found)}", flush=True)
        for entry in found:
            if entry.failed:
                failed += 1
                print(f"  {entry.op}: {entry.failed} fail; {entry.reasons[0]}", flush=True)
        for entry in found:
            if entry.strides:
                print(f"  {entry.op}: {entry.strides} have other strides; {entry.lies}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
