"""Hazards 13 to 15, 18, 20, 26, 27, 30: what a merge must leave alone, in the graph and around it."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch

import autograd_opt as ao

Tensor = torch.Tensor
D = torch.float64


def leaf(*values: float) -> Tensor:
    return ao.tensor(list(values), dtype=D)


# ----- 13: devices and memory kinds ------------------------------------------------------
def test_devices_are_part_of_the_value() -> None:
    x = torch.ones(3)
    with ao.AutogradGraph(optimize=True):
        a, b = x.to("meta").sin(), x.sin()
        assert a.device.type == "meta"
        assert b.device.type == "cpu"
        assert torch.equal(b.detach(), torch.ones(3).sin())


def test_layouts_are_part_of_the_value() -> None:
    x = torch.eye(3)
    with ao.AutogradGraph(optimize=True):
        a, b = x.to_sparse() * 2, x * 2
        assert a.layout == torch.sparse_coo
        assert b.layout == torch.strided


def test_memory_formats_are_part_of_the_value() -> None:
    x = torch.rand(1, 2, 3, 4)
    with ao.AutogradGraph(optimize=True):
        a = x.clone(memory_format=torch.channels_last)
        b = x.clone(memory_format=torch.contiguous_format)
        c = x.contiguous(memory_format=torch.channels_last)
        assert a.is_contiguous(memory_format=torch.channels_last)
        assert b.is_contiguous()
        assert c.is_contiguous(memory_format=torch.channels_last)


# ----- 14, 18: the survivor --------------------------------------------------------------
def test_a_survivor_names_every_source_line() -> None:
    x = leaf(1.0, 2.0)
    with ao.AutogradGraph(optimize=True) as graph:
        a = x.sin()
        b = x.sin()
        loss = (a * b).sum()
        lines = {a.grad_fn.source, b.grad_fn.source}
        assert len(lines) == 2
        groups = graph.report(loss).groups
        assert any(lines <= set(group.sources) for group in groups)


def optimized(graph: Any, output: Tensor) -> Any:
    found = graph.optimized(output)
    return found[0] if isinstance(found, tuple) else found


def test_merged_twins_keep_two_operands() -> None:
    x, y = leaf(1.0), leaf(2.0)
    with ao.AutogradGraph(optimize=True) as graph:
        loss = ((x + y) * (x + y)).sum()
        dag = optimized(graph, loss)
        names = sorted(str(dag[i].op) for i in dag.node_indices())
        assert names == ["add", "leaf", "leaf", "mul", "sum"]
        (add,) = (i for i in dag.node_indices() if str(dag[i].op) == "add")
        (mul,) = (i for i in dag.node_indices() if str(dag[i].op) == "mul")
        assert sorted(p for _, _, p in dag.in_edges(add)) == [0, 1]
        assert sorted((a, p) for a, _, p in dag.in_edges(mul)) == [(add, 0), (add, 1)]


def test_as_written_one_node_per_operation() -> None:
    x = leaf(1.0)
    with ao.AutogradGraph(optimize=True) as graph:
        (x.sin() + x.sin()).sum()
        assert sorted(str(n.op) for n in graph.tape.snapshot()) == ["add", "leaf", "sin", "sin", "sum"]


# ----- 15: composite operations ---------------------------------------------------------
class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x, x * x)
        return x * x * x

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        _, square = ctx.saved_tensors
        return g * 3 * square


class OwnCube(ao.CustomFunction):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x, x * x)
        return x * x * x

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        _, square = ctx.saved_tensors
        return g * 3 * square


@pytest.mark.parametrize("function", [Cube, OwnCube])
@pytest.mark.parametrize("optimize", [False, True])
def test_saved_tensors_of_functions_are_their_own(function: Any, optimize: bool) -> None:
    x = leaf(1.0, 2.0)
    with ao.AutogradGraph(optimize=optimize):
        square = x * x  # the same value that the function saves
        a, b = function.apply(x), function.apply(x)
        with torch.no_grad():
            square.zero_()
        (a + b * 2).sum().backward()
    assert torch.equal(x.grad, torch.tensor([9.0, 36.0], dtype=D))


# ----- 20: recomputation -------------------------------------------------------------------
@pytest.mark.parametrize("optimize", [False, True])
def test_recomputed_activations_are_those_of_the_forward(optimize: bool) -> None:
    from torch.utils.checkpoint import checkpoint

    seen: list[Tensor] = []

    def block(x: Tensor) -> Tensor:
        y = torch.nn.functional.dropout(x.sin(), 0.5)
        seen.append(y.detach().clone())
        return y * x

    def step(x: Tensor) -> Tensor:
        torch.manual_seed(3)
        y = checkpoint(block, x, use_reentrant=False)
        torch.rand(5)
        y.sum().backward()
        return x.grad

    expected = step(torch.arange(1.0, 9.0, dtype=D).requires_grad_())
    seen.clear()
    with ao.AutogradGraph(optimize=optimize):
        found = step(ao.tensor(torch.arange(1.0, 9.0, dtype=D)))
    assert len(seen) == 2
    assert torch.equal(*seen)
    assert torch.equal(found, expected)


@pytest.mark.parametrize("optimize", [False, True])
def test_checkpointed_blocks_share_a_weight_under_autocast(optimize: bool) -> None:
    from torch.utils.checkpoint import checkpoint

    def step(w: Tensor) -> Tensor:
        x = torch.linspace(-1, 1, 9).reshape(3, 3)
        with torch.autocast("cpu", torch.bfloat16):
            h = checkpoint(lambda t: torch.nn.functional.linear(t, w).tanh(), x, use_reentrant=False)
            h = checkpoint(lambda t: torch.nn.functional.linear(t, w).tanh(), h, use_reentrant=False)
            loss = h.float().sum()
        loss.backward()
        return w.grad

    start = torch.linspace(-0.5, 0.5, 9).reshape(3, 3)
    expected = step(start.clone().requires_grad_())
    with ao.AutogradGraph(optimize=optimize):
        found = step(ao.tensor(start))
    torch.testing.assert_close(found.as_subclass(Tensor), expected, rtol=1e-2, atol=1e-2)


# ----- 26: names and hooks ------------------------------------------------------------------
def test_what_is_pinned_on_one_twin_is_not_on_the_other() -> None:
    x = leaf(1.0)
    with ao.AutogradGraph(optimize=True):
        a, b = x.sin(), x.sin()
        a.register_hook(lambda g: None)
        a.retain_grad()
        a.grad_fn.metadata["name"] = "first"
        assert not b.retains_grad
        assert b.grad_fn.hooks is None
        assert a.grad_fn is not b.grad_fn
        assert "name" not in b.grad_fn.metadata


# ----- 27: threads and graphs ------------------------------------------------------------
@pytest.mark.parametrize("optimize", [False, True])
def test_threads_record_apart(optimize: bool) -> None:
    threads, rounds = 4, 30
    results: list[Any] = [None] * threads
    barrier = threading.Barrier(threads)
    shared = torch.ones(3, dtype=D)

    def work(k: int) -> None:
        try:
            barrier.wait(30)
            for _ in range(rounds):
                x = leaf(1.0 + k, 2.0, 3.0)
                with ao.AutogradGraph(optimize=optimize) as graph:
                    y = (x + shared).sin() * (x + shared).sin()
                    y.sum().backward()
                    assert len(graph) > 0
                results[k] = x.grad.clone()
        except BaseException as error:
            results[k] = error

    running = [threading.Thread(target=work, args=(k,)) for k in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    for k, found in enumerate(results):
        assert isinstance(found, Tensor), found
        x = torch.tensor([1.0 + k, 2.0, 3.0], dtype=D, requires_grad=True)
        ((x + 1).sin() * (x + 1).sin()).sum().backward()
        torch.testing.assert_close(found, x.grad)


def test_graphs_have_nothing_in_common() -> None:
    x = leaf(1.0, 2.0)
    with ao.AutogradGraph(optimize=True) as outer:
        a = x.sin()
        with ao.AutogradGraph(optimize=True) as inner:
            b = x.sin()
            assert inner.tape.hits == 0
            b.sum().backward()
        c = x.sin()
        assert outer.tape.hits == 1
        (a + c).sum().backward()
    torch.testing.assert_close(x.grad, 3 * x.detach().cos())


def test_a_new_graph_starts_empty() -> None:
    x = leaf(1.0, 2.0)
    for _ in range(3):
        with ao.AutogradGraph(optimize=True) as graph:
            x.sin()
            assert graph.tape.hits == 0


# ----- 30: no recursion ---------------------------------------------------------------------
@pytest.mark.slow
@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("create_graph", [False, True])
def test_a_long_chain(optimize: bool, create_graph: bool) -> None:
    n = 100_000
    x = leaf(0.5)
    with ao.AutogradGraph(optimize=optimize) as graph:
        y = x
        for _ in range(n // 2):
            y = y * 1.00001
        for _ in range(n // 2):
            y = y + 1e-9
        (g,) = torch.autograd.grad(y.sum(), x, create_graph=create_graph, retain_graph=True)
        assert len(graph) > n
        assert float(g) == pytest.approx(1.00001 ** (n // 2))
        if optimize:
            graph.optimized(y)
        y.sum().backward()
        del y, g
        graph.clear()
        assert len(graph) == 0


@pytest.mark.slow
def test_a_long_chain_is_dropped_at_once() -> None:
    x = leaf(0.5)
    with ao.AutogradGraph(optimize=True) as graph:
        y = x
        for _ in range(100_000):
            y = y.sin()
        del y
        assert graph.references.saved_bytes() <= 8


# ----- 19: recomputation stays recomputation ---------------------------------------------
def test_checkpoints_are_not_undone() -> None:
    from torch.utils.checkpoint import checkpoint

    def block(t: Tensor) -> Tensor:
        return ((t * 1.5).sin() * (t * 2.5).cos()).tanh().sin()

    def saved(optimize: bool, checkpointed: bool) -> int:
        x = ao.tensor(torch.rand(1000, dtype=D))
        with ao.AutogradGraph(optimize=optimize, allowance=0) as graph:
            y: Tensor = x
            for _ in range(4):
                y = checkpoint(block, y, use_reentrant=False) if checkpointed else block(y)
            total = graph.references.saved_bytes()
            y.sum().backward()
        return total

    assert saved(False, True) < saved(False, False) / 2
    assert saved(True, True) <= saved(False, True)
