"""One workload measured in full: times, kernels, memory, each beside its bar."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from . import bars
from .counting import kernels, peak_bytes, traced_kernels
from .measure import EAGER, Timing, Variant, measure, own_variants
from .peers import peers_of
from .workloads import BY_HAND, Make

ON, OFF, HAND = "optimize=True", "optimize=False", "by hand"


def met(found: float, bar: float) -> bool:
    """At most the bar, to the two digits that a table shows."""
    return round(found, 2) <= round(bar, 2)


@dataclass
class Row:
    """What was found about one workload."""

    name: str
    times: dict[str, Timing] = field(default_factory=dict)
    kernels: dict[str, dict[str, int]] = field(default_factory=dict)
    traced: tuple[int, int] | None = None
    peak: dict[str, int] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    error: str | None = None

    def ratio(self, of: str, to: str = EAGER) -> float | None:
        """Time of one variant beside another's."""
        if of not in self.times or to not in self.times:
            return None
        return self.times[of].ratio / self.times[to].ratio

    def checks(self) -> list[tuple[str, float, float]]:
        """(what, measured, bar) of every bar that applies."""
        out = []
        bar = bars.time_bar(self.name, self.facts) if self.times else None
        if bar is not None:
            out.append(("time / torch eager", self.times[ON].ratio, bar))
        if self.name == "chain" and self.times:
            out.append(("time as written / torch eager", self.times[OFF].ratio, 1.0))
        by_hand = self.ratio(ON, HAND)
        if by_hand is not None:
            out.append(("time / by hand", by_hand, bars.HAND_BAR))
        if self.traced and self.kernels:
            measured = sum(self.kernels[ON].values()) / self.traced[1]
            out.append(("kernels / traced, FX CSE", measured, bars.KERNEL_BAR))
        if self.peak:
            out.append(("peak bytes / torch eager", self.peak[ON] / self.peak[EAGER], bars.MEMORY_BAR))
        return out

    def missed(self) -> list[str]:
        """Bars that were not met, as sentences."""
        if self.error:
            return [f"{self.name}: {self.error}"]
        return [f"{self.name}: {what} is {found:.2f}, the bar {bar:.2f}" for what, found, bar in self.checks()
                if not met(found, bar)]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {**asdict(self), "checks": self.checks()}


def measure_row(make: Make, name: str, repeats: int, on_round: Callable[[], None], with_peers: bool = False) -> Row:
    """Measure one workload; an error becomes part of the row, so that the others still run."""
    variants = own_variants(make)
    workload = variants[0].workload
    row = Row(workload.name)
    if name in BY_HAND:
        by_hand = BY_HAND[name]()
        hand = Variant(HAND, by_hand, by_hand.step)
        by_hand.results = lambda out: [leaf.grad for leaf in by_hand.leaves if leaf.grad is not None]  # type: ignore[method-assign]
        variants.append(hand)
    if with_peers:
        found, row.notes = peers_of(name, make)
        variants += found
    shares: list[float] = []

    def each_round() -> None:
        if "u" in workload.facts:
            shares.append(workload.facts["u"])
        on_round()

    try:
        row.times = measure(variants, repeats, each_round)
        own = [v for v in variants if v.name in (EAGER, OFF, ON)]
        row.kernels = {v.name: dict(kernels(v.run)) for v in own}
        row.peak = {v.name: peak_bytes(v.run) for v in own}
        row.traced = traced_kernels(workload)
    except Exception as error:  # a workload that cannot run is a result, too
        row.error = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    row.facts = {**workload.facts, **({"u": statistics.median(shares)} if shares else {})}
    if row.traced is None and not row.error:
        row.notes.append(f"{row.name}: torch's make_fx cannot trace this step")
    return row
