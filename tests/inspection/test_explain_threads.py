"""Threads that start while a program is watched, and watches inside watches."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import autograd_opt as ao
from autograd_opt.explaining import Watch, explain

UNLIMITED = 1e9
x = torch.ones(8, 8)
turn = threading.Lock()


@pytest.fixture(autouse=True)
def no_mode_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch notes once for all threads that a mode is entered, and modes of threads that overlap leave the note set."""
    monkeypatch.setattr(torch.utils._python_dispatch, "_is_in_torch_dispatch_mode", False)


def repeats(e: Watch) -> dict[str, int]:
    """Operator to number of repeats."""
    total: dict[str, int] = {}
    for finding in e.report.findings:
        for line in finding.lines:
            total[line.op] = total.get(line.op, 0) + line.count
    return total


def work() -> None:
    for _ in range(5):
        with turn:                       # what repeats an expression that another thread has not ended is no finding
            _ = (x @ x).tanh()


def in_threads(program: Callable[[], object], n: int = 1) -> None:
    threads = [threading.Thread(target=program) for _ in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


@pytest.mark.parametrize("order", ["000001111122222", "012012012012012", "101100222220110", "221101212102000"])
def test_threads_started_inside_are_watched_whichever_goes_on(order: str) -> None:
    turns, over = [threading.Semaphore(0) for _ in range(3)], threading.Semaphore(0)
    numbers = iter(range(3))

    def in_turn() -> None:
        turn = turns[next(numbers)]
        for _ in range(5):
            turn.acquire()
            _ = (x @ x).tanh()
            over.release()

    with explain(UNLIMITED) as e:
        threads = [threading.Thread(target=in_turn) for _ in range(3)]
        for t in threads:
            t.start()
        for i in order:
            turns[int(i)].release()
            over.acquire()
        for t in threads:
            t.join()
    assert repeats(e) == {"mm": 12, "tanh": 12}         # of 15, three of which come before the loop in each thread
    assert e.report.operations == 30
    assert "test_explain_threads.py" in e.report.findings[0].places[0]


def test_so_are_those_that_they_start_pools_and_classes_with_a_run_of_their_own() -> None:
    class Own(threading.Thread):
        def run(self) -> None:
            work()

    with explain(UNLIMITED) as e:
        in_threads(lambda: in_threads(work))
        own = Own()
        own.start()
        own.join()
        with ThreadPoolExecutor(1) as pool:
            pool.submit(work).result()
    assert repeats(e) == {"mm": 12, "tanh": 12}      # of 15, one before the loop in each of three threads
    assert "run" not in vars(own)
    assert threading.Thread.start.__module__ == "threading"


def test_a_write_by_one_thread_is_seen_in_another() -> None:
    y = torch.ones(8, 8)
    with explain(UNLIMITED) as e:
        in_threads(lambda: y.exp())
        y.add_(1)
        in_threads(lambda: y.exp())
    assert repeats(e) == {}
    assert any("written between them by add_" in miss.reason for miss in e.report.near_misses)


def test_a_thread_is_watched_while_the_main_one_runs_at_full_speed_and_forgets_what_that_may_have_written() -> None:
    y = torch.ones(8, 8)
    first, written = threading.Event(), threading.Event()

    def twice() -> None:
        _ = y.exp()
        first.set()
        written.wait()
        _ = y.exp()
        _ = x.sin()

    with explain(UNLIMITED) as e:
        t = threading.Thread(target=twice)
        t.start()
        first.wait()
        e._timer.stop()
        e.tired = True
        e.take_off()
        y.add_(1)
        written.set()
        t.join()
        assert e.operations_beside == 3
    assert repeats(e) == {}
    assert not e.report.near_misses


def test_threads_of_others_and_those_that_outlive_the_block_are_let_alone() -> None:
    go, done = threading.Event(), threading.Event()

    def late() -> None:
        go.wait()
        work()
        done.set()

    with explain(UNLIMITED) as e:
        t = threading.Thread(target=late)
        t.start()
    go.set()
    done.wait()
    t.join()
    assert e.report.operations == 0
    in_threads(work)
    assert e.report.operations == 0


def test_threads_compute_the_same_results_and_fail_as_they_would() -> None:
    found: list[torch.Tensor] = []

    def step() -> None:
        w = torch.full((4, 4), 0.5, requires_grad=True)
        for _ in range(3):
            (w @ w).tanh().sum().backward()
        assert w.grad is not None
        found.append(w.grad)

    step()
    with explain(UNLIMITED) as e:
        in_threads(step, 2)
        failed: list[object] = []

        def wrong() -> None:
            try:
                torch.ones(2) @ torch.ones(3)
            except RuntimeError as error:
                failed.append(error)

        in_threads(wrong)
    assert all(torch.equal(found[0], g) for g in found)
    assert len(failed) == 1
    assert repeats(e)["mm"] > 0


SCRIPT = """
import threading, time, torch
def late():
    time.sleep(0.3)
    x = torch.ones(50, 50)
    for _ in range(4):
        x @ x
    print("thread ends")
threading.Thread(target=late).start()
print("main ends")
"""
POOL = SCRIPT.replace("threading.Thread(target=late).start()",
                      "from concurrent.futures import ThreadPoolExecutor; p = ThreadPoolExecutor(2); p.submit(late)")


@pytest.mark.parametrize("script", [SCRIPT, POOL], ids=["thread", "pool"])
def test_the_command_waits_for_threads_that_python_waits_for(tmp_path: Path, script: str) -> None:
    (tmp_path / "s.py").write_text(script)
    done = subprocess.run([sys.executable, "-m", "autograd_opt", "explain", "s.py"], cwd=tmp_path,
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.index("thread ends") < done.stdout.index("3 listed below repeat another")


# Watches inside watches --------------------------------------------------------------------
def test_a_watch_does_not_see_what_another_one_does_for_itself() -> None:
    with explain(UNLIMITED) as outer:
        with explain(UNLIMITED) as inner:
            for _ in range(4):
                _ = x.exp()
        _ = x.exp()
    assert repeats(inner) == {"exp": 3}
    assert inner.report.operations == 4
    assert repeats(outer) == {"exp": 4}
    assert outer.report.operations == 5


def test_it_is_left_once_for_each_time_that_it_is_entered() -> None:
    e = explain()
    with pytest.raises(ao.GraphError, match="is not open"):
        e.__exit__(None, None, None)
    with e, pytest.raises(ao.GraphError, match="already open"):
        e.__enter__()
    with pytest.raises(ao.GraphError, match="is not open"):
        e.__exit__(None, None, None)
    assert torch._C._len_torch_dispatch_stack() == 0


@pytest.mark.parametrize("kind", ["watch", "mode"])
def test_it_may_be_left_before_what_was_entered_after_it(kind: str) -> None:
    """Then it sees no more, and torch forgets it: nothing of it stays behind on the stack of modes."""
    class Passing(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    first, second = ao.explain(UNLIMITED), ao.explain(UNLIMITED) if kind == "watch" else Passing()
    first.__enter__()
    _ = x.exp()
    second.__enter__()
    _ = x.exp()
    first.__exit__(None, None, None)
    assert torch._C._len_torch_dispatch_stack() == 1
    assert torch.utils._python_dispatch.is_in_torch_dispatch_mode() == (kind == "mode")
    _ = x.exp()
    second.__exit__(None, None, None)
    _ = x.exp()
    assert first.report.operations == 2
    assert kind == "mode" or second.report.operations == 2
    assert torch._C._len_torch_dispatch_stack() == 0
    assert not torch.utils._python_dispatch.is_in_torch_dispatch_mode()


@pytest.mark.parametrize("outer_off", [False, True])
def test_a_watch_that_paused_goes_on_after_the_one_around_it_was_left(outer_off: bool) -> None:
    outer, inner = ao.explain(UNLIMITED), ao.explain(UNLIMITED)
    outer.__enter__()
    if outer_off:
        outer.tired = True
        outer.take_off()
    inner.__enter__()
    inner.tired = True
    inner.take_off()
    outer.__exit__(None, None, None)
    assert torch._C._len_torch_dispatch_stack() == 0
    inner.switch()
    assert not inner.tired
    _ = x.exp()
    inner.__exit__(None, None, None)
    assert inner.operations == 1
    assert torch._C._len_torch_dispatch_stack() == 0


def test_it_is_left_in_the_thread_that_entered_it() -> None:
    said: list[str] = []

    def other() -> None:
        try:
            e.__exit__(None, None, None)
        except ao.GraphError as error:
            said.append(str(error))

    with explain(UNLIMITED) as e:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        _ = x.exp()
    assert "another thread" in said[0]
    assert e.report.operations == 1
    assert torch._C._len_torch_dispatch_stack() == 0
