"""Section `cse`: what each way of optimizing does to every workload, beside torch's own FX CSE."""

from __future__ import annotations

from pathlib import Path

import autograd_opt as ao

from .counts import WAYS
from .jobs import Settings, Tick
from .measure import EAGER, OFF, Variant, measure, recorded
from .plots import save_bars
from .section import Grid, Row, Section
from .workload import torch_leaf
from .workloads import MAKES, labels

NAMES = {OFF: "as written"}
"""Ways that the table calls by another name."""


def measure_cse(label: str, settings: Settings, on_round: Tick = lambda *_: None) -> Row:
    """One workload timed in every way."""
    base = MAKES[label](leaf=torch_leaf)
    variants = [Variant(EAGER, base, base.step)]
    for way, options in WAYS.items():
        workload = MAKES[label](leaf=ao.tensor)
        variants.append(Variant(way, workload, recorded(workload, **options)))
    times = measure(variants, settings.repeats, on_round)
    return {"name": label, "ways": {NAMES.get(way, way): {"ratio": timing.ratio, "spread": timing.spread}
                                    for way, timing in times.items()}}


def joined(row: Row, counts: Row) -> Row:
    """With what does not depend on the clock."""
    ways = {}
    for way, found in counts["ways"].items():
        name = NAMES.get(way, way)
        ways[name] = found | {"kernels": sum(found["kernels"].values())} | row["ways"][name]
    return row | {"ways": ways, "traced": counts["traced"], "surplus": counts["surplus"]}


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
    ), lines, "MB of tensors in one step, forward and backward. `reused`: calls answered while recording. Where every "
              "step has another structure (population), these numbers serve for backward too and no pass runs.")
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
                  plot=plot, counts=lambda label: label, joined=joined, expected=7.0)
