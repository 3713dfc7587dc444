"""The long sweep: `python -m tests.fuzz --examples 20000 --wide --jobs 2`.

Every program has a seed, and a crash ends only its own; a difference is shrunk, printed with its
seed (twice per cause at most) and counted; known differences are only counted.  The exit code is 1
where any other program differs.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import os
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from selectors import EVENT_READ, DefaultSelector

import torch

from autograd_opt.graph.tape import compact_always
from autograd_opt.record import resting
from tests.fuzz.known import reason_of
from tests.fuzz.oracle import Difference
from tests.fuzz.shrinking import isolated, isolated_all, kind_of, shrink
from tests.programs import Program, from_seed

CHUNK = 50


def sweep(
    seeds: Sequence[int], length: int, wide: bool, kinds: Sequence[str]
) -> Iterator[tuple[int, Program, Exception | None]]:
    """Yield every seed, its program, and the difference where there is one."""
    for first in range(0, len(seeds), CHUNK):
        chunk = seeds[first:first + CHUNK]
        programs = [from_seed(seed, length, wide, kinds) for seed in chunk]
        yield from zip(chunk, programs, isolated_all(programs), strict=True)


def judge(seed: int, program: Program, error: Exception, often: Counter[str]) -> tuple[str, str, str]:
    """Return what to count a difference as ("known" or "new"), its cause, and what to print.

    What says the same as two others before is not shrunk, nor is what fails outside its own process.
    """
    small, reason = program, None
    with suppress(Exception):
        reason = reason_of(str(error), program)
    if reason is not None:
        return "known", reason, ""
    first = kind_of(error)
    often[first] += 1
    if often[first] > 2:
        return "new", first, ""
    with suppress(Exception):
        small = shrink(program, differs=isolated)
    final = isolated(small) or error
    return "new", kind_of(final), f"===== seed {seed} ({type(final).__name__})\n{final}"


def work(seeds: Sequence[int], arguments: argparse.Namespace, out: int) -> None:
    """Sweep in a process of its own, and write what it finds, a record each, to a pipe."""
    often: Counter[str] = Counter()
    gc.freeze()
    with os.fdopen(out, "w") as lines:
        for seed, program, error in sweep(seeds, arguments.length, arguments.wide, arguments.kinds):
            record = ("", "", "") if error is None else judge(seed, program, error, often)
            lines.write(repr(record) + "\n")
            lines.flush()


def records(arguments: argparse.Namespace) -> Iterator[tuple[str, str, str]]:
    """Yield the records of all processes as they come."""
    seeds = range(arguments.first, arguments.first + arguments.examples)
    jobs, selector = [], DefaultSelector()
    for k in range(arguments.jobs):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            with suppress(BrokenPipeError):
                work(seeds[k::arguments.jobs], arguments, writing)
            os._exit(0)
        os.close(writing)
        jobs.append(child)
        selector.register(os.fdopen(reading), EVENT_READ)
    try:
        while selector.get_map():
            for key, _ in selector.select():
                line = key.fileobj.readline()  # type: ignore[union-attr]
                if line:
                    yield eval(line)
                else:
                    selector.unregister(key.fileobj)
    finally:
        for key in list(selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        for child in jobs:
            if os.waitpid(child, 0)[1]:
                raise Difference("a process of the sweep has ended early")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--examples", type=int, default=20_000, help="how many programs (20000)")
    parser.add_argument("--first", type=int, default=0, help="first seed (0)")
    parser.add_argument("--length", type=int, default=20, help="longest program (20)")
    parser.add_argument("--wide", action="store_true", help="custom functions, checkpoints, ... as well")
    parser.add_argument("--compact", action="store_true", help="drop dead records at every append")
    parser.add_argument("--kinds", type=lambda s: s.split(","), default=[], metavar="NAME,...",
                        help="subjects, or kinds, of statements that every program has: functions,loops,kinked")
    parser.add_argument("--jobs", type=int, default=1, help="processes (1)")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so many seconds")
    parser.add_argument("--causes", type=int, default=20, help="stop after so many causes of difference (20)")
    arguments = parser.parse_args()
    resting.set_patience(0)              # all programs open their graphs at one line
    faulthandler.enable()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    compact_always(arguments.compact)
    found: dict[str, Counter[str]] = {"new": Counter(), "known": Counter()}
    start, done = time.monotonic(), 0
    for what, cause, text in records(arguments):
        done += 1
        if what:
            found[what][cause] += 1
            if text and found["new"][cause] <= 2:
                print(text, flush=True)
        if done % 1000 == 0:
            print(f"... {done} programs, {found['new'].total()} differ, {time.monotonic() - start:.0f} s", flush=True)
        if time.monotonic() - start > arguments.seconds or len(found["new"]) >= arguments.causes:
            break
    print(f"{done} programs, {found['new'].total()} differ, {time.monotonic() - start:.0f} s")
    for cause, n in found["new"].most_common():
        print(f"{n:6d}  {cause}")
    for cause, n in found["known"].most_common():
        print(f"{n:6d}  known: {cause}")
    return 1 if found["new"] else 0


if __name__ == "__main__":
    sys.exit(main())
