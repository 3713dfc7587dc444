"""Section `budget`: nanoseconds of each step of recording and of backward, for one small operation.

Each figure is the time of a statement, or the difference of two statements that differ by
that step alone; the table says which.  Processor time, the best of many repeats.
"""

from __future__ import annotations

import time
import timeit
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import torch

import autograd_opt as ao

from .jobs import Settings, Tick
from .section import Grid, Row, Section

LENGTH = 1000
"""Operations in a graph that is timed."""

Times = dict[str, float]
LINES: list[tuple[str, str, Callable[[Times], float]]] = [
    ("kernel, called from Python, nothing recorded", "torch.add(p, q) without a graph", lambda t: t["kernel"]),
    ("torch eager, recorded", "y + b, its autograd on", lambda t: t["eager forward"]),
    ("torch eager, backward", "backward of y + 1, a node", lambda t: t["eager backward"]),
    ("entering the torch-function mode and leaving it", "p.dim() in a graph − outside", lambda t: t["mode"]),
    ("recording: node, operands, source line", "y + b in a graph − kernel", lambda t: t["record"] - t["kernel"]),
    ("binding arguments", "torch.add(y, b) − (y + b), both in a graph, − mode",
     lambda t: t["record by mode"] - t["record"] - t["mode"]),
    ("key and value table", "y + b with optimize=True − as written", lambda t: t["record optimized"] - t["record"]),
    ("a repeated call, whole", "a + b again with optimize=True", lambda t: t["hit"]),
    ("backward: pop, rule without a kernel, deliver", "backward of y + 1, a node", lambda t: t["backward of add"]),
    ("backward: rule with a kernel", "backward of −y − backward of y + 1", lambda t: t["backward of neg"]
     - t["backward of add"]),
    ("backward: accumulation into a leaf", "backward of y + b − backward of y + 1", lambda t: t["backward of leaf"]
     - t["backward of add"]),
    ("with optimize=True: backward, a node", "backward of y + 1 − as written", lambda t: t["backward of add, optimized"]
     - t["backward of add"]),
    ("opening a graph and leaving it", "with AutogradGraph(): pass", lambda t: t["open"]),
    ("a backward of one node, whole", "(a * b).backward() with one element − recording",
     lambda t: t["backward call"] - t["record"]),
]
"""Step, how it is found, and from which times."""


def best(statement: str, names: dict[str, Any], repeats: int, number: int = LENGTH) -> float:
    """Nanoseconds of a statement."""
    timer = timeit.Timer(statement, globals=names, timer=time.process_time)
    return min(timer.repeat(repeats, number)) / number * 1e9


def chain_times(operation: str, repeats: int, optimize: bool | None) -> tuple[float, float]:
    """Nanoseconds of forward and backward of each link of `y = operation`; eager where `optimize` is None."""
    leaf = (lambda t: t.requires_grad_()) if optimize is None else ao.tensor
    y, b = leaf(torch.randn(8, 8)), leaf(torch.randn(8, 8))
    loop = compile(f"for _ in range({LENGTH}): y = {operation}", "<budget>", "exec")
    forward, backward = [], []
    for _ in range(repeats):
        names = {"y": y, "b": b, "torch": torch}
        with nullcontext() if optimize is None else ao.AutogradGraph(optimize=optimize):
            begin = time.process_time()
            exec(loop, names)
            middle = time.process_time()
            loss = names["y"].sum()
            del names
            begin_backward = time.process_time()
            loss.backward()
            end = time.process_time()
        y.grad = b.grad = None
        forward.append(middle - begin)
        backward.append(end - begin_backward)
    return min(forward) / LENGTH * 1e9, min(backward) / LENGTH * 1e9


def times(repeats: int) -> Times:
    """Every time that a line of the table is made of."""
    p, q = torch.randn(8, 8), torch.randn(8, 8)
    a, b, one = ao.tensor(p), ao.tensor(q), ao.tensor(1.0)
    names: dict[str, Any] = {"torch": torch, "ao": ao, "p": p, "q": q, "a": a, "b": b, "one": one}
    found = {"kernel": best("torch.add(p, q)", names, repeats)}
    outside = best("p.dim()", names, repeats)
    found["eager forward"], _ = chain_times("y + b", repeats, None)
    _, found["eager backward"] = chain_times("y + 1.0", repeats, None)
    with ao.AutogradGraph():
        found["mode"] = best("p.dim()", names, repeats) - outside
    found["record"], found["backward of leaf"] = chain_times("y + b", repeats, False)
    found["record by mode"], _ = chain_times("torch.add(y, b)", repeats, False)
    found["record optimized"], _ = chain_times("y + b", repeats, True)
    _, found["backward of add"] = chain_times("y + 1.0", repeats, False)
    _, found["backward of neg"] = chain_times("-y", repeats, False)
    _, found["backward of add, optimized"] = chain_times("y + 1.0", repeats, True)
    with ao.AutogradGraph(optimize=True):
        names["kept"] = a + b
        found["hit"] = best("a + b", names, repeats)
    del names["kept"]
    found["open"] = best("with ao.AutogradGraph(): pass", names, repeats, 100)
    with ao.AutogradGraph():
        found["backward call"] = best("(one * one).backward()", names, repeats, 100)
    one.grad = None
    return found


def measure_budget(label: str, settings: Settings, on_round: Tick = lambda *_: None) -> Row:
    """Every line."""
    found = times(settings.repeats)
    return {"name": label, "times": found,
            "lines": [{"step": step, "from": how, "ns": value(found)} for step, how, value in LINES]}


def grids(rows: list[Row]) -> list[Grid]:
    """Step, nanoseconds, how it was found."""
    lines = [[line["step"], f"{line['ns']:,.0f}", f"`{line['from']}`"]
             for row in rows if "error" not in row for line in row["lines"]]
    return [Grid("What a step costs", ("step", "ns", "found as"), lines,
                 "8×8 float32; p and q are plain tensors, a, b and y recorded ones.")]


def labels(groups: Sequence[str] = ()) -> list[str]:
    return ["8×8 float32"]


SECTION = Section("budget", "The budget of one operation", labels, measure_budget, grids, of_workloads=False)
