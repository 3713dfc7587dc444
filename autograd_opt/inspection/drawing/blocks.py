"""How a large graph is divided: by modules, by source lines, else where parameters are read.

Records of one run are consecutive and operands come first, so blocks of consecutive nodes
form no cycle.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass

from autograd_opt.graph import program_text
from autograd_opt.inspection.snapshot import Item
from autograd_opt.ops.table import OPS, VIEW

MODULES, LINES, PARTS = ("in blocks by module", "in blocks by source line; graph.follow(model) names modules",
                         "in blocks; graph.follow(model) names modules")
FEWEST = 5
"""Blocks that say more than one box for all."""
LONGEST, TOLD = 44, 3


@dataclass
class Block:
    """Consecutive nodes that are drawn as one box."""

    name: str
    items: list[Item]
    frame: str = ""
    """The module around it."""
    like: str = ""
    """An earlier block that does the same."""

    @property
    def work(self) -> list[Item]:
        """The nodes that compute something."""
        return [item for item in self.items if item.kind not in ("leaf", "constant")]

    @property
    def short(self) -> str:
        """The name as it is written inside the frame: what the module does itself goes by its operators."""
        if self.name != self.frame:
            return program_text.shorten(self.name.removeprefix(f"{self.frame}."), LONGEST)
        return told(self.work) or "leaves"

    def detail(self, optimized: bool) -> str:
        """Second line of the box: how many nodes, and what they are or became."""
        n = len(self.items)
        text = f"{n} node{'s' if n != 1 else ''}"
        if self.like:
            return f"{text}, like {self.like}"
        if self.work and self.name != self.frame:
            text += f": {told(self.work)}"
        states = Counter(item.state for item in self.items)
        gone = [] if optimized else [f"{states[s]} {s}" for s in ("merged", "pruned") if states[s]]
        return ", ".join([text, *gone])

    def hover(self, optimized: bool) -> str:
        """What the pointer shows: operators by number, and the source lines."""
        counts = Counter(item.op for item in self.items)
        lines = [self.name, self.detail(optimized), ", ".join(times(op, n) for op, n in counts.most_common(12))]
        return "\n".join(lines + sorted({item.source for item in self.items if item.source})[:12])

    def state(self, optimized: bool) -> str:
        """`merged` or `pruned` where all its work is, else `kept`."""
        states = {item.state for item in self.work}
        if not states or optimized or "kept" in states:
            return "kept"
        return "merged" if states == {"merged"} else "pruned"


def told(work: list[Item]) -> str:
    """The operators that say most: in their order, views only where there is nothing else."""
    names = [item.op for item in work if item.op not in OPS or not OPS[item.op].flags & VIEW] or [i.op for i in work]
    counts = Counter(names)
    parts = [times(op, n) for op, n in counts.items()]
    return ", ".join(parts[:TOLD] + ["…"] * (len(parts) > TOLD))


def times(op: str, n: int) -> str:
    """`mul` or `mul ×3`."""
    return f"{op} ×{n}" if n > 1 else op


def blocks_of(items: list[Item], limit: int) -> tuple[str, list[Block]]:
    """The finest division into at most `limit` blocks, and words for what it goes by."""
    lines = lines_of(items)
    deepest = max((item.module.count(".") + 1 for item in items if item.module), default=0)
    for depth in range(deepest, 0, -1):
        for divide in (divided, folded):
            found = divide(items, lines, depth)
            if len(found) <= limit:
                return MODULES, found
    found = divided(items, lines, 0)
    if FEWEST <= len(found) <= limit:
        return LINES, found
    parts = from_leaves(items)
    if not FEWEST <= len(parts) <= limit:
        size = -(-len(items) // limit)
        parts = [items[k:k + size] for k in range(0, len(items), size)]
    return PARTS, [Block(span(part), part) for part in parts]


def span(part: list[Item]) -> str:
    """First and last record number."""
    return f"%{part[0].index} … %{part[-1].index}"


def from_leaves(items: list[Item]) -> list[list[Item]]:
    """Parts that begin where a leaf is recorded, which is where it is read first: about a layer each."""
    parts: list[list[Item]] = [[]]
    for item in items:
        if item.kind == "leaf" and parts[-1] and parts[-1][-1].kind != "leaf":
            parts.append([])
        parts[-1].append(item)
    return parts


def lines_of(items: list[Item]) -> dict[int, str]:
    """Source line of each node; a leaf has that of the operation for which it was recorded."""
    found, line = dict[int, str](), ""
    for item in reversed(items):
        line = program_text.source_text(item.source) or line
        found[item.index] = line
    return found


def prefix(module: str, depth: int) -> str:
    """The first parts of a module's name; nothing where it has fewer.

    >>> prefix("net.layers.0", 2), prefix("net", 2)
    ('net.layers', '')
    """
    parts = module.split(".")
    return ".".join(parts[:depth]) if module and len(parts) >= depth else ""


def divided(items: list[Item], lines: dict[int, str], depth: int) -> list[Block]:
    """Runs of one module, named by at most `depth` parts; of one source line outside all modules."""
    def name_of(item: Item) -> str:
        known = item.module if depth else ""
        return prefix(known, depth) or known or lines[item.index]

    found: list[Block] = []
    for name, run in itertools.groupby(items, name_of):
        part = list(run)
        frame = prefix(part[0].module, depth - 1) if depth > 1 else ""
        found.append(Block(name or span(part), part, frame))
    return found


def folded(items: list[Item], lines: dict[int, str], depth: int) -> list[Block]:
    """As `divided`, but a module that does what an earlier one did stays whole."""
    found: list[Block] = []
    seen: dict[tuple[tuple[str, str], ...], str] = {}
    for outer in divided(items, lines, depth - 1):
        inner = divided(outer.items, lines, depth) if depth > 1 else [outer]
        if len(inner) > 1:
            does = tuple((item.op, item.module.removeprefix(outer.name)) for item in outer.work)
            outer.like = seen.setdefault(does, outer.name)
            if outer.like != outer.name:
                outer.frame = ""
                found.append(outer)
                continue
        found += inner
    return found
