"""What was repeated, gathered so that a reader can act on it: one finding for each place to change.

Two runs of an operation have each a chain of spots, outermost first.  Where the chains differ,
their common inner end is left off: what remains ends in the two calls that ask for the same.
Where they are equal, a loop repeats the work; the outermost spot inside a loop below which
everything is repeated is the one to move.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from autograd_opt.explaining.advice import advise, loop_at
from autograd_opt.explaining.call_sites import Place, Spot
from autograd_opt.explaining.watch import LEAST, Miss, Row, Watch

SHARE = 0.95
"""Part of the operations below a spot that must repeat for the spot to stand for them all."""
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
    count, seconds, bytes : operations that sharing would save, their kernel time, and the
        memory of their results.
    lines : the operations, most time first.
    advice : one sentence.
    chain : from the program's outermost line to the repeated one.
    """

    places: tuple[str, ...]
    loop: bool
    count: int
    seconds: float
    bytes: int
    lines: tuple[Line, ...]
    advice: str
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
    """Kernel time of the operations watched."""
    own_seconds: float
    total_seconds: float
    watched_seconds: float
    windows: int
    written_after: int
    """Repeats left out because their result is written afterwards."""
    title: str = ""
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def repeated(self) -> int:
        """Operations that repeat another."""
        return sum(f.count for f in self.findings)

    @property
    def repeated_seconds(self) -> float:
        """Their kernel time."""
        return sum(f.seconds for f in self.findings)

    @property
    def cost(self) -> float:
        """Time inside the context, as a multiple of the program's own."""
        own = max(self.total_seconds - self.own_seconds, LEAST * self.total_seconds)
        return self.total_seconds / own if own > 0 else 1.0

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "repeated": self.repeated, "repeated_seconds": self.repeated_seconds, "cost": self.cost}

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
    """Gather the rows of a watch."""
    # what an optimizer's step repeats is torch's own affair
    rows = [row for row in watch.rows.values()
            if not row.different and row.count > row.written and not row.place.in_optimizer]
    heads = repeated_spots(watch.places.interned.values())
    gathered: dict[Any, list[Row]] = defaultdict(list)
    for row in rows:
        gathered[site(row, heads)].append(row)
    found = [finding(key, members, watch.windows) for key, members in gathered.items()]
    found.sort(key=lambda f: (-f.seconds, f.places))
    return Findings(
        tuple(found[:MOST]), near_misses_of(watch.misses.values()),
        watch.operations + watch.operations_beside, watch.seconds + watch.seconds_beside, watch.own_seconds,
        watch.total_seconds, watch.watched_seconds, watch.windows, sum(row.written for row in watch.rows.values()),
    )


def repeated_spots(places: Iterable[Place]) -> set[tuple[Spot, ...]]:
    """Chains below which (nearly) every operation repeats another or is repeated."""
    count: Counter[tuple[Spot, ...]] = Counter()
    covered: Counter[tuple[Spot, ...]] = Counter()
    for place in places:
        for depth in range(1, len(place.spots) + 1):
            chain = place.spots[:depth]
            count[chain] += place.count
            covered[chain] += place.covered
    return {chain for chain, n in count.items() if n and covered[chain] >= SHARE * n}


def site(row: Row, heads: set[tuple[Spot, ...]]) -> Any:
    """What a finding is gathered by: is it a loop, and the chain to the place that is to change."""
    a, b = row.first.spots, row.place.spots
    if a == b and b:
        calls = (b[:n] for n in range(1, len(b)) if b[:n] in heads)
        head = next((c for c in calls if not c[-1].installed and loop_at(c[-1]) is not None), b)
        # the operations of one line are moved together
        return True, head[:-1], head[-1].file, head[-1].line, head[-1].backward
    return False, differing(a, b)[0]


def differing(a: tuple[Spot, ...], b: tuple[Spot, ...]) -> tuple[tuple[Spot, ...], tuple[Spot, ...]]:
    """Both chains without their common inner end; an inner end that is all of one keeps a spot."""
    n = 0
    while n < min(len(a), len(b)) - 1 and a[-1 - n] == b[-1 - n]:
        n += 1
    return (a[:len(a) - n], b[:len(b) - n]) if n else (a, b)


def finding(key: Any, rows: list[Row], windows: int = 1) -> Finding:
    """One finding from its rows."""
    loop, chain = key[0], key[1]
    if loop:
        chain = rows[0].place.spots[:len(chain) + 1]
    saved = [(row, row.count - row.written, row.seconds * (row.count - row.written) / row.count) for row in rows]
    others: Counter[tuple[Spot, ...]] = Counter()
    for row, count, _ in saved:
        if not loop:
            others[differing(row.first.spots, row.place.spots)[1]] += count
    chains = [chain, *sorted(others, key=lambda c: tuple((s.file, s.line, s.instruction) for s in c))]
    places = []
    for c in chains:
        text = str(c[-1]) if c else "outside any user code"
        if text not in places or not loop:
            places.append(text)
    merged: dict[Any, list[Any]] = {}
    for row, count, seconds in saved:
        inner = row.place.innermost
        entry = merged.setdefault((row.op, row.type, inner, row.place.module), [0, 0.0, 0])
        entry[0] += count
        entry[1] += seconds
        entry[2] += row.bytes * count // row.count
    lines = [
        Line(op, type, str(inner) if inner else "?", source_line(inner), module, n, seconds, size)
        for (op, type, inner, module), (n, seconds, size) in merged.items()
    ]
    lines.sort(key=lambda line: (-line.seconds, line.source, line.op))
    return Finding(
        tuple(places), loop, sum(line.count for line in lines), sum(line.seconds for line in lines),
        sum(line.bytes for line in lines), tuple(lines), advise(chains, loop, rows, windows),
        tuple(f"{s} in {s.function}" for s in chain),
    )


def source_line(spot: Spot | None) -> str:
    """The text of a line, as far as its file can be read."""
    import linecache
    return linecache.getline(spot.file, spot.line).strip() if spot is not None else ""


def near_misses_of(misses: Iterable[Miss]) -> tuple[NearMiss, ...]:
    """Near misses by operator, places and reason, most time first."""
    gathered: dict[Any, list[Any]] = {}
    for miss in misses:
        a, b = miss.first.innermost, miss.place.innermost
        if a is None or b is None or miss.place.in_optimizer:
            continue
        entry = gathered.setdefault((miss.op, str(a), str(b), miss.reason), [0, 0.0])
        entry[0] += miss.count
        entry[1] += miss.seconds
    found = [NearMiss(op, a, b, why, n, seconds) for (op, a, b, why), (n, seconds) in gathered.items()]
    return tuple(sorted(found, key=lambda m: (-m.seconds, m.first))[:MOST])
