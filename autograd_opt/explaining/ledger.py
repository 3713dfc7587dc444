"""What a watch counts: operations that compute a value again, and those that nearly do.

Every operation has a key, made of the operator and the numbers of its operands' values.  The first
run of a key gives its outputs new numbers; a later run gives them the same ones, and is a repeat.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch

from autograd_opt.abi import torch_private as private
from autograd_opt.explaining import purity
from autograd_opt.explaining.executions import Course, Execution, Executions, repeat
from autograd_opt.explaining.keys import Key, written_reason
from autograd_opt.explaining.locator import Locator
from autograd_opt.explaining.sites import OPERATION, Site
from autograd_opt.explaining.value_ids import Held, Memory, Values, changed, content_of
from autograd_opt.graph.program_text import dtype_text

Tensor = torch.Tensor
MOST_KEYS = 50_000
"""Operations remembered; the oldest quarter is forgotten beyond."""
REMEMBERED = 1024
"""Bytes of an output up to which its bits are kept for comparison."""
CHECKED = 3
"""Repeats of one row whose values are compared."""


@dataclass(eq=False, slots=True)
class Miss:
    """Near misses of one kind between two sites."""

    op: str
    first: Site
    site: Site
    reason: str
    count: int = 0
    seconds: float = 0.0


@dataclass(eq=False, slots=True)
class Outcome:
    """The output of an operation's first run."""

    memory: Memory
    where: int
    writes: int
    content: Any
    """The bits of a small one."""


class Ledger:
    """The values, executions and repeats of a program."""

    def __init__(self) -> None:
        self.values, self.executions = Values(), Executions()
        self.locator = Locator(self.executions)
        self.courses: list[Course] = []
        self.keys: dict[Any, Execution] = {}
        self.loose: dict[Any, Execution] = {}
        self.alike: dict[Any, Execution] = {}
        self.checks: dict[Any, list[int]] = {}
        """Of repeats between two sites, how many were compared, and how many were different."""
        self.misses: dict[Any, Miss] = {}
        self.read: set[Any] = set()
        """Keys of operations that give Python a number."""
        self.met: set[int] = set()
        """Operators that have run before: a first call prepares more than it computes."""
        self.unseen: list[Held] = []
        """What repeats had made and was alive when watching paused."""

    def course(self) -> Course:
        """The open executions of one more thread."""
        course = Course(self.executions.root)
        self.courses.append(course)
        return course

    def forget(self) -> None:
        """Memory may have been written unseen: what differs from what was there when watching paused has been."""
        for maker in changed(self.unseen):
            self.executions.wrote(maker)
        self.unseen = []
        self.values.forget()
        self.executions.forget(self.courses)
        for table in (self.keys, self.loose, self.alike, self.read):
            table.clear()

    # One operation --------------------------------------------------------------------
    def record(self, kind: purity.Kind, key: Key, args: Any, kwargs: Any, result: Any, seconds: float,
               course: Course, frame: FrameType) -> float:
        """Number the outputs, count a repeat or a near miss; the seconds that count: 0 for an operator's first call."""
        verdict = kind.verdict
        if verdict == purity.RANDOM and purity.is_certain(kind, args, kwargs):
            verdict = purity.PURE
        e = self.locator.here(frame, course, key.exact)
        executions = self.executions
        for i in kind.written:
            self.wrote(args, kwargs, i, kind.name, e)
        if kind.number not in self.met:
            self.met.add(kind.number)
            seconds = 0.0
        outputs = [r for r in (result if isinstance(result, (tuple, list)) else (result,)) if isinstance(r, Tensor)]
        if verdict == purity.UNKNOWN:
            for around in course.open:
                around.impure = True
        if verdict in (purity.UNKNOWN, purity.UNDEFINED):
            executions.novel(e)
        elif not outputs:                # a number for Python, or nothing but a write
            if key.exact not in self.read:
                self.read.add(key.exact)
                executions.novel(e)
            executions.operation(e, key.exact, False, course)
        else:
            leaf = Execution(e.site.child((OPERATION, kind.name), OPERATION, name=kind.name), e, executions.clock)
            leaf.closed, leaf.run, leaf.frees, leaf.content = True, course.run, course.frees, None
            leaf.written = kind.in_place
            leaf.site.constant_made = not key.memories
            leaf.grads, leaf.leaf_numbers, leaf.elsewhere = (key.inference, key.grads), key.leaves, key.elsewhere
            leaf.gradients = bool(key.grads) and outputs[0].is_floating_point() and not kind.name.endswith("_like")
            executions.operands(leaf, [(m.changed, m.maker) for m in key.memories if m is not None and m.changed >= 0])
            if verdict == purity.RANDOM:
                leaf.values = tuple([self.values.fresh() for _ in outputs])
                for t, value in zip(outputs, leaf.values, strict=True):
                    self.values.give(t, value, leaf, executions.clock)
                executions.novel(e)
            else:
                self.compute(kind, verdict, key, outputs, seconds, leaf, e)
            executions.operation(e, (kind.number, leaf.values, leaf.grads), leaf.gradients, course,
                                 None if verdict == purity.VIEW else (leaf, outputs), leaf.elsewhere)
        executions.clock += 1
        self.values.sweep()
        return seconds

    def compute(self, kind: purity.Kind, verdict: str, key: Key, outputs: list[Tensor], seconds: float,
                leaf: Execution, e: Execution) -> None:
        """One operation whose value follows from its operands."""
        executions, pure = self.executions, verdict == purity.PURE
        first = self.keys.get(key.exact)
        if first is None or len(first.values) != len(outputs) \
                or (pure and not self.holds(kind, first, leaf, outputs[0])):
            self.number(key, leaf, outputs, verdict == purity.VIEW)
            executions.novel(e)
            if pure:
                leaf.site.executions += 1
                executions.follow(leaf, (key.exact, leaf.grads))
                if not kind.written and key.memories and leaf.outcome is not None:
                    self.near(kind, key, leaf, seconds)
            return
        leaf.values = first.values
        if first.grads != leaf.grads:
            known = self.keys.setdefault((key.exact, leaf.grads), leaf)
            if known is not leaf:
                first = known
        leaf.elsewhere |= first.leaf_numbers != leaf.leaf_numbers
        for t, value in zip(outputs, first.values, strict=True):
            self.values.give(t, value, None if verdict == purity.VIEW else leaf, executions.clock)
        if not pure:
            return
        leaf.site.executions += 1
        if first.grads != leaf.grads:
            executions.novel(e)
            executions.follow(leaf, (key.exact, leaf.grads))
            mode = first.grads[0] != leaf.grads[0]
            self.miss(kind, first, leaf.site, "one of them runs in inference mode only" if mode else
                      "gradients flow to the operands of one of them only", seconds)
        elif any(t.numel() for t in outputs):
            repeat(leaf, first)
            first.computed_at().add(leaf.site.place)
            leaf.first = first
            leaf.makers = tuple([m.maker for m in key.memories if m is not None and m.maker is not None])
            t, site = outputs[0], leaf.site
            leaf.row = ((kind.name, f"{dtype_text(t.dtype)}[{', '.join(map(str, t.shape))}]", site.spot, site.module),
                        seconds, sum(t.numel() * t.element_size() for t in outputs))
            executions.follow(leaf, (key.exact, leaf.grads))
            executions.repeated(leaf, e)

    def number(self, key: Key, leaf: Execution, outputs: list[Tensor], view: bool) -> None:
        """The first run of a key."""
        clock, maker = self.executions.clock, None if view else leaf
        leaf.values = tuple([self.values.fresh() for _ in outputs])
        given = self.values.give(outputs[0], leaf.values[0], maker, clock)
        for i in range(1, len(outputs)):
            self.values.give(outputs[i], leaf.values[i], maker, clock)
        if given is None:
            return
        memory, where = given
        leaf.outcome = Outcome(memory, where, memory.writes, content_of(outputs[0], REMEMBERED))
        if len(self.keys) >= MOST_KEYS:
            self.executions.forgot = True
            for old in list(self.keys)[:MOST_KEYS // 4]:
                del self.keys[old]
            self.loose.clear()
            self.alike.clear()
        self.keys[key.exact] = leaf

    def holds(self, kind: purity.Kind, first: Execution, leaf: Execution, t: Tensor) -> bool:
        """True unless `t` was compared with the first run's output and differs."""
        checked = self.checks.setdefault((kind.number, first.site, leaf.site), [0, 0])
        if checked[0] < CHECKED:
            same = self.compare(first.outcome, t)
            if same is not None:
                checked[0] += 1
                checked[1] += not same
        return not checked[1]

    def compare(self, first: Outcome, t: Tensor) -> bool | None:
        """Does `t` hold the bits of the first run's output?  None where those are gone, or torch compares none."""
        if first.content is not None:
            return bool(content_of(t, REMEMBERED) == first.content)
        memory = first.memory
        if self.values.memories.get(memory.cdata) is not memory or memory.writes != first.writes:
            return None
        if first.where != self.values.where(t) or t.is_complex():
            return None
        storage: Any = private.storage_new_with_weak_ptr(memory.cdata)
        if storage is None:
            return None
        offset, shape, stride, dtype = self.values.layouts[first.where]
        with private.DisableTorchDispatch(), suppress(RuntimeError):     # a watch around this one is not to see it
            other = torch.empty(0, dtype=dtype, device=t.device)
            other.set_(storage, offset, shape, stride)
            return bool(((other == t) | ((other != other) & (t != t))).all())
        return None

    def wrote(self, args: Any, kwargs: Any, i: int, name: str, e: Execution) -> None:
        """Argument `i` was written."""
        target = args[i] if i < len(args) else None
        targets = [target] if i < len(args) else [v for k, v in kwargs.items() if k.startswith("out")]
        for t in targets:
            for one in t if isinstance(t, (list, tuple)) else (t,):
                memory = self.values.memory(one) if isinstance(one, Tensor) else None
                if memory is None:
                    continue
                self.values.written(memory, (name, e.site), self.executions.clock)
                self.executions.wrote(memory.maker)
                at: Execution | None = e
                while at is not None:
                    if memory.birth < at.begin:     # not its own
                        at.impure = True
                    at = at.parent

    # Near misses ------------------------------------------------------------------------
    def near(self, kind: purity.Kind, key: Key, leaf: Execution, seconds: float) -> None:
        """Was this operation run before on the same memory, or on equal values elsewhere?"""
        location = key.by_location()
        first = self.loose.get(location)
        if first is not None:
            reason = written_reason(key)
            if reason is not None:
                self.miss(kind, first, leaf.site, reason, seconds)
        self.loose[location] = leaf
        content = key.by_content()
        if content is not None:
            first = self.alike.setdefault(content[0], leaf)
            if first is not leaf:
                self.miss(kind, first, leaf.site, f"operand {content[1]} is another tensor with the same values",
                          seconds)

    def miss(self, kind: purity.Kind, first: Execution, site: Site, reason: str, seconds: float) -> None:
        """Count a near miss."""
        found = self.misses.get((kind.number, first.site, site, reason))
        if found is None:
            found = Miss(kind.name, first.site, site, reason)
            self.misses[kind.number, first.site, site, reason] = found
        found.count += 1
        found.seconds += seconds
