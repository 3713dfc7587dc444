"""KeyboardInterrupt at every place where user code or the library's own Python code runs."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from types import FrameType
from typing import Any

import pytest
import torch

import autograd_opt as ao
from autograd_opt.graph import runs, thread_state
from tests.engine.functions import Square

HOME = os.path.dirname(ao.__file__) + os.sep
MODES = [pytest.param(o, c, id=f"{'optimized' if o else 'written'}-{'recorded' if c else 'numeric'}")
         for o in (False, True) for c in (False, True)]
Tensor = torch.Tensor


def forward(x: Tensor, w: Tensor) -> Tensor:
    """Twins, a Function, writes through views, several outputs, an opaque call, a hook."""
    h = torch.tanh(x @ w)
    h = Square.apply(h) + torch.tanh(x @ w)
    h.register_hook(lambda g: g * 1)
    h.mul_(2)
    h[0] = h[1]
    top, _ = h.max(0)
    return torch.special.i1(h).sum() + (top.exp() * top.exp()).sum() + h.unbind(1)[2].sum()


def leaves() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x, w = (torch.randn(*s, generator=generator, dtype=torch.float64) for s in ((3, 4), (4, 3)))
    return x.requires_grad_(), w.requires_grad_()


def loss_of(x: Tensor, w: Tensor, recorded: bool) -> Tensor:
    out = forward(x, w)
    if not recorded:
        return out
    g, = torch.autograd.grad(out, x, create_graph=True)
    return out + (g * g).sum()


def gradients(recorded: bool) -> tuple[Tensor, ...]:
    x, w = leaves()
    loss_of(x, w, recorded).backward()
    return x.grad, w.grad  # type: ignore[return-value]


def interrupt(*_: Any) -> None:
    raise KeyboardInterrupt("here")


def check_state(graph: Any, recorded: bool, where: str) -> None:
    """No mode, run or cotangent is left over, and the next step is right."""
    assert torch.is_grad_enabled(), where
    assert thread_state.get_recording() is graph.tape, where
    assert graph.tape.running == 0, where
    assert runs.stack() == [], where
    x, w = leaves()
    loss_of(x, w, recorded).backward()
    for mine, expected in zip((x.grad, w.grad), gradients_of[recorded], strict=True):
        assert torch.allclose(mine, expected), where  # type: ignore[arg-type]


gradients_of = {recorded: gradients(recorded) for recorded in (False, True)}


@pytest.mark.parametrize("kind", ["register_prehook", "register_hook"])
@pytest.mark.parametrize(("optimize", "recorded"), MODES)
def test_interrupted_at_every_node(optimize: bool, recorded: bool, kind: str) -> None:
    """A node's hook raises; the same graph, retained, then gives the right gradients."""
    reached = 0
    x, w = leaves()
    with ao.AutogradGraph(optimize=optimize) as graph:
        out = loss_of(x, w, recorded)
        for node in graph.tape.snapshot():
            if not node.requires_grad:
                continue
            handle = getattr(node, kind)(interrupt)
            x.grad = w.grad = None
            try:
                out.backward(retain_graph=True)
            except KeyboardInterrupt:
                reached += 1
            handle.remove()
            assert graph.tape.running == 0
            x.grad = w.grad = None
            out.backward(retain_graph=True)
            for mine, expected in zip((x.grad, w.grad), gradients_of[recorded], strict=True):
                assert torch.allclose(mine, expected), f"after an interrupt at {node}"
        check_state(graph, recorded, "in the end")
    assert reached > 15


class Interrupt:
    """A trace function that raises at the `at`-th call of a function of this library."""

    def __init__(self, at: int) -> None:
        self.at, self.count, self.where = at, 0, ""

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        name = frame.f_code.co_name
        if event == "call" and frame.f_code.co_filename.startswith(HOME) and name != "<genexpr>":
            self.count += 1
            if self.count == self.at:
                self.where = f"{os.path.basename(frame.f_code.co_filename)}: {name}"
                raise KeyboardInterrupt(self.where)


@pytest.mark.parametrize(("optimize", "recorded"), MODES)
def test_interrupted_in_every_function_of_the_library(optimize: bool, recorded: bool) -> None:
    """An interrupt is delivered where a Python function begins: none may leave anything half done."""
    before, at = sys.gettrace(), 0
    with ao.AutogradGraph(optimize=optimize):           # what is filled once is filled
        loss_of(*leaves(), recorded).backward()
    while True:
        at += 1
        tracer, finished = Interrupt(at), False
        with ao.AutogradGraph(optimize=optimize) as graph:
            x, w = leaves()
            sys.settrace(tracer)
            try:
                loss_of(x, w, recorded).backward()
                finished = True
            except KeyboardInterrupt:
                pass
            finally:
                sys.settrace(before)
            if not tracer.where:
                break
            assert not finished, f"lost in {tracer.where}"
            check_state(graph, recorded, tracer.where)
    assert at > 40


@pytest.mark.parametrize("kind", ["forward", "backward", "pack", "unpack", "leaf", "post", "callback"])
@pytest.mark.parametrize(("optimize", "recorded"), MODES)
def test_interrupted_in_user_code(optimize: bool, recorded: bool, kind: str) -> None:
    """Functions, saved-tensor hooks, hooks of leaves, callbacks."""
    class Fails(Square):
        @staticmethod
        def forward(ctx: Any, a: Tensor) -> Tensor:
            if kind == "forward":
                interrupt()
            return Square.forward(ctx, a)

        @staticmethod
        def backward(ctx: Any, *gs: Tensor) -> Tensor:
            if kind == "backward":
                interrupt()
            return Square.backward(ctx, *gs)

    def program(x: Tensor) -> None:
        if kind == "leaf":
            x.register_hook(interrupt)
        if kind == "post":
            x.register_post_accumulate_grad_hook(interrupt)
        with torch.autograd.graph.saved_tensors_hooks(interrupt if kind == "pack" else lambda t: t,
                                                      interrupt if kind == "unpack" else lambda t: t):
            y = Fails.apply(x * 2).exp()
        if kind == "callback":
            y.register_hook(lambda g: torch.autograd.Variable._execution_engine.queue_callback(interrupt))
        if recorded:
            torch.autograd.grad(y.sum(), x, create_graph=True)
        y.sum().backward()

    with ao.AutogradGraph(optimize=optimize) as graph:
        x, _ = leaves()
        with pytest.raises(KeyboardInterrupt):
            program(x)
        check_state(graph, recorded, kind)


def test_interrupted_far_down() -> None:
    """Runs nested so deep that they go on in other threads end when the main thread is interrupted."""
    depth = 0
    before = signal.signal(signal.SIGINT, signal.default_int_handler)     # a shell's background jobs ignore it
    x, _ = leaves()

    def run() -> None:
        with torch.enable_grad():
            y = x.sum()
            y.register_hook(again)
            y.backward()

    def again(g: Tensor) -> None:
        nonlocal depth
        depth += 1
        if depth < 100:
            run()
            return
        assert threading.current_thread() is not threading.main_thread()
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        while True:
            time.sleep(0.01)

    try:
        with ao.AutogradGraph() as graph:
            with pytest.raises(KeyboardInterrupt):
                run()
            assert depth == 100
            assert graph.thread == threading.get_ident()
            check_state(graph, False, "far down")
    finally:
        signal.signal(signal.SIGINT, before)
