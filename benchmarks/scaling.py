"""Section `million`: do the passes stay linear up to a million nodes, and how do others fare?"""

from __future__ import annotations

import importlib.util
import math
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from . import bars
from .jobs import Settings, Tick
from .million import SHAPES, Shape, measure
from .others_cse import OTHERS
from .plots import save_panels
from .section import Check, Grid, Row, Section

OURS = "autograd_opt"
SIZES = (10**3, 10**4, 10**5, 10**6)
MAKES: dict[str, Callable[[int], Shape]] = {make(1000).name: make for make in SHAPES}
COMPARED = ("wide", "deep", "fan 40,000", "half repeated", "all hashes 0")
"""Shapes on which the others are timed; `all hashes 0` is `half repeated` to them, their hashes are their own."""
BUDGET = 15.0
"""Seconds of processor time that a library is given for all sizes of a shape, building included."""
NAMED = {"torch.fx": 10**5}
"""The size that a bar names: this library may run it alone for as long as `NAMED_BUDGET`."""
NAMED_BUDGET = 40.0
SHORT = 2.0
"""A size that took more seconds than this is not measured twice."""
STAGES = ("from dag", "cse", "prune", "to dag", "arrays", "total")


def labels(groups: Sequence[str] = ()) -> list[str]:
    """Every shape, by us and by each other library."""
    return [*MAKES, *(f"{shape}: {other}" for shape in COMPARED if shape != "all hashes 0" for other in OTHERS)]


def measure_scaling(label: str, settings: Settings, on_round: Tick = lambda *_: None,
                    sizes: Sequence[int] = SIZES) -> Row:
    """One shape in all sizes, by us or by another library."""
    name, _, who = label.partition(": ")
    if not who:
        found = {}
        for n in sizes:
            found[str(n)] = measure(MAKES[name](n), repeats=20 if n < 10**5 else 5)
            on_round()
        return {"name": label, "shape": name, "who": OURS, "sizes": found}
    package, run = OTHERS[who]
    if importlib.util.find_spec(package) is None:
        note = f"{package} is not installed and left out: pip install 'autograd_opt[bench]'"
        return {"name": label, "shape": name, "who": who, "sizes": {}, "notes": [note]}
    return {"name": label, "shape": name, "who": who, **others(who, run, MAKES[name], sizes, on_round)}


class OutOfTimeError(Exception):
    """A library has used what it was given."""


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raise `OutOfTimeError` after so many seconds of processor time; a compiled function that runs then ends first."""
    def stop(*_: Any) -> None:
        raise OutOfTimeError

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def others(who: str, run: Callable[[Shape], tuple[float, int]], make: Callable[[int], Shape],
           sizes: Sequence[int], on_round: Tick) -> Row:
    """Sizes as far as another library comes within its budget; the last two foretell what the next one would take."""
    found: dict[str, dict[str, float]] = {}
    name = make(1000).name
    spent, times = 0.0, list[tuple[int, float]]()
    for n in sizes:
        given = NAMED_BUDGET if NAMED.get(who) == n else BUDGET
        left = given if given > BUDGET else given - spent
        row = {"sizes": found, "beyond": {str(n): given}}
        expected = foretold(times, n)
        if expected > left:
            return row | {"notes": [f"{who}, {name}: {n:,} nodes were not run, by the smaller sizes they would "
                                    f"take about {expected:,.0f} s with building, more than the {given:.0f} s given"]}
        begin = time.process_time()
        results: list[tuple[float, int]] = []
        try:
            with at_most(left):
                shape = make(n)
                while not results or (len(results) < 3 and (time.process_time() - begin) / len(results) < SHORT):
                    results.append(run(shape))
        except RecursionError:
            return {"sizes": found, "notes": [f"{who}, {name}: RecursionError at {n:,} nodes"]}
        except OutOfTimeError:
            if not results:
                return row | {"notes": [f"{who}, {name}: stopped at {n:,} nodes after the {given:.0f} s given, "
                                        "building included"]}
        whole = time.process_time() - begin
        spent += whole
        times.append((n, whole / len(results)))
        found[str(n)] = {"total": min(s for s, _ in results) / n * 1e9, "left": results[-1][1] / n}
        on_round()
    return {"sizes": found}


def foretold(times: Sequence[tuple[int, float]], n: int) -> float:
    """Seconds that `n` nodes will take if they grow as between the last two sizes, and at least linearly."""
    if not times:
        return 0.0
    size, took = times[-1]
    power = 1.0
    if len(times) > 1:
        before, smaller = times[-2]
        power = max(1.0, math.log(took / smaller) / math.log(size / before))
    return float(took * (n / size) ** power)


def grids(rows: list[Row]) -> list[Grid]:
    """Ours stage by stage, then everybody."""
    own = [row for row in rows if row.get("who") == OURS]
    lines = []
    for row in own:
        before = None
        for n, found in row["sizes"].items():
            growth = "" if before is None else f"{10 * found['total'] / before:.1f}"
            before = found["total"]
            lines.append([row["name"], f"{int(n):,}", *(f"{found[stage]:.0f}" for stage in STAGES),
                          f"{found['left']:.2f}", f"{found['comparisons']:.2f}", growth])
    stages = Grid("Nanoseconds per node, stage by stage",
                  ("shape", "nodes", *STAGES, "left", "comparisons / node", "t(n) / t(n/10)"), lines,
                  "`arrays` is CSE and prune alone, `total` goes from the rustworkx graph and back to one.")
    names = [OURS, *dict.fromkeys(row["who"] for row in rows if row.get("who") not in (None, OURS))]
    lines = [[shape, f"{int(n):,}", *(per_node(rows, shape, who, n) for who in names)]
             for shape in MAKES if shape in COMPARED for n in sizes_of(rows, shape)]
    compared = Grid("Beside other libraries: nanoseconds per node", ("shape", "nodes", *names), lines,
                    "The pass alone, on a graph built there before; ours from DAG to DAG. Another library has "
                    f"{BUDGET:.0f} s of processor time for each shape, torch.fx {NAMED_BUDGET:.0f} s for 100,000 "
                    "nodes; what does not fit says so.")
    return [stages, compared]


def sizes_of(rows: list[Row], shape: str) -> list[str]:
    return list(next((row["sizes"] for row in rows if row["name"] == shape and "sizes" in row), {}))


def total(rows: list[Row], shape: str, who: str, n: str) -> float | None:
    """Nanoseconds per node, if measured."""
    found = row_of(rows, shape, who).get("sizes", {}).get(n)
    return None if found is None else float(found["total"])


def per_node(rows: list[Row], shape: str, who: str, n: str) -> str:
    found = total(rows, shape, who, n)
    if found is not None:
        return f"{found:,.0f}"
    beyond = row_of(rows, shape, who).get("beyond", {})
    return f"— (> {beyond[n]:.0f} s)" if n in beyond else "—"


def row_of(rows: list[Row], shape: str, who: str) -> Row:
    """The row of a library on a shape, or an empty one."""
    shape = "half repeated" if who != OURS and shape == "all hashes 0" else shape
    return next((row for row in rows if row.get("shape") == shape and row.get("who") == who), {})


def checks(rows: list[Row]) -> list[Check]:
    """Time a node, linearity, and the distance to torch.fx."""
    out = []
    for shape in MAKES:
        million, tenth = total(rows, shape, OURS, "1000000"), total(rows, shape, OURS, "100000")
        if million is not None and tenth is not None:
            out.append(Check(shape, "ns a node at 10⁶, DAG to DAG", million, *bars.NODE_NANOSECONDS_BAR))
            out.append(Check(shape, "t(10⁶) / t(10⁵)", 10 * million / tenth, *bars.GROWTH_BAR))
        theirs = total(rows, shape, "torch.fx", "100000")
        what = "times faster than torch.fx at 10⁵"
        if theirs is None and "beyond" in row_of(rows, shape, "torch.fx"):
            # a node takes no less time in a larger graph
            theirs, what = total(rows, shape, "torch.fx", "10000"), f"{what}, at least: its time a node at 10⁴"
        if theirs is not None and tenth is not None:
            out.append(Check(shape, what, theirs / tenth, *bars.FX_BAR))
    return out


def plot(rows: list[Row], stem: Path) -> list[Path]:
    """Seconds over nodes, one panel a shape."""
    panels = {}
    for shape in COMPARED:
        if shape == "half repeated":
            continue
        lines = {}
        for who in (OURS, *OTHERS):
            points = [(int(n), found * int(n) / 1e9) for n in map(str, SIZES)
                      if (found := total(rows, shape, who, n)) is not None]
            if points:
                lines[who] = points
        if lines:
            panels[shape] = lines
    title = "CSE of synthetic graphs, the pass alone; ours from DAG to DAG"
    return save_panels(stem.with_suffix(".png"), panels, "nodes", "seconds", title, logarithmic=True)


SECTION = Section("million", "The passes on graphs of up to a million nodes", labels, measure_scaling, grids, checks,
                  plot, of_workloads=False, expected=14.0)
