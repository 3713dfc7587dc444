"""The picture of a scene: node by node, or folded where there are many."""

from __future__ import annotations

import itertools
import linecache
from collections import Counter, defaultdict
from dataclasses import dataclass

from autograd_opt._common.arguments import whole
from autograd_opt.graph import program_text
from autograd_opt.inspection.drawing.boxes import Box, Frame, Picture, box_of, formula
from autograd_opt.inspection.groups import TREES, Division, division_of, times, told
from autograd_opt.inspection.snapshot import Item, Scene

LIMIT = 60
"""Most boxes in one picture."""
READERS = 8
"""Values that more boxes read are named in these boxes instead of joined to them by lines."""
FOLDED_READERS = 5
"""The same in a folded picture, whose lines are long."""
REPEATED = 5
"""A leaf that more nodes read is a tag in each of them; in a folded picture already one that two boxes read."""
LETTERS = "ABCDEFGHIJKL"
COLUMNS = 6


def picture_of(scene: Scene, optimized: bool, limit: int | None = None) -> Picture:
    """The picture of a scene, as written or optimized; folded beyond `limit` (60) nodes."""
    items = scene.optimized_items() if optimized else scene.items
    return pictures_of(scene, [(optimized, items)], limit, len(items))[0]


def comparison_of(scene: Scene, limit: int | None = None) -> list[Picture]:
    """As written and optimized, with the same boxes in the same places; what the passes remove is an empty outline."""
    views = [(False, scene.items), (True, scene.optimized_items())]
    pictures = pictures_of(scene, views, limit, len(scene.items))
    before, after = pictures
    known = {box.id: box for box in after.boxes}
    lines = [{(a, b) for a, b, _ in picture.edges} for picture in pictures]
    after.boxes = [known.get(box.id) or Box(box.id, box.title, box.detail, f"{box.title}: removed", box.kind, gone=True)
                   for box in before.boxes]
    after.hidden, after.loose = before.hidden + sorted(lines[0] - lines[1]), lines[1] - lines[0]
    after.frames, after.rows = before.frames, before.rows
    return pictures


def pictures_of(scene: Scene, views: list[tuple[bool, list[Item]]], limit: int | None, n: int) -> list[Picture]:
    """Pictures of some views at one level of detail."""
    limit = LIMIT if limit is None else whole("limit", limit, 1)
    if n <= limit:
        return [of_nodes(scene, items, optimized) for optimized, items in views]
    division = division_of(scene)
    if division.words == TREES:
        return [of_trees(scene, division, items, optimized) for optimized, items in views]
    fold = Folded(scene, division, views[0][1], limit)
    return [fold.picture(items, optimized) for optimized, items in views]


def caption(scene: Scene, items: list[Item], optimized: bool) -> str:
    """One line above the picture."""
    nodes = f"{len(items)} node{'s' if len(items) != 1 else ''}, {scene.edges(items)} edges"
    return f"{scene.name}, {'optimized' if optimized else 'as written'}: {nodes}"


def of_nodes(scene: Scene, items: list[Item], optimized: bool) -> Picture:
    """A box for every node."""
    numbers = {item.index: k for k, item in enumerate(scene.groups())}
    picture = Picture(caption(scene, items, optimized))
    edges: Counter[tuple[str, str]] = Counter()
    for item in items:
        group = numbers.get(item.leader) if item.merged or item.state == "merged" else None
        picture.boxes.append(box_of(scene, item, group, optimized))
        edges.update((f"n{o}", f"n{item.index}") for o in item.operands if o is not None)
    join(picture, edges, {f"n{i.index}": i for i in items if i.kind in ("leaf", "constant")}, REPEATED, READERS)
    return picture


def join(picture: Picture, edges: Counter[tuple[str, str]], leaves: dict[str, Item], most: int, many: int) -> None:
    """Draw lines between boxes, and tags for leaves and values that more than `most` and `many` boxes read."""
    readers = Counter(a for a, _ in edges)
    boxes = {box.id: box for box in picture.boxes}
    often = [a for a, n in readers.items() if a not in leaves and n > many]
    # in the colour of its group, else in one that no group has
    free = itertools.count(1 + max((box.group for box in picture.boxes if box.group is not None), default=-1))
    colour = {a: next(free) if (group := boxes[a].group) is None else group for a in often}
    for (a, b), n in edges.items():
        if a in leaves and (a not in boxes or readers[a] > most):
            leaf = leaves[a]
            boxes[b].tags.append((leaf.name or f"%{leaf.index}", None))
        elif a in colour:
            boxes[b].tags.append((program_text.shorten(boxes[a].title, 20), colour[a]))
            picture.hidden.append((a, b))
        else:
            picture.edges.append((a, b, n))
    for a, k in colour.items():
        boxes[a].group = k
    picture.boxes = [box for box in picture.boxes if box.id not in leaves or readers[box.id] <= most]


class Folded:
    """Which groups are open, so that few enough boxes are left; the same in every view."""

    def __init__(self, scene: Scene, division: Division, items: list[Item], limit: int) -> None:
        self.scene, self.division = scene, division
        self.inside: dict[int, list[Item]] = defaultdict(list)
        self.parts: dict[int, int] = Counter()
        for item in items:
            for g in division.around(division.written[item.index]):
                self.inside[g].append(item)
            self.parts[division.written[item.index]] += 1
        for g in self.inside:
            self.parts[division.groups[g].parent] += 1
        self.like: dict[int, str] = {}
        self.open = self.opened(limit)

    def opened(self, limit: int) -> set[int]:
        """Open all groups of a level, else those that do what no earlier one does, as long as few boxes are left."""
        groups, found = self.division.groups, {-1}
        count = self.parts[-1]
        level = [g for g in self.inside if groups[g].parent == -1]
        while level and count * 4 < limit:       # a picture of a quarter of the boxes is easier to read than a full one
            first = dict[object, int]()
            for g in level:
                first.setdefault(self.does(g), g)
            new = [g for g in level if first[self.does(g)] == g]
            self.like |= {g: groups[first[self.does(g)]].name for g in level if g not in new}
            modules = [g for g in new if groups[g].kind == "module"]
            for choice in (level, new, modules):
                more = count + sum(self.parts[g] - 1 for g in choice)
                if choice and more <= (limit if count < 4 else limit * 2 // 3):
                    break
            else:
                break
            count = more
            found.update(choice)
            level = [g for g in self.inside if groups[g].parent in choice]
        return found

    def does(self, g: int) -> tuple[tuple[str, str], ...]:
        """What tells a group from another: its operators and where in it they are."""
        name = self.division.groups[g].name
        return tuple((item.op, item.module.removeprefix(name)) for item in self.inside[g]
                     if item.kind not in ("leaf", "constant"))

    def box(self, index: int) -> str:
        """The box in which a node is drawn: its own or that of the outermost closed group."""
        for g in self.division.around(self.division.written[index]):
            if g not in self.open:
                return f"b{g}"
        return f"n{index}"

    def picture(self, items: list[Item], optimized: bool) -> Picture:
        """The picture of a view."""
        picture = Picture(f"{caption(self.scene, items, optimized)}, folded {self.division.words}")
        numbers = {item.index: k for k, item in enumerate(self.scene.groups())}
        home = {item.index: self.box(item.index) for item in items}
        members: dict[str, list[Item]] = defaultdict(list)
        for item in items:
            members[home[item.index]].append(item)
        frames: dict[int, int] = {-1: -1}
        for g in sorted(self.open - {-1}):
            frames[g] = len(picture.frames)
            picture.frames.append(Frame(self.division.short(g), [], frames[self.division.groups[g].parent]))
        edges: Counter[tuple[str, str]] = Counter()
        leaves: dict[str, Item] = {}
        readers: dict[int, set[str]] = defaultdict(set)
        for item in items:
            for o in item.operands:
                if o is not None:
                    readers[o].add(home[item.index])
        for item in items:
            repeated = item.kind in ("leaf", "constant") and len(readers[item.index] | {home[item.index]}) > 2
            if item.kind in ("leaf", "constant") and (repeated or home[item.index].startswith("n")):
                leaves[f"n{item.index}"] = item
            for o in item.operands:
                if o is not None and f"n{o}" in leaves:
                    edges[f"n{o}", home[item.index]] += home[o] != home[item.index]
                elif o is not None and home[o] != home[item.index]:
                    edges[home[o], home[item.index]] += 1
        for id, part in members.items():
            if id.startswith("n"):
                item = part[0]
                group = numbers.get(item.leader) if item.merged or item.state == "merged" else None
                box, g = box_of(self.scene, item, group, optimized), self.division.written[item.index]
            else:
                g = int(id[1:])
                box, g = self.block(g, part, optimized), self.division.groups[g].parent
            picture.boxes.append(box)
            if g >= 0:
                picture.frames[frames[g]].boxes.append(id)
        join(picture, +edges, leaves, 1, FOLDED_READERS)
        drawn = {box.id for box in picture.boxes}
        for frame in picture.frames:
            frame.boxes = [id for id in frame.boxes if id in drawn]
        return picture

    def block(self, g: int, part: list[Item], optimized: bool) -> Box:
        """The box of a closed group."""
        n = len(part)
        detail = f"{n} node{'s' if n != 1 else ''}"
        if g in self.like:
            detail += f", like {self.like[g]}"
        elif told(part):
            detail += f": {told(part)}"
        title = self.division.short(g)
        if self.division.groups[g].kind == "line":
            title = line_title(title, part)
        return block_of(f"b{g}", program_text.shorten(title, 60), detail, part, optimized)


def line_title(place: str, part: list[Item]) -> str:
    """A source line's place and its text, where that is at hand."""
    file, _, line = next((item.source for item in part if item.source), "").rpartition(":")
    code = linecache.getline(file, int(line)).strip() if line.isdecimal() else ""
    return f"{place}  {code}".strip()


def tree_title(scene: Scene, name: str, core: int, letters: dict[int, str]) -> str:
    """A tree's number and formula."""
    return program_text.shorten(f"{name.removeprefix('tree ')}: {formula(scene, core, letters, 50)}", 66)


@dataclass
class Named:
    """The values of a population that have a letter: node, number of trees, formula."""

    values: list[tuple[int, int, str]]
    letters: dict[int, str]


def named_values(scene: Scene, division: Division) -> Named:
    """The values that save most, named by letters; formulas of others are written with these."""
    chosen = division.shared[:len(LETTERS)]
    letters = {i: LETTERS[k] for k, (i, _) in enumerate(chosen)}
    return Named([(i, n, formula(scene, i, letters)) for i, n in chosen], letters)


def block_of(id: str, title: str, detail: str, part: list[Item], optimized: bool) -> Box:
    """A box for several nodes; it is grey where the passes remove all their work."""
    states = Counter(item.state for item in part if item.kind not in ("leaf", "constant"))
    gone = [] if optimized else [f"{states[s]} {s}" for s in ("merged", "pruned") if states[s]]
    counts = Counter(item.op for item in part)
    hover = [title, detail, ", ".join(times(op, n) for op, n in counts.most_common(12))]
    hover += sorted({item.source for item in part if item.source})[:12]
    state = "kept" if optimized or states["kept"] or not states else "merged" if states["merged"] else "pruned"
    return Box(id, title, ", ".join([detail, *gone]), "\n".join(hover), "block", state,
               is_output=any(item.is_output for item in part))


def of_trees(scene: Scene, division: Division, items: list[Item], optimized: bool) -> Picture:
    """A population: the values that most trees need on top, the trees below as formulas of these."""
    picture = Picture(f"{caption(scene, items, optimized)}, folded by tree")
    if division.cores != division.heads:
        end = formula(scene, division.heads[0], {scene.items[division.cores[0]].leader: "tree"})
        picture.caption += f"; a tree's result is {end}"
    named = named_values(scene, division)
    letters = named.letters
    for k, (i, n, text) in enumerate(named.values):
        once = f"computed once for {n} trees" if optimized else f"written in {n} trees"
        box = Box(f"n{i}", f"{LETTERS[k]} = {text}", once, f"{text}\n{once}", "operation", group=k)
        box.tags = tags_of(scene, [i], letters)
        picture.boxes.append(box)
    home = division.optimized if optimized else division.written
    inside: dict[int, list[Item]] = defaultdict(list)
    for item in items:
        for g in division.around(home[item.index])[:1]:
            inside[g].append(item)
    heads: dict[int, list[int]] = defaultdict(list)
    for g, i in zip(division.trees, division.cores, strict=True):
        heads[division.around(g)[0]].append(i)
    boxes: list[str] = []
    for g, group in enumerate(division.groups):
        if group.kind != "tree" or group.parent >= 0:
            continue
        part = inside[g]
        detail = f"{len(part)} node{'s' if len(part) != 1 else ''} of its own" if optimized else f"{len(part)} nodes"
        box = block_of(f"b{g}", group.name, detail, part, optimized)
        if len(heads[g]) == 1:
            box.title = tree_title(scene, group.name, heads[g][0], letters)
        box.tags = tags_of(scene, heads[g], letters)
        boxes.append(box.id)
        picture.boxes.append(box)
    top = [f"n{i}" for i in letters]
    picture.rows = [row[k:k + COLUMNS] for row in (top, boxes) for k in range(0, len(row), COLUMNS)]
    return picture


def tags_of(scene: Scene, heads: list[int], letters: dict[int, str]) -> list[tuple[str, int | None]]:
    """The named shared values that some results need, and how many of these where they are several."""
    counts: Counter[str] = Counter()
    for head in heads:
        stack = [scene.items[head].leader]
        seen = set(stack)
        while stack:
            i = stack.pop()
            if i in letters and (len(heads) > 1 or i != scene.items[head].leader):
                counts[letters[i]] += 1
            below = {scene.items[o].leader for o in scene.items[i].operands if o is not None} - seen
            seen |= below
            stack += below
    return [(f"{a} ×{n}" if n > 1 else a, LETTERS.index(a)) for a, n in sorted(counts.items())]
