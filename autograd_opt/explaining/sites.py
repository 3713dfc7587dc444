"""Where a program computes: an expression in one chain of calls is a site; two of them may make a pair.

What repeats is counted for a pair of sites: an execution of the one had the values of an execution of the other.
"""

from __future__ import annotations

import dis
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

from autograd_opt.explaining.call_sites import Spot

EXPRESSION, MODULE, DERIVATIVE, OPTIMIZER, LIBRARY, OPERATION, ROOT = range(7)
"""Kinds of sites."""


def loops_of(code: CodeType) -> tuple[tuple[int, int], ...]:
    """The loops of a function as ranges of instruction offsets, outermost first."""
    ends: dict[int, int] = {}
    after_exceptions: dict[int, int] = {}
    steps = dis.Bytecode(code)
    entries: Any = getattr(steps, "exception_entries", ())      # in Python 3.11 and later, undocumented
    handlers = sorted((entry.target, entry.start) for entry in entries)
    instructions = list(steps)
    index = {step.offset: k for k, step in enumerate(instructions)}
    for step in instructions:
        if "JUMP_BACKWARD" in step.opname and isinstance(step.argval, int):
            # what handles an exception may lie at the end of a function, and jumps back to where the program goes on
            guarded = [start for target, start in handlers if target <= step.offset][-1:]
            if leads_to(instructions, index, step.argval, step.offset):
                ends[step.argval] = max(step.offset, ends.get(step.argval, 0))
            elif any(start >= step.argval for start in guarded):
                after_exceptions[step.argval] = step.offset
    return tuple(sorted({**after_exceptions, **ends}.items(), key=lambda loop: (loop[0], -loop[1])))


def leads_to(instructions: list[dis.Instruction], index: dict[int, int], begin: int, end: int) -> bool:
    """True if the instruction at offset `begin` can come to that at `end` without an exception; `index`: by offset."""
    ahead, seen = [index[begin]], set[int]()
    while ahead:
        k = ahead.pop()
        if k in seen or k >= len(instructions):
            continue
        seen.add(k)
        step = instructions[k]
        if step.offset == end:
            return True
        if step.opcode in dis.hasjrel or step.opcode in dis.hasjabs:
            ahead.append(index[step.argval])
            if step.opname.startswith("JUMP"):
                continue
        if not step.opname.startswith(("RETURN", "RAISE", "RERAISE")):
            ahead.append(k + 1)
    return False


class Activation:
    """One activation of a frame: the mark that tells it from others at the same address.

    It lies in the frame's `f_trace`, which nothing reads unless a debugger is set; then it is called once and gone.
    """

    __slots__ = ("at", "code", "entered", "latest", "loops")

    def __init__(self, code: CodeType, loops: tuple[tuple[int, int], ...]) -> None:
        self.code, self.loops = code, loops
        self.at = -1
        self.entered: dict[int, int] = {}
        """For each loop by its first offset, the number of operations when it was last entered."""
        self.latest: dict[Site, int] = {}
        """For each site below it, the number of operations when its latest execution began: other threads count theirs
        in activations of their own."""

    def __call__(self, frame: Any, event: str, argument: Any) -> None:
        """Answer a debugger that takes the mark for a trace function."""

    def move(self, at: int, clock: int) -> None:
        """Note that instruction `at` runs now."""
        for begin, end in self.loops:
            if begin <= at <= end and not begin <= self.at <= end:
                self.entered[begin] = clock
        self.at = at

    def in_loop(self, at: int) -> bool:
        """True if an instruction is part of a loop."""
        return any(begin <= at <= end for begin, end in self.loops)


Place = tuple[int, str, Spot | None]
"""Kind, name and spot of a site, whatever chain of calls leads there."""


@dataclass(eq=False, slots=True)
class Site:
    """One expression, module or operation in one chain of calls."""

    kind: int
    parent: Site | None
    spot: Spot | None = None
    name: str = ""
    """Of a module its path, of an operation the operator."""
    module: str = ""
    inside: Site | None = None
    """The innermost enclosing site of an optimizer's step or of this library, if no user's code stands in between."""
    children: dict[Any, Site] = field(default_factory=dict, repr=False)
    executions: int = 0
    again: Counter[Place] = field(default_factory=Counter, repr=False)
    """How many of them had a value that was computed before, by the places that had computed it."""
    across: set[tuple[int, int]] = field(default_factory=set, repr=False)
    """Loops (levels up, first offset) in one run of which gradients flow through executions with a freeing backward run
    between."""
    lags: set[int] = field(default_factory=set, repr=False)
    """By how many freeing backward runs, counted from an execution on, its derivative was computed by one."""
    last_key: Any = None
    last_begin: int = -1
    last_frees: int = -1
    last_content: int | None = None
    """What it computed last, in bytes."""
    resumed: int = 0
    """Executions that were the first of it after a pause: what they may repeat was forgotten."""
    written: bool = False
    """True if a result of it was written afterwards."""
    constant: list[tuple[int, int]] | None = field(default=None, repr=False)
    """Loops (levels up, first offset) in whose every run so far this site has had one value."""
    turned: set[tuple[int, int]] = field(default_factory=set, repr=False)
    """Those in two turns of which it was seen to run."""
    code: CodeType | None = field(default=None, repr=False)
    """The function in which an expression stands."""
    runs: bool = False
    """True if it calls `backward()`."""
    constant_made: bool = False
    """True of an operation that is given no tensor."""
    callee: CodeType | None = field(default=None, repr=False)
    """The Python function that the expression calls."""

    def child(self, key: Any, kind: int, spot: Spot | None = None, name: str = "") -> Site:
        """The site below this one, made when it is first met."""
        found = self.children.get(key)
        if found is None:
            module = name if kind == MODULE else self.module
            found = self.children[key] = Site(kind, self, spot or (self.spot if kind != ROOT else None), name, module)
            if kind in (OPTIMIZER, LIBRARY):
                found.inside = found
            elif kind != EXPRESSION:
                found.inside = self.inside
        return found

    def differentiated(self, lag: int) -> None:
        """Note that its derivative, and so that of what is around it, is computed so many backward runs later."""
        for site in self.upwards():
            if lag in site.lags:
                break
            site.lags.add(lag)

    def chain(self) -> tuple[Spot, ...]:
        """The expressions from the outermost to this one."""
        found: list[Spot] = []
        for site in self.upwards():
            if site.kind in (EXPRESSION, DERIVATIVE) and site.spot is not None:
                found.append(site.spot)
        return tuple(reversed(found))

    def upwards(self) -> Iterator[Site]:
        """This site and those around it, innermost first."""
        site: Site | None = self
        while site is not None:
            yield site
            site = site.parent

    def within(self, kind: int) -> Site | None:
        """The innermost site of a kind around this one, itself included."""
        return next((site for site in self.upwards() if site.kind == kind), None)

    @property
    def place(self) -> Place:
        """What is the same in all chains of calls."""
        return self.kind, self.name, self.spot

    @property
    def expression(self) -> Site | None:
        """The innermost expression, itself included."""
        return self.within(EXPRESSION)


@dataclass(eq=False, slots=True)
class Pair:
    """Executions of `site` that repeat one of `first`; the two are one site where a loop repeats it."""

    first: Site
    site: Site
    count: int = 0
    latest: int = 0
    """Those that repeat the latest execution of `first`, not only an older one."""
    equal: int = 0
    """The same, with those that were counted as a part of what is around them."""
    one_run: int = 0
    """Those in the same backward run as what they repeat."""
    written: int = 0
    """Those whose result, or the one that they repeat, is written afterwards: they need memory of their own."""
    across: bool = False
    """True if gradients flow through executions with a freeing backward run between."""
    elsewhere: bool = False
    """True if the gradients of some results flow to other leaves than those of what they repeat."""
    anew: Counter[tuple[int, int]] = field(default_factory=Counter, repr=False)
    """For each loop (levels up, first offset), how many were the first of the site in a run of it."""
    rows: dict[Any, list[Any]] = field(default_factory=dict, repr=False)
    """(operator, type, spot, module) → [count, seconds, bytes]."""
    uses: set[Pair] = field(default_factory=set, repr=False)
    """Pairs whose results are operands here."""
