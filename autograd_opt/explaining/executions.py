"""Executions of expressions, modules and operations: which of them repeat another one as a whole.

A site is one expression of the program in one chain of calls; an execution is one time that it
runs. An execution repeats an earlier one if the operations below it had the same values in the
same order. Repeats are counted at the outermost site that repeats as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from autograd_opt.explaining.call_sites import Spot
from autograd_opt.explaining.sites import EXPRESSION, ROOT, Activation, Pair, Place, Site
from autograd_opt.explaining.value_ids import bytes_of

MOST_KEYS = 50_000
"""Values of executions remembered; the oldest quarter is forgotten beyond."""
MOST_SITES = 8
"""Sites remembered for one value."""
LONG = 64
"""Operations of an execution beyond which what they computed is not compared across a pause."""


@dataclass(eq=False, slots=True)
class Execution:
    """One time that a site runs."""

    site: Site
    parent: Execution | None
    begin: int
    activation: Any = None
    instruction: int = -1
    child: Any = None
    operator: Any = None
    """The first operation's exact key."""
    key: Any = 0
    content: int | None = 0
    """Of what its operations computed, for comparison across a pause; of an operation None until it is asked."""
    novel: bool = False
    impure: bool = False
    closed: bool = False
    written: bool = False
    gradients: bool = False
    leaves: list[Execution] = field(default_factory=list)
    """Operations below it, as long as all of them are repeats."""
    first: Execution | None = None
    """What it repeats; `latest` is True if its site's latest execution has that value, too."""
    latest: bool = False
    into: Execution | None = None
    """The execution as a part of which this one was counted."""
    pair: Pair | None = None
    matched: dict[Pair, int] = field(default_factory=dict)
    operands: list[tuple[int, Any]] = field(default_factory=list)
    """When and by which operation its operands were made, as long as the site may be moved out of a loop."""
    makers: tuple[Execution, ...] = ()
    row: Any = None
    anew: tuple[tuple[int, int], ...] = ()
    """Loops in whose run it is the first of its site: before each of them the value has to be computed once."""
    elsewhere: bool = False
    """True if the gradients of its result flow to other leaves than those of what it repeats."""
    places: set[Place] | None = None
    """Of the first execution with a value, the places that have computed it."""
    run: int = 0
    frees: int = 0
    """Backward runs begun before its end, all and the freeing ones."""
    values: tuple[int, ...] = ()
    """Of an operation: the numbers of its results; what follows is of operations, too."""
    grads: Any = None
    leaf_numbers: tuple[int, ...] = ()
    outcome: Any = None

    def computed_at(self) -> set[Place]:
        """The places that have computed the value of which this was the first execution."""
        if self.places is None:
            self.places = {self.site.place}
        return self.places


class Course:
    """The open executions of one thread, outermost first, and where its derivatives belong."""

    def __init__(self, site: Site) -> None:
        self.root = Execution(site, None, -1)
        self.root.novel = True
        self.open = [self.root]
        self.sequences: dict[int, tuple[Site, int]] = {}
        """Sites, and freeing backward runs begun before, by autograd's numbers, which each thread counts for itself."""
        self.run = self.frees = 0
        """Backward runs begun so far, and those of them that record nothing, as with `create_graph`, and so free the
        graph by default; `in_run` is True during one."""
        self.in_run = False


class Executions:
    """Opens and closes executions, and counts those that repeat."""

    def __init__(self) -> None:
        self.root = Site(ROOT, None)
        self.clock = 0
        """Operations seen."""
        self.pairs: dict[tuple[Site, Site], Pair] = {}
        self.seen: dict[Any, list[Execution]] = {}
        self.gap = 0
        """The clock when watching was taken up again: what was before has other numbers."""
        self.forgot = False
        """True if some values were forgotten, there being too many."""

    def reached(self) -> dict[Spot, list[Site]]:
        """For each expression, the sites of the chains of calls that lead to it."""
        found: dict[Spot, list[Site]] = {}
        sites = [self.root]
        while sites:
            site = sites.pop()
            sites += site.children.values()
            if site.kind == EXPRESSION and site.spot is not None:
                found.setdefault(site.spot, []).append(site)
        return found

    def forget(self, courses: Iterable[Course]) -> None:
        """Drop what later executions could repeat: memory may have been written unseen."""
        self.seen.clear()
        self.gap = self.clock
        for e in (e for course in courses for e in course.open):     # whether it repeats as a whole is not known
            e.leaves = [leaf for leaf in e.leaves if leaf.into is not None]

    def novel(self, e: Execution) -> None:
        """Note that the executions from `e` outwards do what was not done before."""
        at: Execution | None = e
        while at is not None and not at.novel:
            at.novel = True
            leaves, at.leaves = at.leaves, []
            for leaf in leaves:
                self.settle(outermost(leaf))
            at = at.parent

    def operands(self, leaf: Execution, made: list[tuple[int, Any]]) -> None:
        """Note when the operands of an operation were made, for each execution that has not made them itself."""
        at: Execution | None = leaf
        while at is not None:
            if at.site.constant is None or at.site.constant:
                at.operands += [one for one in made if one[0] < at.begin]
            at = at.parent

    def operation(self, e: Execution, step: Any, gradients: bool, course: Course,
                  made: tuple[Execution, list[Any]] | None = None, elsewhere: bool = False) -> None:
        """Take an operation's operator, values and gradients into the keys of all that is open; `made`: its outputs."""
        at: Execution | None = e
        while at is not None and at.site.kind != ROOT:
            at.key = hash((at.key, step))
            at.gradients |= gradients
            at.elsewhere = elsewhere     # of the last operation, whose result is the value
            at.run, at.frees = course.run, course.frees
            if made is not None and at.content is not None and at.site.constant != []:
                content = None if self.clock - at.begin >= LONG else content_in(*made)
                at.content = None if content is None else hash((at.content, content))
            at = at.parent

    def repeated(self, leaf: Execution, e: Execution) -> None:
        """Count an operation that repeats `leaf.first`, now or with what is around it."""
        if e.novel:
            self.settle(leaf)
        else:
            at: Execution | None = e
            while at is not None and not at.novel:
                at.leaves.append(leaf)
                at = at.parent

    def close(self, e: Execution) -> None:
        """An execution has ended."""
        e.closed = True
        site = e.site
        site.executions += 1
        key = None if e.impure or e.begin < self.gap else e.key
        if not e.impure and not e.novel and e.leaves:
            first = self.earlier(e)
            if first is not None:
                repeat(e, self.seen[e.key][0])
                self.match(e, first)
        if key is not None:
            if len(self.seen) >= MOST_KEYS:
                self.forgot = True
                for old in list(self.seen)[:MOST_KEYS // 4]:
                    del self.seen[old]
            known = self.seen.setdefault(key, [])
            at = next((i for i, other in enumerate(known) if other.site is site), None)
            if at is None and len(known) < MOST_SITES:
                known.append(e)
            elif at is not None and known[at].written:
                e.places, known[at] = known[at].places, e
            known[0].computed_at().add(site.place)
        self.follow(e, key)
        if e.latest and site.kind == EXPRESSION and e.first is not None:
            self.pair(e.first.site, site).equal += 1
        parent = e.parent
        if parent is not None and parent.novel:
            if e.first is not None:
                self.settle(e)
            else:
                for leaf in e.leaves:
                    self.settle(outermost(leaf))
        e.leaves = []

    def earlier(self, e: Execution) -> Execution | None:
        """An execution with the values of `e`: of the same text in the same call, of its own site, of the same text
        elsewhere, else the outermost one."""
        site, parent = e.site, e.parent
        found = [other for other in self.seen.get(e.key, ()) if not other.written and other.begin < e.begin]
        text = site.spot.text if site.spot is not None else ""
        alike = [o for o in found if o.site.kind == site.kind and o.site.spot is not None and o.site.spot.text == text]
        for other in (o.site for o in alike if o.site is not site and o.site.parent is site.parent):
            if parent is not None and other.last_key == e.key and other.last_begin >= parent.begin:
                return next(o for o in alike if o.site is other)
        own = next((other for other in found if other.site is site), None)
        if own is not None:
            return own
        return alike[-1] if alike else found[-1] if found else None

    def match(self, e: Execution, first: Execution) -> None:
        """An execution repeats `first` as a whole."""
        e.first = first
        inside = set[int]()
        makers: list[Execution] = []
        for leaf in e.leaves:
            top = outermost(leaf)
            inside.add(id(leaf))
            if top is not e:
                top.into = e
                if top is not leaf:
                    top.row, top.makers = None, ()
        for leaf in e.leaves:
            makers += [m for m in leaf.makers if id(m) not in inside]
        e.makers = tuple(makers)
        e.row = e.leaves

    def pair(self, first: Site, site: Site) -> Pair:
        """The pair of two sites."""
        found = self.pairs.get((first, site))
        if found is None:
            found = self.pairs[first, site] = Pair(first, site)
        return found

    def settle(self, e: Execution) -> None:
        """Count a repeat at its own site: nothing around it repeats as a whole."""
        first = e.first
        if first is None or e.pair is not None:
            return
        e.pair = pair = self.pair(first.site, e.site)
        pair.count += 1
        pair.latest += e.latest
        pair.one_run += first.run == e.run
        pair.across |= e.gradients and first.frees != e.frees
        pair.elsewhere |= e.elsewhere
        pair.anew.update(e.anew)
        if e.written or first.written:
            pair.written += 1
        else:
            first.matched[pair] = first.matched.get(pair, 0) + 1
        leaves = e.row if isinstance(e.row, list) else [e]
        for key, seconds, size in [leaf.row for leaf in leaves]:
            row = pair.rows.get(key)
            if row is None:
                row = pair.rows[key] = [0, 0.0, 0]
            row[0] += 1
            row[1] += seconds
            row[2] += size
        for maker in e.makers:
            used = outermost(maker).pair
            if used is not None and used is not pair:
                pair.uses.add(used)
        for leaf in (e, *leaves):        # else each holds all that was before it
            leaf.makers, leaf.row = (), None

    def follow(self, e: Execution, key: Any) -> None:
        """Compare with the site's execution before, and note in which loops its value changes."""
        if e.begin < self.gap:           # not seen as a whole
            return
        site, first = e.site, e.first
        if e.gradients and 0 <= site.last_frees < e.frees:
            site.across |= {(level, begin) for level, (activation, at) in enumerate(frames(e))
                            for begin, end in activation.loops
                            if begin <= at <= end and activation.entered.get(begin, -1) <= site.last_begin}
        site.last_frees = e.frees
        if self.gap and site.last_begin < self.gap:
            site.resumed += 1
        if first is not None:
            e.latest = first.site.last_key == key
        if site.constant and len(site.turned) < len(site.constant):
            site.turned |= turns(e, site.last_begin)
        if site.constant is None:
            site.constant = [(level, begin) for level, (activation, at) in enumerate(frames(e))
                             for begin, end in activation.loops if begin <= at <= end]
        elif site.constant and self.differs(e, key):
            levels = list(frames(e))
            site.constant = [
                (level, begin) for level, begin in site.constant
                if level < len(levels) and levels[level][0].entered.get(begin, -1) > site.last_begin]
        if site.constant and (e.operands or first is not None):
            levels = list(frames(e))
            e.anew = tuple((level, begin) for level, begin in site.constant if level < len(levels)
                           and levels[level][0].entered.get(begin, -1) > levels[level][0].latest.get(site, -1))
            site.constant = [
                (level, begin) for level, begin in site.constant
                if level < len(levels) and stable(e, begin, levels[level][0].entered.get(begin, -1))]
        e.operands = []
        if site.constant:
            for activation, _ in frames(e):
                if activation.loops:
                    activation.latest[site] = e.begin
        site.last_key, site.last_begin, site.last_content = key, e.begin, e.content

    def differs(self, e: Execution, key: Any) -> bool:
        """True unless an execution has the value of the site's execution before."""
        site = e.site
        if key is None or site.last_begin >= self.gap:
            return key is None or site.last_key != key
        if site.kind != EXPRESSION:
            return False
        return e.content is None or e.content != site.last_content

    def shared(self, maker: Execution) -> bool:
        """True if an operation, or what has ended around it, repeats or is repeated."""
        at: Execution | None = maker
        while at is not None and at.closed:
            if at.pair is not None or at.matched:
                return True
            at = at.parent
        return False

    def wrote(self, maker: Execution | None) -> None:
        """What an operation made is written after it: neither it nor what has ended around it can be shared."""
        at = maker
        while at is not None and at.closed:
            if not at.written:
                at.written = at.site.written = True
                pair, first = at.pair, at.first
                if pair is not None and first is not None and not first.written:
                    pair.written += 1
                    first.matched[pair] -= 1
                for pair, n in at.matched.items():
                    pair.written += n
            at = at.parent


def repeat(e: Execution, first: Execution) -> None:
    """Count an execution at the places that have computed its value before; `first` was the first to do it."""
    for place in first.computed_at():
        e.site.again[place] += 1


def content_in(leaf: Execution, outputs: list[Any]) -> int | None:
    """The content of an operation's outputs, which is read once for each value; None where it cannot be read."""
    first = leaf.first or leaf
    if first.content is None:
        parts = [bytes_of(t) for t in outputs]
        first.content = hash(tuple(parts)) if None not in parts else None
    return first.content


def stable(e: Execution, begin: int, entered: int) -> bool:
    """True if the operands were there before a loop was entered, or are made anew in it with one value."""
    return all(when < entered or (maker is not None and not maker.written and any(
        other == begin for _, other in maker.site.constant or ())) for when, maker in e.operands)


def turns(e: Execution, before: int) -> set[tuple[int, int]]:
    """The loops around an execution that have begun another turn since, in the run that went on then."""
    found = set[tuple[int, int]]()
    around = [at for at in upwards(e) if at.site.kind == EXPRESSION]
    for level, at in enumerate(around):
        since = at.begin                 # from the innermost loop of its function outwards
        for begin, end in reversed(at.activation.loops):
            if begin <= at.instruction <= end:
                entered = at.activation.entered.get(begin, -1)
                if entered <= before < since:
                    found.add((level, begin))
                since = entered
    return found


def outermost(e: Execution) -> Execution:
    """The execution as a part of which another one is counted."""
    while e.into is not None:
        e = e.into
    return e


def frames(e: Execution) -> Iterator[tuple[Activation, int]]:
    """The activations around an execution with the instruction of each, innermost first."""
    return ((at.activation, at.instruction) for at in upwards(e) if at.site.kind == EXPRESSION)


def upwards(e: Execution) -> Iterator[Execution]:
    """An execution and those around it, innermost first."""
    at: Execution | None = e
    while at is not None:
        yield at
        at = at.parent
