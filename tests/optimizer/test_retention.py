"""What is kept alive for reuse stays within what reuse has saved and the allowance."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import autograd_opt as ao
from autograd_opt.record import context
from tests.optimizer.counting import Memory

Tensor = torch.Tensor
N = 1000
BYTES = 8 * N


def leaf(seed: int, size: int = N) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return ao.tensor(torch.rand(size, generator=generator, dtype=torch.float64) + 0.5)


def test_a_program_without_repeats_keeps_nothing() -> None:
    x = leaf(0)
    with ao.AutogradGraph(optimize=True) as graph:
        for k in range(20):
            ((x * (k + 1.5)).sin() + k).exp()
        assert graph.references.kept_bytes == 0


def test_nothing_is_kept_without_allowance_and_savings() -> None:
    x, y = leaf(0), leaf(1)
    with ao.AutogradGraph(optimize=True, allowance=0) as graph:
        for k in range(20):
            (x * (k + 1.5)).sin()
        assert graph.references.kept_bytes == 0
        a, b = x * y, x * y
        (x + y)
        assert graph.references.kept_bytes == BYTES  # one living clone's bytes are saved
        (x - y)
        assert graph.references.kept_bytes == BYTES
        del b
        (x - y).sin()
        assert graph.references.kept_bytes == 0
        assert a is not None


@pytest.mark.parametrize("allowance", [0, BYTES, 3 * BYTES, 10 * BYTES + 1])
def test_the_allowance_is_a_limit_at_every_moment(allowance: int) -> None:
    x = leaf(0)
    with ao.AutogradGraph(optimize=True, allowance=allowance) as graph:
        for k in range(50):
            ((x + k * 0.5) * 2.5).exp()
            assert graph.references.kept_bytes <= allowance
        assert graph.references.kept_bytes == allowance // BYTES * BYTES


def test_the_oldest_value_goes_first() -> None:
    x = leaf(0)
    with ao.AutogradGraph(optimize=True, allowance=2 * BYTES) as graph:
        for k in (1.5, 2.5, 3.5):
            (x * k)
        hits = graph.tape.hits
        (x * 1.5)
        assert graph.tape.hits == hits
        (x * 3.5)
        assert graph.tape.hits == hits + 1


def test_a_large_value_is_never_kept() -> None:
    x = leaf(0)
    with ao.AutogradGraph(optimize=True, allowance=BYTES - 1) as graph:
        (x * 2.5)
        assert graph.references.kept_bytes == 0


def test_release_forgets_the_values_and_not_their_numbers() -> None:
    x, y = leaf(0), leaf(1)
    with ao.AutogradGraph(optimize=True, allowance=10 * BYTES) as graph:
        (x + y).exp()
        assert graph.references.kept_bytes > 0
        graph.references.release()
        assert graph.references.kept_bytes == 0
        a = (x + y).exp()
        b = (x + y).exp()
        assert a.grad_fn.value_number == b.grad_fn.value_number


def test_lowering_the_allowance_takes_effect() -> None:
    x = leaf(0)
    with ao.AutogradGraph(optimize=True, allowance=10 * BYTES) as graph:
        for k in range(5):
            (x * (k + 1.5))
        assert graph.references.kept_bytes >= 5 * BYTES
        graph.references.allowance = 0
        (x + 1.5)
        assert graph.references.kept_bytes == 0


def test_leaving_the_graph_leaves_nothing() -> None:
    x = leaf(0)
    graph = ao.AutogradGraph(optimize=True)
    with graph:
        (x * 2.5).exp()
    assert graph.references.kept_bytes == 0


# ----- the peak -------------------------------------------------------------------------
def chain(x: Tensor, y: Tensor) -> Tensor:
    for k in range(10):
        x = (x * y + 0.5 * k).sin()
    return x


def twins(x: Tensor, y: Tensor) -> Tensor:
    return sum((((x + y) * k).exp() + ((x + y) * k).exp() for k in range(1, 6)), x)


def temporaries(x: Tensor, y: Tensor) -> Tensor:
    out = x
    for k in range(1, 8):
        out = out + ((x * y).sin() * k).tanh() * ((x * y).sin() * k).tanh()
    return out


def forward_only(x: Tensor, y: Tensor) -> Tensor:
    total = 0.0
    with torch.no_grad():
        for k in range(1, 12):
            total += float(((x + y) * k).exp().sum()) + float(((x + y) * (k % 3)).exp().sum())
    return x * y


def late_twin(x: Tensor, y: Tensor) -> Tensor:
    """The value that a late line repeats must not be kept from the early one at the expense of the peak."""
    s = (x * y).exp().sum()
    out = x
    for k in range(10):
        out = (out * y + k).cos()
    return out + s + (x * y).exp().sum()


def second_order(x: Tensor, y: Tensor) -> Tensor:
    (g,) = torch.autograd.grad(((x * y).sin() * (x * y).sin()).sum(), x, create_graph=True)
    return g * g


def peak(program: Callable[[Tensor, Tensor], Tensor], **options: object) -> int:
    x, y = leaf(0), leaf(1)
    with Memory() as memory, ao.AutogradGraph(**options):  # type: ignore[arg-type]
        program(x, y).sum().backward()
    return memory.peak


@pytest.mark.parametrize("program", [chain, twins, temporaries, forward_only, late_twin, second_order])
def test_the_peak_does_not_rise(program: Callable[[Tensor, Tensor], Tensor]) -> None:
    without = peak(program, optimize=False)
    assert peak(program, optimize=True, allowance=0) <= without
    assert peak(program, optimize=True, allowance=3 * BYTES) <= without + 3 * BYTES


def test_the_default_keeps_nothing_where_nothing_repeats() -> None:
    """The advance is remembered by the place where a graph is opened, so this one has a place of its own."""
    peaks = []
    for optimize in (False, True):
        x, y = leaf(0), leaf(1)
        with Memory() as memory, ao.AutogradGraph(optimize=optimize):
            chain(x, y).sum().backward()
        peaks.append(memory.peak)
    assert peaks[1] <= peaks[0]


# ----- the default: an advance that ends where the peak would rise --------------------------
LARGE = 1 << 15
"""Elements: programs that never have a mebibyte alive may keep one whatever their peak."""


def blocks(x: Tensor, y: Tensor, distinct: int, count: int = 12) -> Tensor:
    """`count` blocks of temporaries, of which `distinct` are different: the first repeats come late."""
    total = x
    for i in range(count):
        h = (x + y) * (1.0 + i % distinct)
        for _ in range(4):
            h = torch.tanh(h * x + y)
        total = total + h
    return total


def steps(program: Callable[[Tensor, Tensor], Tensor], count: int, **options: object) -> list[tuple[int, int, int]]:
    """Peak, hits and values computed again, of `count` steps whose graphs are opened at one place."""
    out = []
    x, y = leaf(0, LARGE), leaf(1, LARGE)
    context.forget_places()
    for _ in range(count):
        x.grad = y.grad = None
        with Memory() as memory, ao.AutogradGraph(**options) as graph:  # type: ignore[arg-type]
            program(x, y).sum().backward()
            out.append((memory.peak, graph.tape.hits, graph.tape.recomputed))
    return out


@pytest.mark.parametrize("distinct", [1, 2, 3, 6, 9, 12])
def test_the_learned_advance_does_not_raise_the_peak(distinct: int) -> None:
    def program(x: Tensor, y: Tensor) -> Tensor:
        return blocks(x, y, distinct)

    (without, _, _), = steps(program, 1, optimize=False)
    assert max(p for p, _, _ in steps(program, 4, optimize=True)) <= without


def test_the_second_step_keeps_what_the_first_missed() -> None:
    """Where eager's peak is far away there is room, and everything that repeats is found."""
    (_, hits, missed), (_, later, none) = steps(lambda x, y: blocks(x, y, 2), 2, optimize=True)
    assert missed > 0
    assert later > hits
    assert none == 0


def test_what_is_asked_for_in_turn_keeps_what_came_first() -> None:
    """The oldest value is the next one asked for: letting it go for the newest would find nothing again."""
    (_, hits, missed), *others = steps(lambda x, y: blocks(x, y, 8), 4, optimize=True)
    assert 2 * missed > hits
    for _, later, again in others:
        assert 3 * again <= 2 * missed
        assert later > hits


def test_a_shared_value_outlives_its_first_tensor() -> None:
    """Once the original is gone its clone holds the memory alone, and saves nothing that could be spent."""
    x, y = leaf(0), leaf(1)
    with ao.AutogradGraph(optimize=True, allowance=0) as graph:
        a = x * y
        b = x * y
        assert graph.tape.retention.saved_bytes == BYTES
        del a                                    # kept, paid by `b`
        assert graph.references.kept_bytes == BYTES
        graph.references.release()
        assert graph.tape.retention.saved_bytes == 0
        (x + y)
        assert graph.references.kept_bytes == 0
        assert b is not None


def test_a_written_clone_saves_nothing() -> None:
    x, y = leaf(0), leaf(1)
    with ao.AutogradGraph(optimize=True, allowance=0) as graph:
        a = x * y
        b = x * y
        assert graph.tape.retention.saved_bytes == BYTES
        b.add_(1.0)
        assert graph.tape.retention.saved_bytes == 0
        (x + y)
        assert graph.references.kept_bytes == 0
        assert torch.equal(a.detach() + 1.0, b.detach())
