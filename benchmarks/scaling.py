"""Section `million`: do the passes stay linear up to a million nodes, and how do others fare?"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Sequence
from pathlib import Path

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
PATIENCE = {"torch.fx": 120.0}
USUAL_PATIENCE = 60.0
"""Seconds of processor time that building and passing one size may be expected to take another library.

The one that a bar names is given more: its 100,000 nodes are needed.
"""
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


def others(who: str, run: Callable[[Shape], tuple[float, int]], make: Callable[[int], Shape],
           sizes: Sequence[int], on_round: Tick) -> Row:
    """Sizes as far as another library goes in the time that it is given."""
    found: dict[str, dict[str, float]] = {}
    took = growth = 0.0
    patience = PATIENCE.get(who, USUAL_PATIENCE)
    for n in sizes:
        if took * max(growth, 10.0) > patience:
            return {"sizes": found, "notes": [f"{who}, {make(1000).name}: stopped before {n:,} nodes, "
                                              f"which would take more than {patience:.0f} s with building"]}
        before, begin = took, time.process_time()
        shape = make(n)
        try:
            results = [run(shape) for _ in range(3 if n < 10**5 else 1)]
        except RecursionError:
            return {"sizes": found, "notes": [f"{who}, {shape.name}: RecursionError at {n:,} nodes"]}
        took = (time.process_time() - begin) / len(results)
        growth = took / before if before else 0.0
        found[str(n)] = {"total": min(s for s, _ in results) / n * 1e9, "left": results[-1][1] / n}
        on_round()
    return {"sizes": found}


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
                    "The pass alone, on a graph built there before; ours from DAG to DAG.")
    return [stages, compared]


def sizes_of(rows: list[Row], shape: str) -> list[str]:
    return list(next((row["sizes"] for row in rows if row["name"] == shape and "sizes" in row), {}))


def total(rows: list[Row], shape: str, who: str, n: str) -> float | None:
    """Nanoseconds per node, if measured."""
    if who != OURS and shape == "all hashes 0":
        shape = "half repeated"
    for row in rows:
        if row.get("shape") == shape and row.get("who") == who and n in row.get("sizes", {}):
            return float(row["sizes"][n]["total"])
    return None


def per_node(rows: list[Row], shape: str, who: str, n: str) -> str:
    found = total(rows, shape, who, n)
    return "—" if found is None else f"{found:,.0f}"


def checks(rows: list[Row]) -> list[Check]:
    """Time a node, linearity, and the distance to torch.fx."""
    out = []
    for shape in MAKES:
        million, tenth = total(rows, shape, OURS, "1000000"), total(rows, shape, OURS, "100000")
        if million is not None and tenth is not None:
            out.append(Check(shape, "ns a node at 10⁶, DAG to DAG", million, *bars.NODE_NANOSECONDS_BAR))
            out.append(Check(shape, "t(10⁶) / t(10⁵)", 10 * million / tenth, *bars.GROWTH_BAR))
        theirs = total(rows, shape, "torch.fx", "100000")
        if theirs is not None and tenth is not None:
            out.append(Check(shape, "times faster than torch.fx at 10⁵", theirs / tenth, *bars.FX_BAR))
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
