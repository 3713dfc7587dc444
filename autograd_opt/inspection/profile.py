"""When each kernel of a block ran: a trace with a time axis, which chrome://tracing and Perfetto show."""

from __future__ import annotations

import json
import linecache
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from autograd_opt._common.callsite import place_text, user_frame
from autograd_opt._common.files import path_of, written_whole
from autograd_opt.abi.dispatch_modes import LazyValues
from autograd_opt.abi.torch_private import TorchDispatchMode
from autograd_opt.graph import program_text


class Kernels(TorchDispatchMode):
    """Notes of each kernel its name, source line, beginning and end in microseconds, and its operands' shapes."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[tuple[str, str, float, float, str]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        frame = user_frame()
        source = "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"
        begin = time.perf_counter()
        with LazyValues():
            result = func(*args, **(kwargs or {}))
        end = time.perf_counter()
        shapes = ", ".join(str(tuple(a.shape)) for a in args if isinstance(a, Tensor))
        self.rows.append((func.overloadpacket.__name__, source, begin * 1e6, end * 1e6, shapes))
        return result


@contextmanager
def profile(path: Any) -> Iterator[None]:
    """Write to `path` when each kernel ran within the block, above each other the source line and its kernels."""
    file = path_of("path", path)
    mode = Kernels()
    with mode:
        yield
    with written_whole(file) as draft:
        draft.write_text(json.dumps({"traceEvents": events(mode.rows), "displayTimeUnit": "ms"}), encoding="utf-8")


def events(rows: list[tuple[str, str, float, float, str]]) -> list[dict[str, Any]]:
    """The trace's events: for kernels of one source line that follow each other one event around them."""
    found: list[dict[str, Any]] = []
    start = rows[0][2] if rows else 0.0
    thread = {"ph": "X", "pid": os.getpid(), "tid": threading.get_native_id()}
    around: dict[str, Any] = {}
    for name, source, begin, end, shapes in rows:
        if around.get("source") != source:
            around = {**thread, "name": line_of(source), "cat": "line", "ts": begin - start, "source": source}
            found.append(around)
        around["dur"] = end - start - around["ts"]
        found.append({**thread, "name": name, "cat": "kernel", "ts": begin - start, "dur": end - begin,
                      "args": {"shapes": shapes, "source": place_text(source) if source else ""}})
    for event in found:
        event.pop("source", None)
    return found


def line_of(source: str) -> str:
    """A source line's place and text."""
    file, _, line = source.rpartition(":")
    text = linecache.getline(file, int(line)).strip() if line.isdecimal() else ""
    return f"{program_text.source_text(place_text(source))}  {text}".strip() if source else "elsewhere"
