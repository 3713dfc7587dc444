"""What optimizing a graph did: counts, groups of merged nodes, near misses, operators.

A `Report` is plain data: it holds no node and no tensor, and outlives its graph.
"""

from __future__ import annotations

import io
from collections import Counter
from dataclasses import asdict, dataclass, field
from html import escape
from typing import Any

from autograd_opt.graph import program_text
from autograd_opt.inspection.snapshot import Scene, scene_of


@dataclass(frozen=True)
class PassLine:
    """What one pass did."""

    name: str
    merged: int
    pruned: int
    seconds: float


@dataclass(frozen=True)
class Group:
    """Nodes that are one value."""

    expression: str
    type: str
    nodes: tuple[int, ...]
    sources: tuple[str, ...]
    """Source line of each node, `?` where none was recorded."""
    bytes: int
    """Of the outputs that merging does without."""


@dataclass(frozen=True)
class NearMiss:
    """Two nodes of one operator on the same operands that are two values all the same."""

    first: int
    second: int
    op: str
    reason: str
    sources: tuple[str, str]


@dataclass(frozen=True)
class Report:
    """What `graph.report()` returns.

    Attributes
    ----------
    nodes, edges : (as written, optimized).
    reused : kernel calls that did not run because their value was there.
    saved_bytes : bytes of the outputs of those calls.
    recomputed : repeated calls that did run, their value being gone.
    kept_bytes, peak_kept_bytes : values kept alive for reuse only, now and at most.
    passes, groups, near_misses : see `PassLine`, `Group`, `NearMiss`.
    with_rule, opaque : operator name to number of nodes.
    """

    name: str
    nodes: tuple[int, int] = (0, 0)
    edges: tuple[int, int] = (0, 0)
    reused: int = 0
    saved_bytes: int = 0
    recomputed: int = 0
    kept_bytes: int = 0
    peak_kept_bytes: int = 0
    rested: bool = False
    """Nothing was looked up while recording: at this place of the program it had not paid in the graphs before."""
    planned: tuple[int, int] = (0, 0)
    """Backward runs whose plan was known from an equal structure, of those that had one."""
    passes: tuple[PassLine, ...] = ()
    groups: tuple[Group, ...] = ()
    near_misses: tuple[NearMiss, ...] = ()
    with_rule: dict[str, int] = field(default_factory=dict)
    opaque: dict[str, int] = field(default_factory=dict)
    released: bool = False
    """The graph had been left: only the counts of calls and bytes remain."""

    @property
    def merged(self) -> int:
        """Nodes merged into another."""
        return sum(p.merged for p in self.passes)

    @property
    def pruned(self) -> int:
        """Nodes that no output needs."""
        return sum(p.pruned for p in self.passes)

    def to_dict(self) -> dict[str, object]:
        """For JSON."""
        return {**asdict(self), "merged": self.merged, "pruned": self.pruned}

    def __str__(self) -> str:
        from rich.console import Console
        stream = io.StringIO()
        Console(file=stream, width=100, highlight=False, color_system=None, force_jupyter=False).print(self)
        return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())

    def __rich__(self) -> Any:
        from rich.console import Group as Stack
        from rich.text import Text
        parts: list[Any] = [Text(line) for line in self.lines()]
        for title, heads, rows in self.tables():
            parts += [Text(""), Text(title, style="bold"), _table(heads, rows)]
        return Stack(*parts)

    def _repr_html_(self) -> str:
        parts = [f"<p>{'<br>'.join(map(escape, self.lines()))}</p>"]
        for title, heads, rows in self.tables():
            body = "".join("<tr>" + "".join(f"<td>{escape(c)}</td>" for c in row) + "</tr>" for row in rows)
            head = "".join(f"<th>{escape(h)}</th>" for h in heads)
            parts.append(f"<table><caption>{escape(title)}</caption><tr>{head}</tr>{body}</table>")
        return "\n".join(parts)

    def lines(self) -> list[str]:
        """The counts as sentences."""
        out = [self.name]
        if self.released:
            out.append("the graph has been left; call report() inside the context to see nodes and groups")
        else:
            out.append(f"nodes {self.nodes[0]} → {self.nodes[1]}, edges {self.edges[0]} → {self.edges[1]}: "
                       f"{self.merged} merged, {self.pruned} pruned")
        if self.rested:
            out.append("recorded as with optimize=False: "
                       "in the graphs opened here before nothing was worth looking for")
        out.append(f"calls not run again: {self.reused}, their outputs {size_text(self.saved_bytes)}; "
                   f"run again because the value was gone: {self.recomputed}")
        out.append(f"kept for reuse: {size_text(self.kept_bytes)}, at most {size_text(self.peak_kept_bytes)}")
        if self.planned[1]:
            known, runs = self.planned
            out.append(f"backward runs with a plan: {runs}, known from an equal structure: {known}")
        if self.opaque:
            out.append("recorded whole, differentiated by torch: "
                       + ", ".join(f"{op} ×{n}" for op, n in sorted(self.opaque.items())))
        return out

    def tables(self) -> list[tuple[str, tuple[str, ...], list[tuple[str, ...]]]]:
        """The tables that are not empty: title, headings, rows."""
        found: list[tuple[str, tuple[str, ...], list[tuple[str, ...]]]] = []
        if self.passes:
            found.append(("passes", ("pass", "merged", "pruned", "ms"), [
                (p.name, str(p.merged), str(p.pruned), f"{p.seconds * 1e3:.2f}") for p in self.passes]))
        if self.groups:
            found.append(("one value, written several times", ("value", "times", "bytes", "where"), [
                (f"{g.expression}  {g.type}", str(len(g.nodes)), size_text(g.bytes), places(g.sources))
                for g in self.groups]))
        if self.near_misses:
            found.append(("near misses", ("operator", "nodes", "kept apart because"), [
                (m.op, f"%{m.first}, %{m.second}", m.reason) for m in self.near_misses]))
        if self.with_rule:
            found.append(("operators with a rule", ("operator", "nodes"), [
                (op, str(n)) for op, n in sorted(self.with_rule.items(), key=lambda kv: (-kv[1], kv[0]))]))
        return found


def _table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape as plain
    from rich.table import Table
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for k, head in enumerate(heads):
        table.add_column(head, justify="right" if k and head != "where" and len(head) < 9 else "left")
    for row in rows:
        table.add_row(*map(plain, row))
    return table


def places(sources: tuple[str, ...]) -> str:
    """`a.py:3 ×2, b.py:7`."""
    counts = Counter(map(program_text.source_text, sources))
    return ", ".join(f"{s} ×{n}" if n > 1 else s for s, n in counts.items())


def size_text(n: int) -> str:
    """A number of bytes, readable.

    >>> size_text(2_500_000)
    '2.4 MiB'
    """
    value = float(n)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"


def make_report(graph: Any, outputs: Any = None) -> Report:
    """Read `graph` for `outputs` (default: every unused value)."""
    tape = graph.tape
    if tape is None:
        return Report(graph.label)
    counts = {
        "reused": tape.hits, "saved_bytes": tape.reused_bytes, "recomputed": tape.recomputed,
        "planned": graph.planned, "kept_bytes": tape.retention.kept_bytes,
        "peak_kept_bytes": tape.retention.peak_kept_bytes, "rested": graph.optimize and not tape.optimize,
    }
    if len(tape) == 0:
        return Report(graph.label, **counts, released=graph.thread is None)
    scene = scene_of(graph, outputs)
    after = scene.optimized_items()
    from autograd_opt.inspection.difference import near_misses
    with_rule, opaque = (dict(Counter(item.op for item in scene.items if item.kind == kind and item.op != "output"))
                         for kind in ("operation", "opaque"))
    return Report(
        graph.label, (len(scene.items), len(after)), (scene.edges(scene.items), scene.edges(after)), **counts,
        passes=tuple(PassLine(p.name, p.merged, p.pruned, p.seconds) for p in scene.passes),
        groups=groups_of(scene), near_misses=tuple(near_misses(graph, scene)), with_rule=with_rule, opaque=opaque,
    )


def groups_of(scene: Scene) -> tuple[Group, ...]:
    """Merged nodes, the largest saving first."""
    found = [
        Group(item.text, item.type, item.merged, tuple(scene.items[m].source or "?" for m in item.merged),
              item.bytes * (len(item.merged) - 1))
        for item in scene.groups()
    ]
    return tuple(sorted(found, key=lambda g: (-g.bytes, -len(g.nodes), g.nodes)))
