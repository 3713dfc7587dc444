"""Proofs of rewrites that outlive the process: one small file each, read by the next process instead of asking sympy.

A file holds everything that its proof depends on, and is believed only where all of it is the same, compared in
full: both programs over the cut, what their operators mean (as code, not by name), the sources of the verifier, and
the versions of Python, torch, sympy and numpy.  Only proofs are kept, no refutation and nothing undecided; files are
data.
"""

from __future__ import annotations

import functools
import hashlib
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autograd_opt.verify.fingerprints import Unclear, meaning_of
from autograd_opt.verify.ir import Program
from autograd_opt.verify.shelf import cache_folder, contents, put
from autograd_opt.verify.versions import version_of
from autograd_opt.verify.words import PULLBACK

LOADED = time.time() - 10
"""Before this module and those that it describes were loaded: a file that has changed since may not be what runs."""
BELIEVED: ContextVar[bool] = ContextVar("BELIEVED", default=False)
"""May a file stand for a proof here?  Not where everything is to be proved anew."""


@dataclass(frozen=True)
class Answer:
    """`everywhere`: for all sizes; `conditions`: what was taken for granted, each a line that `assume` may hold."""

    equal: bool
    message: str = ""
    everywhere: bool = False
    conditions: tuple[str, ...] = ()


@contextmanager
def believed(yes: bool) -> Iterator[None]:
    """Whether files are read and written in this block."""
    token = BELIEVED.set(yes)
    try:
        yield
    finally:
        BELIEVED.reset(token)


def find(left: Program, right: Program) -> Answer | None:
    """The stored proof that these two programs over one cut are equal, or None."""
    wanted = entry(left, right) if BELIEVED.get() else None
    path = None if wanted is None else path_of(wanted)
    found = None if path is None else contents(path)
    if wanted is None or type(found) is not dict or found.keys() != wanted.keys() | {"everywhere", "conditions"}:
        return None
    everywhere, conditions = found["everywhere"], found["conditions"]
    if {k: found[k] for k in wanted} != wanted or type(everywhere) is not bool or type(conditions) is not list:
        return None
    return Answer(True, "", everywhere, tuple(conditions)) if all(type(c) is str for c in conditions) else None


def keep(left: Program, right: Program, answer: Answer) -> None:
    """Store a proof."""
    wanted = entry(left, right) if answer.equal and BELIEVED.get() else None
    path = None if wanted is None else path_of(wanted)
    if wanted is not None and path is not None:
        put(path, {**wanted, "everywhere": answer.everywhere, "conditions": list(answer.conditions)})


def path_of(wanted: dict[str, Any]) -> Path | None:
    folder = cache_folder()
    if folder is None:
        return None
    return folder / "rewrites" / f"{hashlib.sha256(json.dumps(wanted).encode()).hexdigest()}.json"


# ----- what a proof depends on -----
def entry(left: Program, right: Program) -> dict[str, Any] | None:
    """All that a proof about these programs depends on, as data; None where that cannot be said."""
    about = surroundings()
    if about is None:
        return None
    heads = [p.vocabulary.heads[h] for p in (left, right) for h in set(p.heads)]
    ops = {h.op for h in heads} | {str(h.value("#of")) for h in heads if h.op == PULLBACK}
    try:
        meanings = {op: meaning_of(op) for op in sorted(ops)}
    except Unclear:
        return None
    return {"about": about, "meanings": meanings, "left": left.text(), "right": right.text()}


@functools.cache
def surroundings() -> dict[str, str] | None:
    """Versions, and a hash of the verifier's sources; None where those have changed since they were loaded."""
    h = hashlib.sha256()
    for file in sorted(Path(__file__).parent.glob("*.py")):
        changed = file.stat()
        if max(changed.st_mtime, changed.st_ctime) >= LOADED:
            return None
        data = file.read_bytes()
        h.update(f"{file.name} {len(data)}\n".encode() + data)
    return {"format": "1", "sources": h.hexdigest(), "python": sys.version,
            **{name: version_of(name) for name in ("torch", "sympy", "numpy")}}
