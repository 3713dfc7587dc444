"""From the frames of a running operation to the open executions around it."""

from __future__ import annotations

import dataclasses
import functools
import os
from types import CodeType, FrameType
from typing import Any

import torch
from torch import nn

from autograd_opt._common.callsite import HERE, TORCH
from autograd_opt.abi import torch_private as private
from autograd_opt.explaining.call_sites import Spot, spot_of
from autograd_opt.explaining.executions import Course, Execution, Executions
from autograd_opt.explaining.sites import DERIVATIVE, EXPRESSION, LIBRARY, MODULE, OPTIMIZER, Activation, Site, loops_of

CALL, MAKE_GRADS = private.module_call.__code__, private.make_grads.__code__
RUNS = (os.path.join(TORCH, "_tensor.py"), os.path.join(TORCH, "autograd", "__init__.py"))
"""Files whose function `backward` writes gradients: what calls it cannot be left out."""
OPTIMIZERS = os.path.join(TORCH, "optim") + os.sep
WATCHING = (os.path.dirname(os.path.abspath(__file__)) + os.sep, os.path.join(HERE, "cli") + os.sep)
"""Folders whose functions run the program that is watched, and are no part of it."""
DEEPEST = 64
"""Executions told apart, from the innermost outwards."""
MOST_SEQUENCES = 200_000
NEW = object()
"""Stands for an instruction that has not been met."""
RUN = -1
"""Stands for a frame of `RUNS`."""


class Locator:
    """Finds the executions around an operation, closes those that have ended, opens new ones."""

    def __init__(self, executions: Executions) -> None:
        self.executions = executions
        self.codes: list[CodeType] = []
        """Keeps alive whose addresses are keys: a code object's own hash reads all of it."""
        self.seen: dict[tuple[int, int], Any] = {}
        self.loops: dict[int, tuple[tuple[int, int], ...]] = {}
        self.spots: dict[Any, Spot] = {}
        self.names: dict[int, tuple[nn.Module, str]] = {}
        self.derivative_of = functools.cache(functools.partial(dataclasses.replace, backward=True))
        self.traced: dict[int, Activation] = {}
        self.outside: FrameType | None = None
        """The frame that called the watched block's function: it and its callers are of no interest."""

    def here(self, frame: FrameType | None, course: Course, operator: Any) -> Execution:
        """The innermost execution around the operation that runs below `frame`."""
        steps, modules, run = self.steps(frame)
        node: Any = private.current_autograd_node()
        if node is None:
            course.in_run = False
        else:
            if not course.in_run:
                course.in_run, course.run = True, course.run + 1
                course.frees += not torch.is_grad_enabled()
            number = private.sequence_nr(node)
            # this library's way into torch's engine repeats nothing itself; what is around the user's call stays open
            call = next((k for k, step in enumerate(steps) if step[0] == EXPRESSION), len(steps))
            passed = [k for k, step in enumerate(steps[:call]) if step[0] == LIBRARY]
            run -= sum(k < run for k in passed)
            for k in reversed(passed):
                del steps[k]
            forward, begun = course.sequences.get(number, (None, 0))
            if forward is not None and forward.spot is not None:
                if not torch.is_grad_enabled():
                    forward.differentiated(course.frees - begun)
                steps.insert(0, (DERIVATIVE, self.derivative_of(forward.spot), number, -1, None))
                run += run >= 0
        path = iter(reversed(modules))
        clock, n = self.executions.clock, len(course.open)
        e = course.root
        for k in range(len(steps) - 1, -1, -1):
            kind, what, mark, at, child = steps[k]
            position = len(steps) - k
            module = next(path) if kind == MODULE else None
            if kind == EXPRESSION and mark.at != at:
                mark.move(at, clock)
            if position < n:
                old = course.open[position]
                if old.activation == mark and (kind != EXPRESSION or (old.site.spot is what and (
                        not mark.loops or self.goes_on(old, mark, at, child, None if k else operator)))):
                    old.child = child
                    e = old
                    continue
                self.close(course, position)
                n = position
            e = self.open(course, e, kind, what, (mark, at, child), modules[-1] if module is not None else None, module)
            e.operator = operator
        self.close(course, len(steps) + 1)
        if run >= 0:
            for around in course.open[1:len(steps) - run + 1]:
                around.impure = around.site.runs = True
        if torch.is_grad_enabled():
            self.remember(course, e.site)
        return e

    def steps(self, frame: FrameType | None) -> tuple[list[Any], list[nn.Module], int]:
        """What each frame is, innermost first, the modules among them, and how many are within a backward run."""
        steps: list[Any] = []
        modules: list[nn.Module] = []
        child, run = None, -1
        while frame is not None and frame is not self.outside and len(steps) < DEEPEST:
            code, at = frame.f_code, frame.f_lasti
            what = self.seen.get((id(code), at), NEW)
            if what is NEW:
                what = self.see(frame)
            mark: Any = frame.f_trace
            if type(mark) is not Activation:
                mark = self.mark(frame, mark is None)
            if what is None:
                if code is CALL:
                    steps.append((MODULE, None, mark, -1, None))
                    modules.append(frame.f_locals["self"])
            elif type(what) is Spot:
                steps.append((EXPRESSION, what, mark, at, child))
            elif what == RUN:
                run = len(steps) if run < 0 else run
            else:
                steps.append((what, None, mark, -1, None))
            child = mark
            frame = frame.f_back
        return steps, modules, run

    def mark(self, frame: FrameType, free: bool) -> Activation:
        """Mark an activation; where a debugger has its own mark there, tell it by the frame's address."""
        code = frame.f_code
        if free:
            frame.f_trace = mark = Activation(code, self.loops.get(id(code), ()))
            return mark
        known = self.traced.get(id(frame))
        if known is None or known.code is not code:
            known = self.traced[id(frame)] = Activation(code, self.loops.get(id(code), ()))
        return known

    def see(self, frame: FrameType) -> Any:
        """What an instruction is that is met for the first time: a spot, a kind of site, or nothing."""
        code = frame.f_code
        self.codes.append(code)
        spot = spot_of(frame)
        found: Any = None
        if spot is not None and not spot.text.startswith(("import ", "from ")):
            found = self.spots.setdefault((spot.file, spot.function, spot.line, spot.columns, spot.text), spot)
            if id(code) not in self.loops:
                self.loops[id(code)] = loops_of(code)
        elif spot is None and code.co_name == "backward" and code.co_filename in RUNS:
            found = RUN
        elif code is MAKE_GRADS:
            found = LIBRARY              # torch makes the cotangent to begin with, whoever asks
        elif code.co_filename.startswith(OPTIMIZERS):
            found = OPTIMIZER
        elif code.co_filename.startswith(HERE) and not code.co_filename.startswith(WATCHING):
            found = LIBRARY
        self.seen[id(code), frame.f_lasti] = found
        return found

    def goes_on(self, old: Execution, mark: Activation, at: int, child: Any, operator: Any) -> bool:
        """True if an open execution with the same frame and instruction is not another turn of a loop."""
        if not mark.in_loop(at):
            return True
        if old.child is not child:
            return False
        if child is not None or operator is None or operator[0] != old.operator[0]:
            return True
        if operator != old.operator:     # another turn, or another part of this one
            self.executions.novel(old)
            old.impure = True
        return operator != old.operator

    def open(self, course: Course, parent: Execution, kind: int, what: Any, where: tuple[Any, int, Any],
             root: nn.Module | None, module: nn.Module | None) -> Execution:
        """Begin an execution."""
        if kind == MODULE and root is not None and module is not None:
            name = self.path(root, module)
            site = parent.site.child((MODULE, name), kind, name=name)
        else:
            site = parent.site.child((kind, what), kind, what)
        e = Execution(site, parent, self.executions.clock)
        e.activation, e.instruction, e.child = where
        e.impure = kind in (OPTIMIZER, LIBRARY)      # their own affair, never named
        if kind == EXPRESSION:
            site.code = where[0].code
        if type(where[2]) is Activation:
            site.callee = where[2].code
        course.open.append(e)
        return e

    def unmark(self, frame: FrameType | None) -> None:
        """Take the marks off the frames that go on."""
        while frame is not None and frame is not self.outside:
            if type(frame.f_trace) is Activation:
                frame.f_trace = None
            frame = frame.f_back
        self.outside = None

    def close(self, course: Course, position: int) -> None:
        """End the executions from a depth on, innermost first."""
        while len(course.open) > position:
            self.executions.close(course.open.pop())

    def remember(self, course: Course, site: Site) -> None:
        """Which site made the latest node of autograd's graph."""
        sequences = course.sequences
        sequences.setdefault(private.get_sequence_nr() - 1, (site, course.frees))
        if len(sequences) > MOST_SEQUENCES:
            for sequence in list(sequences)[:MOST_SEQUENCES // 4]:
                del sequences[sequence]

    def path(self, root: nn.Module, inner: nn.Module) -> str:
        """A module by its name in the outermost: `ViT.blocks.3.attention`."""
        known = self.names.get(id(inner))
        if known is not None and known[0] is inner:
            return known[1]
        base = type(root).__name__
        for name, module in root.named_modules():
            self.names[id(module)] = (module, f"{base}.{name}" if name else base)
        if id(inner) not in self.names:
            # made during the call: no module of the model
            self.names[id(inner)] = (inner, f"{base}.({type(inner).__name__})")
        return self.names[id(inner)][1]
