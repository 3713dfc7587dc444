"""Every sample of torch's own database of operators, compared with torch eager.

    python -m tests.opinfo_sweep                            first derivatives, each sample twice in one graph
    python -m tests.opinfo_sweep --order 2 --samples 5      second derivatives of five samples an entry
    python -m tests.opinfo_sweep --all                      every configuration of the table in the documentation
    python -m tests.opinfo_sweep --table                    writes that table from what has been run

A sample passes where values, gradients, which gradients are absent, and the inputs afterwards
are torch's: float64 within 1e-7 relative and 1e-9 absolute.  Entries run in a process of their
own kind: when it crashes or hangs, the entry says so and the rest goes on.  Results are lines of
JSON, one an entry; a second call goes on where the first one stopped.
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
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from tests import opinfo_runner

HERE = Path(__file__).resolve().parent.parent
RESULTS = HERE / "build" / "opinfo"
PAGE = HERE / "docs" / "opinfo.md"
TOLERANCE = {torch.float64: (1e-7, 1e-9), torch.complex128: (1e-7, 1e-9), torch.float32: (1e-4, 1e-5),
             torch.complex64: (1e-4, 1e-5)}
ROUGH = (1e-2, 1e-3)
SILENCE = 180.0
"""Seconds without a word after which a worker is taken to hang."""


@dataclass(frozen=True)
class Setting:
    """One way of running the samples."""

    order: int = 1
    optimize: bool = True
    twice: bool = True
    variant: str = "function"
    dtype: str = "float64"
    samples: int = 0
    """At most so many an entry, spread over all; 0 for all."""

    @property
    def name(self) -> str:
        words = [f"order{self.order}", "optimize" if self.optimize else "plain", "twice" if self.twice else "once",
                 self.variant, self.dtype, f"{self.samples or 'all'}"]
        return "-".join(words)


SETTINGS = (
    Setting(), Setting(optimize=False, twice=False), Setting(variant="method"), Setting(variant="inplace"),
    Setting(dtype="complex128"), Setting(dtype="float32", samples=5), Setting(dtype="bfloat16", samples=5, twice=False),
    Setting(order=2), Setting(order=2, optimize=False, twice=False), Setting(order=2, variant="inplace"),
    Setting(order=2, dtype="complex128", samples=5),
)


@dataclass
class Entry:
    """What came of one entry of the database."""

    op: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    reasons: list[str] = field(default_factory=list)


# ----- one sample -----
class Cotangents:
    """`cot(i, t)`: fixed numbers for tensor `i` of the output, None where torch has no gradient for it."""

    def __init__(self, wanted: list[bool] | None = None, requires_grad: bool = False, seed: int = 0):
        self.wanted, self.requires_grad, self.seed = wanted, requires_grad, seed
        self.made: dict[int, torch.Tensor] = {}

    def __call__(self, i: int, t: torch.Tensor) -> torch.Tensor | None:
        if (self.wanted is not None and not self.wanted[i]) or not (t.is_floating_point() or t.is_complex()):
            return None
        if i not in self.made:
            with torch.no_grad():
                wide = torch.complex128 if t.is_complex() else torch.float64
                generator = torch.Generator().manual_seed(1000 * self.seed + i)
                numbers = torch.rand(t.shape, generator=generator, dtype=wide) + 0.5
                signs = torch.rand(t.shape, generator=generator) < 0.3
                c = torch.where(signs, -numbers, numbers).to(t.dtype)
            dense = t.layout is torch.strided
            self.made[i] = c.requires_grad_(self.requires_grad) if dense else c.to_sparse(layout=t.layout)
        return self.made[i]

    def leaves(self) -> list[torch.Tensor]:
        return [self.made[i] for i in sorted(self.made) if self.made[i].requires_grad]


def copies(tree: Any) -> Any:
    """Independent leaves of the same values, shapes in memory and flags; one tensor twice stays one."""
    known: dict[int, torch.Tensor] = {}

    def copy(t: Any) -> Any:
        if not isinstance(t, torch.Tensor):
            return t
        if id(t) not in known:
            d = t.detach()
            known[id(t)] = (d.clone() if d.layout is not torch.strided or d.is_conj() or d.is_neg() else
                            torch.empty(0, dtype=d.dtype).set_(d.untyped_storage().clone(), d.storage_offset(),
                                                              d.shape, d.stride())).requires_grad_(t.requires_grad)
        return known[id(t)]
    return tree_map(copy, tree)


def eager(function: Any, args: Any, kwargs: Any, cot: Any, cot2: Any, order: int) -> list[list[Any]]:
    """[outputs, gradients, gradients of gradients] by torch."""
    leaves = opinfo_runner.leaves_of(args, kwargs)
    out = function(*args, **kwargs)
    tensors = opinfo_runner.tensors(out)
    cot.wanted = [bool(t.requires_grad) for t in tensors]
    roots, given = opinfo_runner.wanted(out, cot)
    if not roots:
        return []
    found = torch.autograd.grad(roots, leaves, given, allow_unused=True, create_graph=order == 2)
    if order == 1:
        return [tree_leaves(out), list(found)]
    every = leaves + cot.leaves()
    cot2.wanted = [g is not None and g.requires_grad for g in found]
    pairs = [(g, cot2(i, g)) for i, g in enumerate(found) if g is not None and g.requires_grad]
    if not pairs:
        return []
    second = torch.autograd.grad([g for g, _ in pairs], every, [c for _, c in pairs], allow_unused=True)
    return [tree_leaves(out), list(found), list(second)]


def difference(mine: Any, theirs: Any, what: str) -> str | None:
    """Why two leaves of a result are not the same."""
    if not isinstance(theirs, torch.Tensor) or not isinstance(mine, torch.Tensor):
        same = mine is theirs or (type(mine) is type(theirs) and (mine == theirs or mine != mine))
        return None if same else f"{what}: {mine!r:.60} is not {theirs!r:.60}"
    for name in ("shape", "dtype", "layout"):
        if getattr(mine, name) != getattr(theirs, name):
            return f"{what}: {name} {getattr(mine, name)}, torch has {getattr(theirs, name)}"
    a, b = (t.detach().to_dense() if t.layout is not torch.strided else t.detach().resolve_conj().resolve_neg()
            for t in (mine, theirs))
    if not (b.is_floating_point() or b.is_complex()):
        return None if torch.equal(a, b) else f"{what}: other values"
    rtol, atol = TOLERANCE.get(b.dtype, ROUGH)
    close = torch.isclose(a, b, rtol=rtol, atol=atol, equal_nan=True)
    if bool(close.all()):
        return None
    worst = float((a - b).abs()[~close].nan_to_num(float("inf")).max())
    return f"{what}: {int((~close).sum())} of {b.numel()} elements differ, by up to {worst:.1e}"


def differences(mine: Any, theirs: Any) -> list[str]:
    found = []
    for level, (a, b) in enumerate(zip(mine, theirs, strict=True)):
        name = ("output", "gradient", "second gradient", "input afterwards")[level]
        if len(a) != len(b):
            return [f"{name}: {len(a)} leaves, torch has {len(b)}"]
        found += [why for k, (x, y) in enumerate(zip(a, b, strict=True)) if (why := difference(x, y, f"{name} {k}"))]
    return found


def function_of(op: Any, sample: Any, setting: Setting) -> Callable[..., Any] | None:
    """The call that a setting asks for, or None where the sample has none."""
    body = {"function": op.get_op, "method": op.get_method, "inplace": op.get_inplace}[setting.variant]()
    if body is None or (not isinstance(sample.input, torch.Tensor) and setting.variant != "function"):
        return None
    if setting.variant == "inplace" and (sample.broadcasts_input or not op.supports_inplace_autograd):
        return None

    def once(x: Any, *args: Any, **kwargs: Any) -> Any:
        x = x.clone() if setting.variant == "inplace" else x
        return sample.output_process_fn_grad(op.gradcheck_wrapper(body, x, *args, **kwargs))

    def twice(*args: Any, **kwargs: Any) -> Any:
        return once(*args, **kwargs), once(*args, **kwargs)

    return twice if setting.twice else once


def run_sample(op: Any, sample: Any, setting: Setting) -> str | None:
    """'' where the sample passes, None where there is nothing to compare, else why it fails."""
    function = function_of(op, sample, setting)
    if function is None:
        return None
    given = ((sample.input, *sample.args), sample.kwargs)

    def reference() -> tuple[list[list[Any]], Any, Any]:
        args, kwargs = copies(given)
        cot, cot2 = Cotangents(requires_grad=setting.order == 2), Cotangents(seed=1)
        torch.manual_seed(0)
        found = eager(function, args, kwargs, cot, cot2, setting.order)
        return [*found, opinfo_runner.tensors((args, kwargs))] if found else [], cot.wanted, cot2.wanted

    try:
        theirs, wanted, wanted2 = reference()
        if not theirs or differences(reference()[0], theirs):
            return None                      # not differentiable, or torch's own result varies
    except Exception:
        return None                          # torch has no derivative here
    args, kwargs = copies(given)
    cot = Cotangents(wanted, setting.order == 2)
    torch.manual_seed(0)
    try:
        if setting.order == 1:
            mine: tuple[Any, ...] = opinfo_runner.grads(function, args, kwargs, cot)
        else:
            mine = opinfo_runner.grads2(function, args, kwargs, cot, Cotangents(wanted2, seed=1))
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:160]}"
    return "; ".join(differences([tree_leaves(mine[0]), *mine[1:], opinfo_runner.tensors((args, kwargs))], theirs)[:2])


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


def run_entry(op: Any, setting: Setting, beat: Callable[[], None]) -> Entry:
    """All samples of an entry; `beat` says after each that the worker lives."""
    entry, begin = Entry(op.full_name), time.thread_time()
    torch.manual_seed(0)
    for k, sample in enumerate(samples_of(op, getattr(torch, setting.dtype), setting.samples)):
        why = run_sample(op, sample, setting)
        beat()
        if why is None:
            entry.skipped += 1
        elif why:
            entry.failed += 1
            entry.reasons.append(f"sample {k}: {why}")
        else:
            entry.passed += 1
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
    counted = [e for e in found if e.passed or e.failed]
    good = sum(not e.failed for e in counted)
    passed, failed, skipped = (sum(getattr(e, k) for e in found) for k in ("passed", "failed", "skipped"))
    seconds = sum(e.seconds for e in found)
    return f"{good} of {len(counted)} | {passed:,} of {passed + failed:,} | {skipped:,} | {seconds:,.0f}"


REASONS: dict[str, str] = {}
"""Entry -> why it falls short, where the first difference does not say it."""


def table() -> Iterator[str]:
    """The page of the documentation, line by line."""
    yield "# torch's own database of operators"
    yield ""
    yield ("`python -m tests.opinfo_sweep --all`, then `--table`, makes this page: every differentiable entry of "
           f"`torch.testing`'s operator database (torch {torch.__version__}, CPU), value and gradients beside torch "
           "eager. *Twice*: each call is made two times in one graph, so that everything merges. Skipped: torch itself "
           "has no derivative, or another result at each run. Settings that were not run to their end are left out.")
    yield ""
    yield "| order | optimize | calls | variant | dtype | samples an entry | entries | samples | skipped | CPU s |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    short: dict[tuple[str, str], list[str]] = {}
    for s in SETTINGS:
        found = read(RESULTS / f"{s.name}.jsonl")
        if len(found) < len(entries(getattr(torch, s.dtype), s.order)):
            continue                         # not run to its end
        yield (f"| {s.order} | {s.optimize} | {'twice' if s.twice else 'once'} | {s.variant} | {s.dtype} | "
               f"{s.samples or 'all'} | {summary(found)} |")
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
    one = Setting(given.order, not given.plain, not given.once, given.variant, given.dtype, given.samples)
    failed = 0
    for setting in SETTINGS if given.all else (one,):
        found = sweep(setting, given.ops, given.fresh)
        print(f"{setting.name}: entries, samples, skipped, seconds: {summary(found)}", flush=True)
        for entry in found:
            if entry.failed:
                failed += 1
                print(f"  {entry.op}: {entry.failed} fail; {entry.reasons[0]}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
