"""A page to browse a graph: one HTML file that needs no network.

Groups unfold by a click; search, zoom, as written and optimized; a click on a node shows its operator, attributes,
shape, source, rule and gradient formula, and every line of its group.  `layout.js` says which boxes there are, dagre
places them, `page.js` draws them.
"""

from __future__ import annotations

import json
from collections import defaultdict
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from autograd_opt._common.files import path_of, written_whole
from autograd_opt.inspection.drawing import dot, style, to_mermaid
from autograd_opt.inspection.drawing.boxes import title_of, type_of
from autograd_opt.inspection.drawing.pictures import (
    LETTERS,
    LIMIT,
    Folded,
    line_title,
    named_values,
    tags_of,
    tree_title,
)
from autograd_opt.inspection.formulas import formulas_of
from autograd_opt.inspection.groups import MODULES, TREES, Division, division_of, told
from autograd_opt.inspection.progress import nodes_of, progress
from autograd_opt.inspection.snapshot import Item, Scene, scene_of


def to_html(graph: Any, path: Any = None, optimized: bool = False) -> str | Path:
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
    with progress(nodes_of(graph), 3) as begin:
        begin("reading the graph")
        scene, rules = scene_of(graph), rules_of(graph)
        begin("folding")
        folds = folding(scene)
        begin("writing the page")
        text = page(scene, rules, folds, optimized)
        if path is None:
            return text
        file: Path = path_of("path", path)
        with written_whole(file) as draft:
            draft.write_text(text, encoding="utf-8")
        return file


def rules_of(graph: Any) -> dict[str, dict[str, str]]:
    """Gradient formulas by operator name, of the operators that the graph has."""
    held: dict[str, dict[str, str]] | None = getattr(graph, "rules", None)
    if held is not None:                 # a snapshot
        return held
    nodes = graph.tape.snapshot() if graph.tape is not None else []
    ops = {n.op.name: n.op for n in nodes if not n.is_leaf}
    return {name: formulas_of(op) for name, op in sorted(ops.items())}


def page(scene: Scene, rules: dict[str, dict[str, str]], folds: dict[str, Any], opens_optimized: bool) -> str:
    """The page's text; `folds` says what `folding` found."""
    files = resources.files(__package__)
    optimized = {item.index: item for item in scene.optimized_items()}
    colours = {item.index: k for k, item in enumerate(scene.groups())}
    nodes = []
    for item in scene.items:
        data = item.to_dict()
        data["state"], data["title"] = item.state, title_of(item)
        data["group"] = colours.get(item.leader, -1)
        data["led"] = list(optimized[item.index].operands) if item.index in optimized else []
        if (short := type_of(item)) != item.type:
            data["short"] = short
        nodes.append(data)
    everything = {
        "title": scene.name, "nodes": nodes, "rules": rules, "palette": style.PALETTE,
        "opensOptimized": opens_optimized, **folds,
    }
    # "</script" would end the script element wherever it stands, "<!--<script" would keep it open
    data_text = json.dumps(everything, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
    scripts = [(files / name).read_text("utf-8") for name in ("dagre.min.js", "layout.js", "page.js")]
    return TEMPLATE.format(
        title=escape(scene.name), css=(files / "page.css").read_text("utf-8"), data=data_text,
        script="\n".join(scripts),
    )


def folding(scene: Scene) -> dict[str, Any]:
    """The groups, the one that each node is in, which are open at first, and the named values of a population."""
    small = len(scene.items) <= LIMIT
    division = division_of(scene)
    if small and division.words != MODULES:
        division = Division("", [], [-1] * len(scene.items), [-1] * len(scene.items))
    trees = division.words == TREES
    fold = None if trees else Folded(scene, division, scene.items, LIMIT)
    named = named_values(scene, division)
    cores: dict[int, list[int]] = defaultdict(list)
    for g, core in zip(division.trees, division.cores, strict=True):
        for around in division.around(g):
            cores[around].append(core)
    inside: dict[int, list[Item]] = defaultdict(list)
    for item in scene.items:
        for g in division.around(division.written[item.index]):
            inside[g].append(item)
    groups = []
    for g, group in enumerate(division.groups):
        title = division.short(g)
        if len(cores[g]) == 1:
            title = tree_title(scene, group.name, cores[g][0], named.letters)
        elif group.kind == "line":
            title = line_title(title, inside[g])
        groups.append({
            "name": group.name, "kind": group.kind, "title": title, "parent": group.parent, "told": told(inside[g]),
            "like": fold.like.get(g, "") if fold else "",
            "letters": [LETTERS.index(text[0]) for text, _ in tags_of(scene, cores[g], named.letters)],
        })
    return {
        "groups": groups, "written": division.written, "optimized": division.optimized,
        "open": [] if fold is None else list(range(len(groups))) if small else sorted(fold.open - {-1}),
        "shared": [{"node": i, "trees": n, "letter": LETTERS[k], "formula": text,
                    "letters": [LETTERS.index(t[0]) for t, _ in tags_of(scene, [i], named.letters)]}
                   for k, (i, n, text) in enumerate(named.values)],
    }


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
  <button id="previous" title="previous hit, key p" aria-label="previous hit">‹</button>
  <button id="next" title="next hit, key n" aria-label="next hit">›</button>
  <span id="count"></span>
  <button id="fold" title="fold the innermost groups, key f">fold</button>
  <button id="unfold" title="unfold every group by one level, key u">unfold</button>
  <button id="fit" title="key 0">show all</button>
</header>
<main><canvas id="view" tabindex="0" aria-label="the graph; use the search to list nodes"></canvas>
<aside id="side"><div id="hits"></div><div id="details"></div></aside></main>
<template id="legend"><h2>{title}</h2>
<p>Click a box with a tab to unfold it, the title of a frame to fold it again, and a node for its operator, attributes,
shape, source line, rule, and the lines of its group. Drag to move, wheel, pinch or + and − to zoom, 0 to show all,
/ to search, n and p for the next and the previous hit, u and f to unfold and fold everything by one level.
On the graph, arrow keys choose the box in that direction, Enter unfolds it.</p>
<dl><dt>bold rectangle</dt><dd>leaf</dd><dt>dashed rectangle</dt><dd>constant</dd>
<dt>rounded</dt><dd>operation</dd><dt>dashed, rounded</dt><dd>operation merged into an equal one</dd>
<dt>one colour</dt><dd>one value, written several times</dd><dt>grey, struck out</dt><dd>pruned: no output needs it</dd>
<dt>hexagon</dt><dd>pinned by a hook or retain_grad</dd><dt>parallelogram</dt><dd>opaque: torch's own derivative</dd>
<dt>double outline</dt><dd>output</dd><dt>with a tab</dt><dd>several nodes, folded</dd>
<dt>grey tag</dt><dd>a leaf, or a value that many boxes read, and this one too; or how many trees are read</dd>
<dt>letter</dt><dd>the value of that colour on top is read</dd></dl></template>
<script type="application/json" id="data">{data}</script>
<script>{script}</script>
</body></html>
"""

__all__ = ["notebook_html", "page", "to_html"]
