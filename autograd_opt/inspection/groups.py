"""How a large graph is divided: by modules, by source lines, or by the trees of a population.

Whatever is folded, the boxes that are left form no cycle.  Parts by module and line are runs of consecutive records,
and operands are recorded first.  Trees and shared values are told apart by which trees need a node: what reads it is
needed by no other trees than it.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from autograd_opt.graph import program_text
from autograd_opt.inspection.snapshot import Item, Scene
from autograd_opt.ops.table import OPS, VIEW

MODULES, LINES, TREES = "by module", "by source line; graph.follow(model) names modules", "by tree"
WIDE = 48
"""Most parts directly in one group; more are folded once again."""
FEWEST, MOST = 8, 4096
"""Trees of a population."""
GATHERING = frozenset({"stack", "cat", "output"})
"""Operators whose operands are the trees, where they end a program."""
CLOSING = frozenset({"sum", "mean", "neg", "view", "reshape"})
"""Operators that may follow those."""
TOLD = 3
LONGEST_PERIOD = 2000
Entry = tuple[tuple[str, str] | None, list[Item]]
"""Consecutive nodes, and the name and kind of what they are; None for a node that is in no further group."""


@dataclass
class Group:
    """Nodes that are drawn as one box while it is folded."""

    name: str
    kind: str
    """`module`, `line`, `part`, `tree` or `shared`."""
    parent: int = -1
    """The group around it."""


@dataclass
class Division:
    """The groups of a graph, and of every node the innermost one, as written and optimized; -1: in none."""

    words: str
    groups: list[Group] = field(default_factory=list)
    written: list[int] = field(default_factory=list)
    optimized: list[int] = field(default_factory=list)
    heads: list[int] = field(default_factory=list)
    """The results of a population's trees."""
    trees: list[int] = field(default_factory=list)
    """The groups of these trees."""
    cores: list[int] = field(default_factory=list)
    """The results without what all trees do alike with them at last, such as the same loss."""
    shared: list[tuple[int, int]] = field(default_factory=list)
    """The values of a population that most trees need, and of how many: what saves most first."""

    def group(self, name: str, kind: str, parent: int = -1) -> int:
        """A new group's number."""
        self.groups.append(Group(name, kind, parent))
        return len(self.groups) - 1

    def around(self, g: int) -> list[int]:
        """A group and those around it, the outermost first."""
        found: list[int] = []
        while g >= 0:
            found.append(g)
            g = self.groups[g].parent
        return found[::-1]

    def short(self, g: int) -> str:
        """A group's name inside the one around it."""
        group = self.groups[g]
        return group.name if group.parent < 0 else group.name.removeprefix(f"{self.groups[group.parent].name}.")


def division_of(scene: Scene) -> Division:
    """Divide a graph."""
    followed = any(item.module for item in scene.items)
    heads = [] if followed else heads_of(scene)
    if heads:
        found = population(scene, heads)
        if found is not None:
            return found
    made = Division(MODULES if followed else LINES, written=[-1] * len(scene.items))
    nest(made, scene.items, paths_of(scene.items), -1, 0)
    made.optimized = made.written
    return made


# By module and line -----------------------------------------------------------------------
def paths_of(items: list[Item]) -> list[tuple[tuple[str, str], ...]]:
    """Of every node the modules around it, the outermost first, else its line and the module whose values it reads.

    A leaf is where the operation is for which it was recorded.
    """
    prefixes: dict[str, tuple[tuple[str, str], ...]] = {"": ()}
    reads: dict[int, str] = {}
    line, found = "", list[tuple[tuple[str, str], ...]]()
    for item in items:
        if item.module not in prefixes:
            parts = item.module.split(".")
            prefixes[item.module] = tuple((".".join(parts[:k + 1]), "module") for k in range(len(parts)))
        near = [reads[o] for o in item.operands if o is not None and reads.get(o)]
        reads[item.index] = item.module or (near[-1] if near else "")
    for item in reversed(items):
        line = program_text.source_text(item.source) or line
        path = prefixes[item.module]
        if not path and line:
            path = ((line, "line"),)
            if reads[item.index]:
                path += ((f"reads {reads[item.index]}", "part"),)
        found.append(path)
    return found[::-1]


def nest(made: Division, items: Sequence[Item], paths: list[tuple[tuple[str, str], ...]], parent: int,
         depth: int) -> None:
    """Divide a run of consecutive nodes into groups within `parent`."""
    entries: list[Entry] = []
    for key, run in itertools.groupby(items, lambda i: paths[i.index][depth] if len(paths[i.index]) > depth else None):
        part = list(run)
        entries += [(key, part)] if key and len(part) > 1 else [(None, [item]) for item in part]
    if len(entries) == 1 and entries[0][0] is not None and parent >= 0:
        nest(made, items, paths, parent, depth + 1)
        return
    if len(entries) > WIDE:
        for pieces in chunks(entries):
            part = [item for _, run in pieces for item in run]
            if len(part) == 1:
                enter(made, part, parent)
            else:
                nest(made, part, paths, made.group(*named(pieces, part), parent), depth)
        return
    for key, part in entries:
        if key is None:
            enter(made, part, parent)
            continue
        d = depth
        first = paths[part[0].index]
        while key[1] == "module" and len(first) > d + 1 and all(paths[i.index][d + 1:d + 2] == first[d + 1:d + 2]
                                                               for i in part):
            d += 1
        nest(made, part, paths, made.group(*first[d], parent), d + 1)


def enter(made: Division, part: list[Item], g: int) -> None:
    """Put nodes directly into a group."""
    for item in part:
        made.written[item.index] = g


def chunks(entries: list[Entry]) -> list[list[Entry]]:
    """At most `WIDE` pieces: rounds of what repeats, else from one leaf's first use to the next, else of one size."""
    n = len(entries)
    first, length = period([key or (run[0].op, run[0].kind) for key, run in entries])
    if length:
        starts = list(range(first or length, n, length * -(-n // length // WIDE)))
    else:
        starts = [k for k, (_, run) in enumerate(entries)
                  if k and run[0].kind == "leaf" and entries[k - 1][1][-1].kind != "leaf"]
        if not FEWEST <= len(starts) < WIDE:
            starts = list(range(max(2, -(-n // WIDE)), n, max(2, -(-n // WIDE))))
    return [entries[a:b] for a, b in itertools.pairwise([0, *starts, n])]


def period(symbols: Sequence[tuple[str, str]]) -> tuple[int, int]:
    """Where a repetition begins and how long a round of it is; a length of 0 where nine tenths do not repeat.

    >>> period([("x", "")] + [("a", ""), ("b", ""), ("c", "")] * 40)
    (1, 3)
    """
    numbers: dict[tuple[str, str], int] = {}
    row = np.array([numbers.setdefault(s, len(numbers)) for s in symbols])
    for length in range(2, min(len(row) // 3, LONGEST_PERIOD) + 1):
        same = row[length:] == row[:-length]
        if np.count_nonzero(same) > 0.9 * len(same) and len(set(row[-length:].tolist())) > 1:
            return int(np.argmax(same)), length
    return 0, 0


def named(pieces: Sequence[Entry], part: list[Item]) -> tuple[str, str]:
    """Name and kind of some parts that are folded together: the first and the last."""
    keys = [key for key, _ in pieces if key is not None]
    if len(keys) == len(pieces) == 1:
        return keys[0]
    first, last = (keys[0][0], keys[-1][0]) if keys else ("", "")
    return (f"{first} … {last}" if first != last else f"%{part[0].index} … %{part[-1].index}"), "part"


# By tree ----------------------------------------------------------------------------------
def heads_of(scene: Scene) -> list[int]:
    """The results of a population's trees; none where there is no population.

    They are the graph's results, or the operands of what gathers them: `stack`, or additions of one source line.
    """
    heads = sorted({i for i in scene.outputs if scene.items[i].kind != "leaf"})
    source = None
    while 0 < len(heads) <= MOST:
        wider: list[int] = []
        for i in heads:
            item = scene.items[i]
            adds = item.op == "add" and item.source and source in (None, item.source) and len(item.operands) == 2
            if (adds and len(heads) < FEWEST) or (adds and source):
                source = item.source
            opens = item.op in GATHERING or (adds and source) or (len(heads) == 1 and item.op in CLOSING)
            operands = [o for o in item.operands if o is not None and scene.items[o].kind not in ("leaf", "constant")]
            wider += operands if opens and operands else [i]
        wider = sorted(set(wider))
        if wider == heads:
            break
        heads = wider
    return heads if FEWEST <= len(heads) <= MOST else []


def cores_of(items: list[Item], heads: list[int]) -> list[int]:
    """Where trees differ: below what all of them do alike in the end."""
    cores = heads
    while True:
        found = [items[i] for i in cores]
        if len({(item.op, len(item.operands), str(item.attributes)) for item in found}) > 1:
            return cores
        columns = [c for c in zip(*(item.operands for item in found), strict=True)
                   if len({None if o is None else items[o].leader for o in c}) > 1]
        if len(columns) != 1 or any(o is None or not items[o].operands for o in columns[0]):
            return cores
        cores = [o for o in columns[0] if o is not None]


def needed_by(items: list[Item], heads: list[int], n: int) -> list[int]:
    """For every record which trees need it, a bit for each."""
    masks = [0] * n
    for k, i in enumerate(heads):
        masks[i] |= 1 << k
    for item in reversed(items):
        mine = masks[item.index]
        if mine:
            for o in item.operands:
                if o is not None:
                    masks[o] |= mine
    return masks


def population(scene: Scene, heads: list[int]) -> Division | None:
    """Divide by trees; None where many nodes belong to several, or one has most, as in a single program."""
    items, n = scene.items, len(scene.items)
    optimized = scene.optimized_items()
    written = needed_by(items, heads, n)
    after = needed_by(optimized, [items[i].leader for i in heads], n)
    work = [item.index for item in items if item.kind not in ("leaf", "constant")]
    alone = Counter(written[i] for i in work if written[i].bit_count() == 1)
    if alone.total() < 0.8 * len(work) or max(alone.values()) > len(work) / 4:
        return None
    made = Division(TREES, written=[-1] * n, optimized=[-1] * n, heads=heads, cores=cores_of(items, heads))
    size = -(-len(heads) // WIDE) if len(heads) > WIDE + FEWEST * 2 else 1
    for k in range(len(heads)):
        if size > 1 and k % size == 0:
            outer = made.group(f"trees {k + 1} to {min(k + size, len(heads))}", "tree")
        made.trees.append(made.group(f"tree {k + 1}", "tree", outer if size > 1 else -1))
    bands: dict[int, int] = {}
    parts: dict[tuple[int, int], int] = {}
    rest = -1
    for home, masks, view in ((made.written, written, items), (made.optimized, after, optimized)):
        for item in view:
            mask = masks[item.index]
            count = mask.bit_count()
            if item.kind in ("leaf", "constant"):
                continue
            if count == 1:
                home[item.index] = made.trees[mask.bit_length() - 1]
            elif count == 0:
                rest = rest if rest >= 0 else made.group("what is made of the trees", "part")
                home[item.index] = rest
            else:
                band = count.bit_length()
                if band not in bands:
                    low, high = 1 << (band - 1), min((1 << band) - 1, len(heads))
                    words = f"{low} to {high}" if low < high else f"{low}"
                    bands[band] = made.group(f"shared by {words} trees", "shared")
                if (band, mask) not in parts:
                    parts[band, mask] = made.group(f"shared by {count} trees", "shared", bands[band])
                home[item.index] = parts[band, mask]
    made.shared = most_shared(optimized, after)
    return made


def most_shared(items: list[Item], masks: list[int]) -> list[tuple[int, int]]:
    """Values that several trees need and nothing else does for just these, the largest saving first."""
    sizes = Counter(masks[item.index] for item in items if item.kind not in ("leaf", "constant"))
    inner = {o for item in items for o in item.operands if o is not None and masks[o] == masks[item.index]}
    found = [item.index for item in items if item.kind not in ("leaf", "constant") and item.index not in inner
             and masks[item.index].bit_count() > 1]
    found.sort(key=lambda i: (-(masks[i].bit_count() - 1) * sizes[masks[i]], i))
    return [(i, masks[i].bit_count()) for i in found]


# In words ---------------------------------------------------------------------------------
def told(items: Sequence[Item]) -> str:
    """The operators that say most: in their order, views only where there is nothing else."""
    work = [item for item in items if item.kind not in ("leaf", "constant")]
    names = [item.op for item in work if item.op not in OPS or not OPS[item.op].flags & VIEW] or [i.op for i in work]
    parts = [times(op, n) for op, n in Counter(names).items()]
    return ", ".join(parts[:TOLD] + ["…"] * (len(parts) > TOLD))


def times(op: str, n: int) -> str:
    """`mul` or `mul ×3`."""
    return f"{op} ×{n}" if n > 1 else op
