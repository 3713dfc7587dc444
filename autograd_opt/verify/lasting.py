"""Whole proofs that outlive the process: the first step of a program that is run again finds its proof in a file.

A file holds what its proof has read, in words of every process (the portable row of `seen_by_proofs`, leaders,
the question), and a hash of what it rests on: the operator table with all rules and meanings as they are
loaded (`world.py`), the verifier's sources, the compiled core, versions.  It is believed only where all of it is the
same, byte for byte: a question is spelled once, its file begins with that text, and the proof follows.  Files are
written when the process ends.
"""

from __future__ import annotations

import atexit
import base64
import functools
import hashlib
import json
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from autograd_opt import executor, node, recorder, structure
from autograd_opt.structure import seen_by_proofs
from autograd_opt.verify import reading, stored
from autograd_opt.verify.known import USUAL, Key
from autograd_opt.verify.shelf import cache_folder, data_in, put_text, text_of
from autograd_opt.verify.verdict import Status, Verdict, Verification
from autograd_opt.verify.versions import versions
from autograd_opt.verify.world import taken, world

CORE = executor, node, recorder, structure
MOST_ASKED = 128
"""So many structures a process asks files about, and stores; one may make a new structure for each step."""
MOST_NODES = 30_000
PARTS = "exact scope conditions engine trust stats goals original optimized evidence".split()

Question = tuple[str, str, str]
"""The path of a file, all that a proof in it depends on as text, and which part of that is the hash of `world`."""
_asked = [0]
_ready: list[bool] = []
_waiting: dict[str, tuple[str, str, Verification]] = {}
"""What is written at the end: by path, the hash of `world`, how the file begins, and the proof."""
SECONDS = 0.5
"""Of CPU, that writing may take."""


def ready() -> None:
    """Read once what every proof rests on, and one of the files, so that no step does this for the first time.

    Called where a graph that verifies is made.
    """
    if _ready:
        return
    _ready.append(True)
    versions()
    folder = cache_folder()
    about = None if folder is None else surroundings()
    tables = None if about is None else world()
    if folder is None or tables is None:
        return
    beginning(str(about), tables.told)
    spelled(USUAL, torch.get_default_dtype())
    try:
        with os.scandir(folder / "proofs") as files:
            file = next(files, None)
    except OSError:
        return
    found = None if file is None else data_in(text_of(file.path))
    if type(found) is dict:
        seen_by_proofs([], [], [], False, reading, True)
        base64.b64encode(hashlib.sha256(json.dumps(found).encode()).digest()).decode()
        proof_in(found.get("proof"))


def question(key: Key | None, nodes: Sequence[Any], roots: Any, leaves: Any, led: bool) -> Question | None:
    """Where a proof is kept and all that it depends on; None where that cannot be said, or is not to be asked."""
    if key is None or len(nodes) > MOST_NODES or _asked[0] >= MOST_ASKED:
        return None
    folder = cache_folder()
    about = None if folder is None else surroundings()
    tables = None if about is None else world()
    if tables is None or not tables.tells(key[0][0]):
        return None
    row = seen_by_proofs(list(nodes), roots, leaves, led, reading, True)
    if row is None:
        return None
    _asked[0] += 1
    _, leader, alive, asked, dtype = key[0]
    bits = row[0].words(), leader, alive
    texts = json.dumps([repr(list(row[0].legend or ())), spelled(asked, dtype)])
    graph = ", ".join(["null" if b is None else f'"{base64.b64encode(b).decode()}"' for b in bits])
    text = f'{beginning(str(about), tables.told)}, "texts": {texts}, "graph": [{graph}], "proof": '
    return f"{folder}/proofs/{hashlib.sha256(text.encode()).hexdigest()}.json", text, tables.told


@functools.lru_cache(4)
def beginning(about: str, told: str) -> str:
    """What the texts of all files of this process begin with."""
    return json.dumps({"about": about, "tables": told})[:-1]


@functools.lru_cache(64)
def spelled(asked: Any, dtype: Any) -> str:
    """How a proof was asked for."""
    return repr((asked, dtype))


def find(asked: Question | None) -> Verification | None:
    """The stored proof that answers this, or None."""
    if asked is None:
        return None
    path, wanted, _ = asked
    text = text_of(path)
    begun = wanted.encode()
    if text is None or not text.startswith(begun) or not text.endswith(b"}"):
        return None
    return proof_in(data_in(text[len(begun) : -1]))


def proof_in(raw: Any) -> Verification | None:
    """The verdict that a file holds; None where it is none."""
    if type(raw) is not dict or raw.keys() != set(PARTS):
        return None
    try:
        goals = tuple([Verdict(str(goal), Status.PROVED, str(exact)) for goal, exact in raw["goals"]])
        return Verification(Status.PROVED, str(raw["exact"]), str(raw["scope"]), tuple(map(str, raw["conditions"])),
                            trust={**raw["trust"], "stored": "the whole proof"}, goals=goals,
                            evidence=tuple(map(str, raw["evidence"])), stats={**raw["stats"], "stored": True},
                            original=str(raw["original"]), optimized=str(raw["optimized"]), engine=str(raw["engine"]))
    except (TypeError, ValueError, KeyError, AttributeError):
        return None


def keep(asked: Question | None, found: Verification) -> None:
    """Store a proof at the end of the process; nothing else is ever stored."""
    if asked is None or found.status is not Status.PROVED or "searched" in found.stats:
        return
    if all(g.status is Status.PROVED for g in found.goals):
        _waiting[asked[0]] = asked[2], asked[1], found


def parts_of(found: Verification) -> dict[str, Any]:
    """What a file holds of a proof."""
    goals = [[g.goal, g.exact] for g in found.goals]
    return {k: goals if k == "goals" else getattr(found, k) for k in PARTS}


def forget() -> None:
    """As in a new process: for who changes what proofs rest on."""
    _asked[0] = 0
    _ready.clear()
    _waiting.clear()
    surroundings.cache_clear()
    stored.surroundings.cache_clear()


def write() -> None:
    """Write what waits, unless a function that rules or meanings call has been replaced meanwhile.

    Hashes of programs are made here where their proofs needed no sweep: for so many seconds at most.
    """
    tables = taken().told if _waiting else ""
    end = time.process_time() + SECONDS
    while _waiting:
        path = next(iter(_waiting))
        told, begun, found = _waiting.pop(path)
        if told == tables and time.process_time() < end:
            with suppress(Exception):    # a rule that fails only now leaves no file
                put_text(Path(path), f"{begun}{json.dumps(parts_of(found))}}}")


atexit.register(write)


@functools.cache
def surroundings() -> str | None:
    """As for rewrites, and the compiled core that was loaded."""
    about = stored.surroundings()
    if about is None:
        return None
    core = {}
    for module in CORE:
        at = Path(str(module.__file__)).stat()
        if max(at.st_mtime, at.st_ctime) >= stored.LOADED:
            return None
        core[module.__name__] = f"{at.st_size} {at.st_mtime_ns} {at.st_ctime_ns} {at.st_ino}"
    return repr({**about, **core})
