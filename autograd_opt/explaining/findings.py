"""What was repeated, gathered so that a reader can act on it: one finding for each cause.

Repeats are counted at the outermost expression that repeats as a whole. Those whose operands are results of
other repeats have the same cause, and are gathered with them.
"""

from __future__ import annotations

import linecache
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from autograd_opt.explaining.advice import Advice, Program, Reached, advise, can_be_named, repeating
from autograd_opt.explaining.ledger import Miss
from autograd_opt.explaining.sites import DERIVATIVE, EXPRESSION, OPERATION, Pair, Site
from autograd_opt.explaining.source import makes_leaf
from autograd_opt.explaining.watch import LEAST, Watch

MOST = 100


@dataclass(frozen=True)
class Line:
    """Repeats of one operator from one line of source."""

    op: str
    type: str
    source: str
    text: str
    module: str
    count: int
    seconds: float
    bytes: int


@dataclass(frozen=True)
class Finding:
    """Work that is done again and could be shared.

    Attributes
    ----------
    places : the calls or lines that ask for the same value, the first run first.
    loop : the places are one, repeated by a loop.
    count, seconds, bytes : operations that sharing would save, their processor time, and the
        memory of their results.
    lines : the operations, most time first.
    advice : one sentence.
    action : what the sentence says: "reuse" a value at other places, "hoist" it out of a loop, "keep" results that
        come up again, or "note" what no change of the expressions named would save.
    expressions : the expressions that are equal, as written.
    chain : from the program's outermost line to the repeated one.
    """

    places: tuple[str, ...]
    loop: bool
    count: int
    seconds: float
    bytes: int
    lines: tuple[Line, ...]
    advice: str
    action: str
    expressions: tuple[str, ...]
    chain: tuple[str, ...]


@dataclass(frozen=True)
class NearMiss:
    """Operations that would have been repeats but for one part of their key."""

    op: str
    first: str
    second: str
    reason: str
    count: int
    seconds: float


@dataclass(frozen=True)
class Findings:
    """The report of a watched program."""

    findings: tuple[Finding, ...]
    near_misses: tuple[NearMiss, ...]
    operations: int
    seconds: float
    """Processor time of the operations watched, each operator's first call left out."""
    first_seconds: float
    """Processor time of these first calls."""
    own_seconds: float
    total_seconds: float
    watched_seconds: float
    """The part of `total_seconds` in which operations were watched."""
    nodes: int
    """Nodes that autograd recorded in the thread that entered the context, watched or not."""
    watched_nodes: int
    """Those of them that were recorded while operations were watched."""
    windows: int
    partly: bool
    """True if some operations were not watched."""
    written_after: int
    """Repeats left out because their result is written afterwards."""
    title: str = ""

    @property
    def repeated(self) -> int:
        """Operations that repeat another."""
        return sum(f.count for f in self.findings)

    @property
    def repeated_seconds(self) -> float:
        """Their processor time."""
        return sum(f.seconds for f in self.findings)

    @property
    def watched_share(self) -> float:
        """The watched part of the nodes that autograd recorded; where it recorded none, of the time."""
        return self.watched_nodes / self.nodes if self.nodes else self.watched_seconds / (self.total_seconds or 1.0)

    @property
    def cost(self) -> float:
        """Time inside the context, as a multiple of the program's own."""
        own = max(self.total_seconds - self.own_seconds, LEAST * self.total_seconds)
        return self.total_seconds / own if own > 0 else 1.0

    def to_dict(self) -> dict[str, object]:
        """For JSON."""
        return {**asdict(self), "repeated": self.repeated, "repeated_seconds": self.repeated_seconds, "cost": self.cost,
                "watched_share": self.watched_share}

    def __rich__(self) -> Any:
        from autograd_opt.explaining.render import rich_text
        return rich_text(self)

    def __str__(self) -> str:
        from autograd_opt.explaining.render import plain_text
        return plain_text(self)

    def _repr_html_(self) -> str:
        from autograd_opt.explaining.render import html
        return html(self)


def findings_of(watch: Watch) -> Findings:
    """Gather the pairs of a watch."""
    # what an optimizer's step or this library repeats is their own affair, and so are the seed of a backward run and
    # constants that torch makes inside its own functions
    pairs = [p for p in watch.executions.pairs.values() if p.count > p.written and p.site.inside is None
             and not (p.site.kind == OPERATION and (p.site.constant_made or (p.site.parent and p.site.parent.runs)))]
    pairs = [p for p in pairs if not makes_leaf(p.site) and not makes_leaf(p.first)]
    reached = watch.executions.reached()
    program = Program(watch.partly, watch.executions.forgot, reached, watch.executions.pairs)
    causes: dict[Any, tuple[Advice, list[Pair]]] = {}
    for group in grouped(pairs, reached):
        if worth(group):
            advice = advise(group, program)
            # what is said twice in the same words, of two chains of calls, is said once
            causes.setdefault((advice.text, advice.places), (advice, []))[1].extend(group)
    found = [one for advice, group in causes.values() if (one := finding(advice, group)).count]
    found.sort(key=lambda f: (-f.seconds, f.places))
    # the cost of watching is estimated by a sample: no more of the time than operations have left
    spare = max(watch.total_seconds - watch.seconds - watch.seconds_beside - watch.first_seconds, 0.0)
    return Findings(
        tuple(found[:MOST]), near_misses_of(watch.misses.values()),
        watch.operations + watch.operations_beside, watch.seconds + watch.seconds_beside, watch.first_seconds,
        min(watch.own_seconds, spare), watch.total_seconds, watch.watched_seconds, watch.nodes, watch.watched_nodes,
        watch.windows, watch.partly,
        sum(pair.written for pair in watch.executions.pairs.values() if pair.site.inside is None),
    )


SELDOM = 0.1
"""Part of the runs of an expression below which their repeats are no finding: values come up again by chance."""

FEW = 4
"""Runs of an expression that are too few to say so; in more, one repeat alone is chance, too."""


def worth(group: list[Pair]) -> bool:
    """True unless repeats are a small part of the runs of each expression."""
    return any(pair.site.executions <= FEW or pair.count - pair.written >= max(2, SELDOM * pair.site.executions)
               for pair in group)


def context(pair: Pair) -> Any:
    """What pairs of one cause have in common beside it."""
    def around(site: Site) -> Site | None:
        inner = site.expression
        return inner.parent if inner is not None and inner is site else inner

    derivative = pair.site.within(DERIVATIVE)
    if derivative is not None:
        outer = derivative.parent
        return "backward", outer, pair.first.within(DERIVATIVE) is derivative, pair.one_run == pair.count
    return pair.first is pair.site, around(pair.first), around(pair.site), pair.site.kind == EXPRESSION, \
        can_be_named(pair), pair.first is pair.site and bool(pair.site.constant)


def grouped(pairs: list[Pair], reached: Reached) -> list[list[Pair]]:
    """Pairs of one cause: of one context, connected by results that are operands, or of one line."""
    leader: dict[Pair, Pair] = {pair: pair for pair in pairs}

    def find(pair: Pair) -> Pair:
        while leader[pair] is not pair:
            leader[pair] = pair = leader[leader[pair]]
        return pair

    contexts = {pair: context(pair) for pair in pairs}
    together: dict[Any, Pair] = {}
    for pair in pairs:
        for used in pair.uses:
            if used in leader and contexts[used] == contexts[pair]:
                leader[find(pair)] = find(used)
        spot, other = pair.site.spot, pair.first.spot
        line: Any = (contexts[pair], spot and (spot.file, spot.line), other and (other.file, other.line))
        if contexts[pair][0] == "backward" or pair.site.kind != EXPRESSION:
            line = (contexts[pair],)
        elif spot is not None and other is spot and all(site.constant for site in repeating(reached[spot])):
            line = (spot,)               # in every chain of calls that leads there
        elif spot is not None and other is not None and other is not spot and other.text == spot.text:
            line = (contexts[pair], other)           # of one value that several lines ask for
        leader[find(pair)] = find(together.setdefault(line, pair))
    groups: dict[Pair, list[Pair]] = defaultdict(list)
    for pair in pairs:
        groups[find(pair)].append(pair)
    return list(groups.values())


def finding(advice: Advice, group: list[Pair]) -> Finding:
    """One finding from the pairs of one cause."""
    merged: dict[Any, list[Any]] = {}
    for pair in group:
        kept = pair.written + (pair.anew[advice.loop] if advice.loop is not None else 0)
        part = max(0.0, 1 - kept / pair.count)
        for key, (count, seconds, size) in pair.rows.items():
            entry = merged.setdefault(key, [0.0, 0.0, 0.0])
            entry[0] += part * count
            entry[1] += part * seconds
            entry[2] += part * size
    lines = [Line(op, type, str(spot) if spot else "?", linecache.getline(spot.file, spot.line).strip() if spot else "",
                  module, round(n), seconds, round(size))
             for (op, type, spot, module), (n, seconds, size) in merged.items() if round(n)]
    lines.sort(key=lambda line: (-line.seconds, line.source, line.op))
    return Finding(
        advice.places, group[0].first is group[0].site, sum(line.count for line in lines),
        sum(line.seconds for line in lines), sum(line.bytes for line in lines), tuple(lines),
        advice.text, advice.action, advice.expressions,
        tuple(f"{s} in {s.function}" for s in advice.site.chain()),
    )


def near_misses_of(misses: Iterable[Miss]) -> tuple[NearMiss, ...]:
    """Near misses by operator, places and reason, most time first."""
    gathered: dict[Any, list[Any]] = {}
    for miss in misses:
        a, b = miss.first.spot, miss.site.spot
        if a is None or b is None or miss.site.inside is not None:
            continue
        entry = gathered.setdefault((miss.op, str(a), str(b), miss.reason), [0, 0.0])
        entry[0] += miss.count
        entry[1] += miss.seconds
    found = [NearMiss(op, a, b, why, n, seconds) for (op, a, b, why), (n, seconds) in gathered.items()]
    return tuple(sorted(found, key=lambda m: (-m.seconds, m.first))[:MOST])
