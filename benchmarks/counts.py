"""What does not depend on the clock, for every way of running a workload; counted once for all sections.

Nodes, values reused, merged and pruned; kernels; bytes allocated and alive at the peak; and
the step traced by torch's `make_fx`, once, before and after torch's own CSE.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import autograd_opt as ao
from autograd_opt.passes import pass_names

from .counting import SiteCounter, allocations, kernels, plain_name, traced_names
from .jobs import Settings, Tick
from .measure import EAGER, OFF, ON, Variant, recorded
from .section import Row
from .workload import torch_leaf
from .workloads import MAKES

REUSE = "reuse only"
WAYS: dict[str, dict[str, Any]] = {
    OFF: {"optimize": False},
    REUSE: {"passes": []},
    **{f"{name} alone": {"passes": [name]} for name in pass_names()},
    ON: {"optimize": True},
}
"""Options of the graph in each way.  Values are reused while recording in all but the first."""
NODES = ("nodes", "reused", "merged", "pruned")
SETTLED = 6
"""Steps after which nothing more is learned about what to keep for reuse."""


def measure_counts(label: str, settings: Settings, on_round: Tick = lambda *_: None) -> Row:
    """One workload in every way, and its trace."""
    ways = {}
    for way in (EAGER, *WAYS):
        ways[way] = facts(label, way)
        on_round()
    traced = traced_names(settled(variant_of(label, EAGER)).workload)
    row: Row = {"name": label, "ways": ways, "traced": None, "surplus": []}
    if traced is not None:
        row["traced"] = [names.total() for names in traced]
        row["surplus"] = surplus(sites_of(label), traced[1])
    return row


def variant_of(label: str, way: str) -> Variant:
    """A workload made anew, at a place of its own, with `facts["nodes"]` of the latest step in its workload."""
    workload = MAKES[label](leaf=torch_leaf if way == EAGER else ao.tensor)
    if way == EAGER:
        return Variant(way, workload, workload.step)
    return Variant(way, workload, recorded(workload, lambda graph: workload.facts.update(nodes(graph)), **WAYS[way]))


def settled(variant: Variant) -> Variant:
    """After some steps; where each step has another structure, the next one is new as well."""
    for _ in range(SETTLED):
        variant.run()
        if variant.workload.advance is not None:
            variant.workload.advance()
    return variant


def facts(label: str, way: str) -> dict[str, Any]:
    """Kernels by name, bytes and nodes of a step."""
    variant = settled(variant_of(label, way))
    changes = variant.workload.advance is not None
    names = kernels(variant.run, warm=not changes)
    if changes:             # a structure that is seen once only: the second count needs it for the first time, too
        variant = settled(variant_of(label, way))
    allocated, peak = allocations(variant.run, variant.workload.leaves, warm=not changes)
    found = {"kernels": dict(names), "allocated": allocated, "peak": peak}
    return found | {name: variant.workload.facts[name] for name in NODES if way != EAGER}


def nodes(graph: Any) -> dict[str, int]:
    """Nodes of a step: written, whose values were reused, merged and pruned by the passes before a run."""
    runs = list(graph.runs)
    return {"nodes": len(graph), "reused": graph.tape.hits,
            "merged": max((run.merged for run in runs), default=0),
            "pruned": max((run.pruned for run in runs), default=0)}


def sites_of(label: str) -> SiteCounter:
    """Kernels of the optimized step by the lines that call for them."""
    variant = settled(variant_of(label, ON))
    with SiteCounter() as sites:
        variant.run()
    return sites


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
