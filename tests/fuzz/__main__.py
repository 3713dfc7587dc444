"""The long sweep: `python -m tests.fuzz --examples 20000`.

Every program has a seed, and a crash ends only its own; a difference is shrunk, printed with its
seed (twice per kind at most) and counted; known differences are only counted.  The exit code is 1
where any other program differs.
"""

from __future__ import annotations

import argparse
import faulthandler
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator

import torch

from autograd_opt.node import compact_always
from tests.fuzz.known import reason_of
from tests.fuzz.oracle import isolated, isolated_all, kind_of, shrink
from tests.programs import Program, from_seed


def sweep(seeds: range, length: int, wide: bool) -> Iterator[tuple[int, Program, Exception | None]]:
    """Every seed, its program, and the difference where there is one."""
    for first in range(seeds.start, seeds.stop, 50):
        chunk = range(first, min(first + 50, seeds.stop))
        programs = [from_seed(seed, length, wide) for seed in chunk]
        yield from zip(chunk, programs, isolated_all(programs), strict=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--examples", type=int, default=20_000, help="how many programs (20000)")
    parser.add_argument("--first", type=int, default=0, help="first seed (0)")
    parser.add_argument("--length", type=int, default=20, help="longest program (20)")
    parser.add_argument("--wide", action="store_true", help="custom functions, checkpoints, ... as well")
    parser.add_argument("--compact", action="store_true", help="drop dead records at every append")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so many seconds")
    parser.add_argument("--kinds", type=int, default=20, help="stop after so many kinds of difference (20)")
    arguments = parser.parse_args()
    faulthandler.enable()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    compact_always(arguments.compact)
    kinds: Counter[str] = Counter()
    known: Counter[str] = Counter()
    start = time.monotonic()
    done = 0
    seeds = range(arguments.first, arguments.first + arguments.examples)
    for seed, program, error in sweep(seeds, arguments.length, arguments.wide):
        if time.monotonic() - start > arguments.seconds or len(kinds) >= arguments.kinds:
            break
        done += 1
        reason = None if error is None else reason_of(str(error), program)
        if reason is not None:
            known[reason] += 1
        elif error is not None:
            small = shrink(program, differs=isolated)
            final = isolated(small) or error
            kind = kind_of(final)
            kinds[kind] += 1
            if kinds[kind] <= 2:
                print(f"===== seed {seed} ({type(final).__name__})\n{final}", flush=True)
        if done % 1000 == 0:
            print(f"... {done} programs, {sum(kinds.values())} differ, {time.monotonic() - start:.0f} s", flush=True)
    print(f"{done} programs, {sum(kinds.values())} differ, {time.monotonic() - start:.0f} s")
    for kind, n in kinds.most_common():
        print(f"{n:6d}  {kind}")
    for reason, n in known.most_common():
        print(f"{n:6d}  known: {reason}")
    return 1 if kinds else 0


if __name__ == "__main__":
    sys.exit(main())
