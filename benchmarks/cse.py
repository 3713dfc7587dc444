"""Section `cse`: what each way of optimizing does to every workload, beside torch's own FX CSE."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import autograd_opt as ao
from autograd_opt.passes import pass_names

from .counting import SiteCounter, allocations, kernels, plain_name, traced_names
from .jobs import Settings
from .measure import EAGER, Timing, Variant, measure, recorded
from .plots import save_bars
from .section import Grid, Row, Section
from .workload import torch_leaf
from .workloads import MAKES, labels

REUSE = "reuse only"
WAYS: dict[str, dict[str, Any]] = {
    "as written": {"optimize": False},
    REUSE: {"passes": []},
    **{f"{name} alone": {"passes": [name]} for name in pass_names()},
    "optimize=True": {"optimize": True},
}
"""Name in the table -> options of the graph.  Values are reused while recording in all but the first."""


def measure_cse(label: str, settings: Settings, on_round: Callable[[], None] = lambda: None) -> Row:
    """One workload in every way, and its trace."""
    base = MAKES[label](leaf=torch_leaf)
    variants = [Variant(EAGER, base, base.step)]
    for name, options in WAYS.items():
        workload = MAKES[label](leaf=ao.tensor)
        variants.append(Variant(name, workload, recorded(workload, **options)))
    times = measure(variants, settings.repeats, on_round)
    ways = {v.name: facts(v, times[v.name]) for v in variants}
    for v in variants[1:]:
        ways[v.name] |= nodes(v.workload, WAYS[v.name])
    best = variants[-1]
    with SiteCounter() as sites:
        best.run()
    traced = traced_names(base)
    row: Row = {"name": label, "ways": ways, "traced": None, "surplus": []}
    if traced is not None:
        row["traced"] = [sum(names.values()) for names in traced]
        row["surplus"] = surplus(sites, traced[1])
    return row


def facts(variant: Variant, timing: Timing) -> dict[str, Any]:
    """Kernels, bytes and time of one way."""
    allocated, peak = allocations(variant.run, variant.workload.leaves)
    return {"kernels": sum(kernels(variant.run).values()), "allocated": allocated, "peak": peak,
            "ratio": timing.ratio, "spread": timing.spread}


def nodes(workload: Any, options: dict[str, Any]) -> dict[str, int]:
    """Nodes of one step: written, whose values were reused, merged and pruned by the passes before a run."""
    with ao.AutogradGraph(**options) as graph:
        workload.step()
        runs = list(graph.runs)
        return {"nodes": len(graph), "reused": graph.tape.hits,
                "merged": max((run.merged for run in runs), default=0),
                "pruned": max((run.pruned for run in runs), default=0)}


def surplus(sites: SiteCounter, theirs: Counter[str]) -> list[dict[str, Any]]:
    """Operators that the optimized step calls more often than the trace does, and from where."""
    ours: Counter[str] = Counter()
    for (name, _), count in sites.sites.items():
        ours[name] += count
    merged: Counter[str] = Counter()
    for name, count in theirs.items():
        merged[plain_name(name)] += count
    out = []
    for name, count in sorted(ours.items()):
        if count > merged[name]:
            places = {site: n for (op, site), n in sites.sites.most_common() if op == name}
            out.append({"operator": name, "ours": count, "traced": merged[name], "from": places})
    return sorted(out, key=lambda line: line["traced"] - line["ours"])


def grids(rows: list[Row]) -> list[Grid]:
    """Every way of every workload, and the surplus calls."""
    found = [row for row in rows if "error" not in row]
    lines = []
    for row in found:
        for name, way in row["ways"].items():
            counts = [f"{way[key]:,}" if key in way else "" for key in ("nodes", "reused", "merged", "pruned")]
            lines.append([row["name"], name, *counts, f"{way['kernels']:,}", megabytes(way["allocated"]),
                          megabytes(way["peak"]), f"{way['ratio']:.2f}"])
        if row["traced"]:
            for name, count in zip(("traced by make_fx", "… after fx_graph_cse"), row["traced"], strict=True):
                lines.append([row["name"], name, "", "", "", "", f"{count:,}", "", "", ""])
    ways = Grid("Each way of optimizing", (
        "workload", "way", "nodes", "reused", "merged", "pruned", "kernels", "allocated", "peak", "time / torch eager"
    ), lines, "MB of tensors in one step, forward and backward. `reused`: calls answered while recording.")
    extra = [[row["name"], line["operator"], str(line["ours"]), str(line["traced"]), places(line["from"])]
             for row in found for line in row["surplus"]]
    surplus_grid = Grid("Kernels that torch's FX CSE does not leave, and ours runs", (
        "workload", "operator", "ours", "traced", "called from"), extra,
        "In-place forms count as their operator. A call saved elsewhere may stand against it: totals are above.")
    return [ways, surplus_grid]


def places(sites: dict[str, int], most: int = 4) -> str:
    """The places that call most often."""
    shown = [f"{site} ×{n}" if n > 1 else site for site, n in list(sites.items())[:most]]
    return ", ".join(shown) + (", …" if len(sites) > most else "")


def megabytes(n: int) -> str:
    return f"{n / 1e6:,.2f}"


def plot(rows: list[Row], stem: Path) -> list[Path]:
    """Kernels left, as a share of torch eager's."""
    groups: dict[str, dict[str, float]] = {}
    for row in rows:
        if "error" not in row:
            eager = row["ways"][EAGER]["kernels"]
            bars = {"autograd_opt": row["ways"]["optimize=True"]["kernels"] / eager}
            if row["traced"]:
                bars["torch.fx CSE"] = row["traced"][1] / eager
            groups[row["name"]] = bars
    title = "Kernels in one step, as a share of torch eager's"
    return save_bars(stem.with_suffix(".png"), groups, "share of torch eager's kernels", title, line=1.0)




SECTION = Section("cse", "Common subexpressions, pass by pass and beside torch.fx", labels, measure_cse, grids,
                  plot=plot)
