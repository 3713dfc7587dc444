"""Run programs in processes of their own, and shorten those that differ."""

from __future__ import annotations

import gc
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence

from tests.fuzz.oracle import MODES, Difference, Mode, differs, eager
from tests.programs import Program

Differs = Callable[..., Exception | None]


def isolated(program: Program, modes: Sequence[Mode] = MODES) -> Exception | None:
    """`differs` in a process of its own, so that a crash is a difference too."""
    (error,) = isolated_all([program], modes)
    return error


def isolated_all(programs: Sequence[Program], modes: Sequence[Mode] = MODES) -> Iterator[Exception | None]:
    """`isolated` for each program; those up to a crash share one process."""
    k = 0
    while k < len(programs):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            gc.freeze()          # what the parent has made is no garbage
            with os.fdopen(writing, "w") as out:
                for program in programs[k:]:
                    error = differs(program, modes)
                    out.write(json.dumps("" if error is None else f"{type(error).__name__}: {error}") + "\n")
                    out.flush()
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as answers:
            for answer in answers:
                text = json.loads(answer)
                yield Difference(text.partition(": ")[2]) if text else None
                k += 1
        status = os.waitpid(child, 0)[1]
        if status:
            yield Difference(f"the process ends with signal {status & 127}\n--- program ---\n{programs[k]}")
            k += 1


def kind_of(error: Exception) -> str:
    """What differences of one cause have in common: the message without names and numbers."""
    first = f"{type(error).__name__}: {error}".splitlines()[0]
    first = re.sub(r"\[(True|False)[^]]*\]", "·", first)
    return re.sub(r"kind=.*?: |<.*?>|\bv?\d+(\.\d+)?\b|\b[xywsfzcdim]\b|in statement .*?, |in \d+$", "·", first)[:110]


def shrink(program: Program, modes: Sequence[Mode] = MODES, differs: Differs = differs) -> Program:
    """A shorter program with a difference of the same kind: statements go while it stays valid and differs."""
    reference, kind = eager(program), kind_of(differs(program, modes) or AssertionError())

    def bad(candidate: Program) -> bool:
        outcome = eager(candidate)
        if isinstance(outcome.error, (NameError, SyntaxError, IndentationError)):
            return False
        if (outcome.error is None) != (reference.error is None):
            return False
        found = differs(candidate, modes)
        return found is not None and kind_of(found) == kind

    step = max(1, len(program.statements) // 2)
    while True:
        k, before = 0, len(program.statements)
        while k < len(program.statements):
            candidate = program.without(k, k + step)
            if candidate.statements and bad(candidate):
                program = candidate
            else:
                k += step
        if step == 1 and len(program.statements) == before:
            return program
        step = max(1, step // 2)
