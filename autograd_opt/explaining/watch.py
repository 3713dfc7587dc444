"""The mode that sees every operation of a program, and what it counts.

It works below torch's autograd, so that backward runs, optimizers and modules are seen as the
kernels that they run; it changes neither an operation nor its operands.  Where watching costs
more than the budget allows, a timer takes the mode off for a while, and the program runs at
its own speed; the report says how much of it was watched.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from types import FrameType
from typing import TYPE_CHECKING, Any

from autograd_opt import errors
from autograd_opt._common.arguments import named, real
from autograd_opt.abi import torch_private as private
from autograd_opt.abi.dispatch_modes import LazyValues
from autograd_opt.abi.torch_private import pop_mode, push_mode
from autograd_opt.explaining import purity, threads
from autograd_opt.explaining.budget import Timer, inside_dispatch
from autograd_opt.explaining.executions import Course
from autograd_opt.explaining.keys import Key
from autograd_opt.explaining.ledger import Ledger
from autograd_opt.explaining.threads import LOCK, Unwrapped

if TYPE_CHECKING:
    from autograd_opt.explaining.findings import Findings

FREE = 0.1
"""Seconds that watching may cost however short the program is: some thousands of operations."""
AROUND = 0.25
"""What handing an operation to Python costs, as a share of what watching it costs from there on: 0.2 to 0.5, measured
on multiplications of small matrices and on training steps."""
LEAST = 0.05
"""The program's own share of the time, at least."""
SAMPLED = 13
"""One operation of so many is timed as to what watching it costs: the clock is dear, and a prime meets every loop."""
PAUSE = 0.02
"""Seconds without an operation beyond which a program is not at work in torch: it imports, or reads its data."""


def elsewhere(frame: FrameType | None) -> bool:
    """True if the program is importing."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def clock_of_this_thread() -> int:
    """The clock of its processor time, to be read from any thread; where there is none, the process's."""
    if hasattr(time, "pthread_getcpuclockid"):
        return time.pthread_getcpuclockid(threading.get_ident())
    return time.CLOCK_PROCESS_CPUTIME_ID


def modes() -> list[Any]:
    """The dispatch modes of this thread, innermost last."""
    return [private.get_dispatch_stack_at(i) for i in range(private.len_torch_dispatch_stack())]


class Watch(Ledger, Unwrapped):
    """What `explain()` returns: a context that watches, then a report of what was found.

    Attributes
    ----------
    budget : the cost of watching that is allowed, as a share of the program's own time.
    operations, seconds : kernel-level operations of the thread that entered it, and their time.
    first_seconds : the time of each operator's first call, which is not part of `seconds`.
    operations_beside, seconds_beside : those of the threads that it started.
    own_seconds, total_seconds, watched_seconds : what watching cost, the time inside the
        context, and the part of it in which operations were watched.

    Every time is processor time of the thread that runs the operation, which other programs on
    the machine do not lengthen.

    It stands on the stack of modes alone: torch's notes that some mode is entered are for its compilers, which are to
    take no account of it.
    """

    def __init__(self, budget: float = 0.5) -> None:
        Unwrapped.__init__(self)
        Ledger.__init__(self)
        self.budget = real("budget", budget)
        self.operations = self.operations_beside = 0
        self.seconds_beside = self.first_seconds = 0.0
        self.seconds = self.total_seconds = self.watched_seconds = 0.0
        self.windows = 1
        self.partly = False
        """True if some operations were not watched."""
        self.sampled_seconds = 0.0
        self.samples = 0
        self.collected_seconds = 0.0
        """The garbage collector's, where remembering sets it going, and those of taking the mode off and on."""
        self.nodes = self.watched_nodes = 0
        """Nodes that autograd has recorded in this thread, all of them and those that were watched."""
        self.idle_seconds = 0.0
        """What the watched program spent elsewhere than in torch, for which nothing may be spent on watching."""
        self.running = self.tired = self.inside = self._looking = False

    # Life -----------------------------------------------------------------------------
    def __enter__(self) -> Watch:
        if self.running:
            raise errors.GraphError(errors.at("this explain() is already open: make another one, ao.explain()"))
        self.running, self.tired = True, False
        self.locator.outside = sys._getframe(1).f_back
        self._course = self.course()
        self._process, self._thread = os.getpid(), threading.get_ident()
        self._clock = clock_of_this_thread()
        self._begin = self._window = self._last = self.now()
        self._work, self._quiet = 0.0, -1.0
        self._first_node = self._node = private.get_sequence_nr()
        self._below = modes()
        push_mode(self)
        self._collects = time.thread_time()
        gc.callbacks.append(self.collecting)
        self._timer = Timer(self.look, HANDLER)
        self._timer.start()
        threads.follow(self)
        return self

    def __exit__(self, *exc: Any) -> None:
        if not self.running:
            raise errors.GraphError(errors.at("this explain() is not open, so it cannot be left"))
        if threading.get_ident() != self._thread:
            raise errors.GraphError(errors.at(
                "this explain() was entered in another thread and cannot be left in this one: leave it there"
            ))
        self._timer.stop()
        gc.callbacks.remove(self.collecting)
        self.running = False
        threads.unfollow()
        now = self.now()
        self.total_seconds += now - self._begin
        self.nodes += private.get_sequence_nr() - self._first_node
        self.partly = self.tired or self.windows > 1
        if not self.tired:
            self.pause(now)
        self.take_off()
        with LOCK:
            for course in self.courses:
                self.locator.close(course, 1)
            self.courses.clear()
            self.forget()
            self.locator.names.clear()
            self.locator.unmark(sys._getframe(1))

    def watching(self) -> bool:
        """Is the mode the innermost one of this thread now?"""
        n = private.len_torch_dispatch_stack()
        return n > 0 and private.get_dispatch_stack_at(n - 1) is self

    def look(self, frame: FrameType | None) -> None:
        """Called by the timer: take the mode off, or put it back, as the budget says."""
        if not self.tired or self._looking or not self.running or os.getpid() != self._process:
            return
        if private.current_autograd_node() is not None:   # the engine restores the modes of its beginning
            return
        if elsewhere(frame) or inside_dispatch(frame, HANDLER):   # there torch has taken the mode off itself
            return
        self._looking = True             # the next signal may come while this one is handled
        begin, collected = time.thread_time(), self.collected_seconds
        try:
            self.switch()
        finally:
            self._looking = False
            self.collected_seconds = max(self.collected_seconds, collected + time.thread_time() - begin)

    def take_off(self) -> None:
        """Take the mode off where it is on, also from below modes that were entered after it and are not left yet."""
        stack = modes()
        place = next((i for i, mode in enumerate(stack) if mode is self), None)
        if place is None:
            return
        above = stack[place + 1:]
        for _ in range(len(above) + 1):
            pop_mode()
        for mode in above:
            push_mode(mode)

    def now(self) -> float:
        """Processor time of the thread that entered the context, whichever asks."""
        return time.clock_gettime(self._clock)

    @property
    def own_seconds(self) -> float:
        """What watching has cost, by the operations that were timed."""
        mean = self.sampled_seconds / self.samples if self.samples else 0.0
        return self.operations * mean * (1 + AROUND) + self.collected_seconds

    def collecting(self, phase: str, info: Any) -> None:
        """Called by the garbage collector, whose runs are too rare and too long to be sampled."""
        if phase == "start":
            self._collects = time.thread_time()
        elif self.inside:
            self.collected_seconds += time.thread_time() - self._collects

    def spare(self, now: float) -> float:
        """Seconds that watching may still cost."""
        elapsed, own = now - self._begin - self.idle_seconds, self.own_seconds
        # what watching cost is estimated, and may come out above what has passed
        return FREE + self.budget * max(elapsed - own, LEAST * elapsed) - own

    def switch(self) -> None:
        """Take the mode off where it is on; put it back once the program has earned it."""
        if self.watching():
            pop_mode()
        now = self.now()
        if self.spare(now) > FREE / 2 and self.on_top_of_the_same():
            with LOCK:
                self.forget()
            self.windows += 1
            self.tired = False
            self._window = self._last = now
            self._node = private.get_sequence_nr()
            push_mode(self)

    def on_top_of_the_same(self) -> bool:
        """Are the modes of now those from which it was entered, watches aside that are off or were left?"""
        now = modes()
        return all(any(mode is m for m in self._below) for mode in now) \
            and all(isinstance(mode, Watch) or any(mode is m for m in now) for mode in self._below)

    # One operation --------------------------------------------------------------------
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if types or self.tired:          # a tensor class with a dispatch of its own, or no budget left
            with LazyValues():
                return func(*args, **kwargs)
        timed = self.operations % SAMPLED == 0
        cost = self.collected_seconds - time.thread_time() if timed else 0.0
        self.inside = True
        with LOCK:
            kind = purity.kind_of(func)
            key = Key(self.values, kind, args, kwargs)
        if timed:
            cost += time.thread_time()
        self.inside = False
        with LazyValues():
            start = time.thread_time()
            result = func(*args, **kwargs)
            seconds = time.thread_time() - start
        if timed:
            cost -= time.thread_time()
        self.inside = True
        with LOCK:
            counted = self.record(kind, key, args, kwargs, result, seconds, self._course, sys._getframe(1))
        self.inside = False
        self.operations += 1
        self.seconds += counted
        self.first_seconds += seconds - counted
        if timed:
            self.charge(max(0.0, cost + time.thread_time() - self.collected_seconds))
        return result

    def beside(self, course: Course, func: Any, args: Any, kwargs: Any) -> Any:
        """An operation of another thread, which has no budget: it is watched all along."""
        with LOCK:
            if self.tired and (now := self.now()) != self._quiet:
                self._quiet = now        # the thread that entered has run, unwatched
                self.forget()
            kind = purity.kind_of(func)
            key = Key(self.values, kind, args, kwargs)
        with LazyValues():
            start = time.thread_time()
            result = func(*args, **kwargs)
            seconds = time.thread_time() - start
        with LOCK:
            if self.running:
                self.seconds_beside += self.record(kind, key, args, kwargs, result, seconds, course, sys._getframe(2))
                self.operations_beside += 1
        return result

    def charge(self, cost: float) -> None:
        """A timed operation is done: go on watching only where the budget allows it."""
        self.sampled_seconds += cost
        self.samples += 1
        now, work = self.now(), self.seconds + self.first_seconds + self.own_seconds
        self.idle_seconds += max(0.0, now - self._last - PAUSE - max(0.0, work - self._work))
        self._last, self._work = now, work
        if self.spare(now) < 0:
            self.pause(now)
            self._timer.soon()

    def pause(self, now: float) -> None:
        """End a window."""
        self.tired = True
        self.watched_seconds += now - self._window
        self.watched_nodes += private.get_sequence_nr() - self._node
        with LOCK:
            self.unseen = self.values.contents(self.executions.shared)

    # Reading ------------------------------------------------------------------------------
    @property
    def report(self) -> Findings:
        """What was found, as a `Findings`."""
        from autograd_opt.explaining.findings import findings_of
        return findings_of(self)

    def __str__(self) -> str:
        return str(self.report)

    def _repr_html_(self) -> str:
        return str(self.report._repr_html_())

    def __rich__(self) -> Any:
        return self.report

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return dict(self.report.to_dict())


HANDLER = Watch.__torch_dispatch__.__code__


@named
def explain(budget: float = 0.5) -> Watch:
    """Watch the torch operations of a block and report the work that it does twice.

    Parameters
    ----------
    budget : what watching may cost, as a share of the block's own time (beside a tenth of a second);
        beyond it parts of the block run unwatched, at full speed.

    Returns
    -------
    A context manager; after it, `print(e)`, `e.report`, `e.to_dict()`.

    >>> import torch, autograd_opt as ao
    >>> x = torch.ones(1000)
    >>> with ao.explain() as e:
    ...     for _ in range(3):
    ...         y = x.exp() * 2
    >>> e.report.findings[0].count
    4
    """
    return Watch(budget)
