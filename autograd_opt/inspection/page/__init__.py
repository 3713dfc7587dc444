"""A page to browse a graph: one HTML file that needs no network.

Search, zoom, as written and optimized; a click on a node shows its operator, attributes, shape,
source, rule and gradient formula, and every line of its group.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from html import escape
from importlib import resources
from typing import Any

from autograd_opt._common.files import path_of, written_whole
from autograd_opt.inspection.drawing import dot, style, to_mermaid
from autograd_opt.inspection.drawing.boxes import title_of
from autograd_opt.inspection.formulas import formulas_of
from autograd_opt.inspection.snapshot import Item, Scene, scene_of

COLUMN, ROW = 150, 84
"""Pixels between columns and rows."""
SWEEPS = 6


def to_html(graph: Any, path: Any = None, optimized: bool = False) -> Any:
    """Write the page of `graph` to `path`; returns its text where there is no path.

    `optimized` says which of its two views opens first.

    >>> import autograd_opt as ao
    >>> x = ao.tensor([1.0])
    >>> with ao.AutogradGraph() as graph:
    ...     y = x * 2
    ...     text = to_html(graph)
    >>> text[:15]
    '<!doctype html>'
    """
    text = page(scene_of(graph), rules_of(graph), optimized)
    if path is None:
        return text
    path = path_of("path", path)
    with written_whole(path) as draft:
        draft.write_text(text, encoding="utf-8")
    return path


def rules_of(graph: Any) -> dict[str, dict[str, str]]:
    """Gradient formulas by operator name, of the operators that the graph has."""
    held: dict[str, dict[str, str]] | None = getattr(graph, "rules", None)
    if held is not None:                 # a snapshot
        return held
    nodes = graph.tape.snapshot() if graph.tape is not None else []
    ops = {n.op.name: n.op for n in nodes if not n.is_leaf}
    return {name: formulas_of(op) for name, op in sorted(ops.items())}


def page(scene: Scene, rules: dict[str, dict[str, str]], opens_optimized: bool = False) -> str:
    """The page's text."""
    files = resources.files(__package__)
    optimized = {item.index: item for item in scene.optimized_items()}
    groups = {item.index: k for k, item in enumerate(scene.groups())}
    nodes = []
    for item in scene.items:
        data = item.to_dict()
        data["state"], data["title"] = item.state, title_of(item)
        data["rule"] = rules.get(item.op, {})
        data["group"] = groups.get(item.leader, -1)
        data["led"] = list(optimized[item.index].operands) if item.index in optimized else []
        nodes.append(data)
    everything = {
        "title": scene.name, "row": ROW, "nodes": nodes, "outputs": list(scene.outputs), "palette": style.PALETTE,
        "opensOptimized": opens_optimized,
        "written": positions(scene.items), "optimized": positions(list(optimized.values())),
    }
    # "</script" would end the script element wherever it stands, "<!--<script" would keep it open
    data_text = json.dumps(everything, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
    return TEMPLATE.format(
        title=escape(scene.name), css=(files / "page.css").read_text("utf-8"), data=data_text,
        script=(files / "page.js").read_text("utf-8"),
    )


def positions(items: list[Item]) -> dict[int, tuple[int, int]]:
    """Record number to x and y: rows by depth, ordered and placed by the mean of the neighbours."""
    ids = [str(item.index) for item in items]
    edges = [(str(o), str(item.index)) for item in items for o in set(item.operands) if o is not None]
    level = levels(ids, edges)
    above: dict[str, list[str]] = defaultdict(list)
    below: dict[str, list[str]] = defaultdict(list)
    for a, b in edges:
        above[b].append(a)
        below[a].append(b)
    rows: dict[int, list[str]] = defaultdict(list)
    for i in ids:
        rows[level[i]].append(i)
    x = {i: float(k) - len(row) / 2 for row in rows.values() for k, i in enumerate(row)}
    for sweep in range(SWEEPS):
        for depth in sorted(rows, reverse=bool(sweep % 2)):
            row = rows[depth]
            near = above if sweep % 2 == 0 else below
            wanted = {i: sum(x[n] for n in near[i]) / len(near[i]) if near[i] else x[i] for i in row}
            row.sort(key=wanted.__getitem__)
            place(row, wanted, x)
    return {int(i): (round(x[i] * COLUMN), level[i] * ROW) for i in ids}


def levels(ids: Sequence[str], edges: Sequence[tuple[str, str]]) -> dict[str, int]:
    """Rows from the top; `ids` come in topological order.  Boxes without operands sink to their first user."""
    level = dict.fromkeys(ids, 0)
    operands: dict[str, list[str]] = defaultdict(list)
    users: dict[str, list[str]] = defaultdict(list)
    for a, b in edges:
        operands[b].append(a)
        users[a].append(b)
    for i in ids:
        level[i] = max((level[o] + 1 for o in operands[i]), default=0)
    for i in ids:
        if not operands[i] and users[i]:
            level[i] = max(0, min(level[u] for u in users[i]) - 1)
    return level


def place(row: list[str], wanted: dict[str, float], x: dict[str, float]) -> None:
    """Give a row its columns: at least 1 apart, near to where each box wants to be."""
    pools: list[tuple[float, int]] = []
    for k, i in enumerate(row):
        mean, n = wanted[i] - k, 1
        while pools and pools[-1][0] > mean:
            other, m = pools.pop()
            mean, n = (mean * n + other * m) / (n + m), n + m
        pools.append((mean, n))
    starts = [mean for mean, n in pools for _ in range(n)]
    for k, i in enumerate(row):
        x[i] = starts[k] + k


def notebook_html(graph: Any) -> str:
    """What a notebook shows: the picture, as text in Mermaid's language without Graphviz, and the report below it."""
    if not len(graph):
        return f"<pre>{escape(repr(graph))}</pre>"
    picture = graph.draw() if dot.installed() else f'<pre class="mermaid">{escape(to_mermaid(graph))}</pre>'
    return f'<div style="overflow:auto;max-height:40em">{picture}</div>{graph.report()._repr_html_()}'


TEMPLATE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>{title}</title>
<style>{css}</style></head>
<body>
<header>
  <strong id="title">{title}</strong>
  <label><input type="checkbox" id="optimized"> optimized</label>
  <input id="search" type="search" autocomplete="off" placeholder="search ( / ): add, train.py:12, layers.0, merged">
  <span id="count"></span>
  <button id="fit" title="key 0">show all</button>
</header>
<main><canvas id="view" tabindex="0" aria-label="the graph; use the search to list nodes"></canvas>
<aside id="side"><div id="hits"></div><div id="details"></div></aside></main>
<template id="legend"><h2>{title}</h2>
<p>Click a node for its operator, attributes, shape, source line, rule, and the lines of its group.
Drag to move, wheel, pinch or + and − to zoom, 0 to show all, / to search, n and p for the next and the previous hit,
arrow keys on the graph for the node in that direction.</p>
<dl><dt>bold rectangle</dt><dd>leaf</dd><dt>dashed rectangle</dt><dd>constant</dd>
<dt>rounded</dt><dd>operation</dd><dt>dashed, rounded</dt><dd>operation merged into an equal one</dd>
<dt>one colour</dt><dd>one value, written several times</dd><dt>grey, struck out</dt><dd>pruned: no output needs it</dd>
<dt>hexagon</dt><dd>pinned by a hook or retain_grad</dd><dt>parallelogram</dt><dd>opaque: torch's own derivative</dd>
<dt>double outline</dt><dd>output</dd></dl></template>
<script type="application/json" id="data">{data}</script>
<script>{script}</script>
</body></html>
"""

__all__ = ["notebook_html", "page", "to_html"]
