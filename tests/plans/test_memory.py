"""Memory that a plan keeps: never two values at once in one place, little more than is in use at once."""

from __future__ import annotations

import gc
import random
import statistics

import pytest
import torch

import autograd_opt as ao
from autograd_opt.plans import memory
from autograd_opt.plans.memory import Buffers

Tensor = torch.Tensor


def overlap(a: Tensor, b: Tensor) -> bool:
    return a.data_ptr() < b.data_ptr() + b.nbytes and b.data_ptr() < a.data_ptr() + a.nbytes


@pytest.mark.parametrize("expected", [False, True])
def test_values_that_live_at_once_do_not_overlap(expected: bool) -> None:
    """Random lives, some of which a later use prolongs; with and without a first guess of what they need."""
    for seed in range(60):
        draw = random.Random(seed)
        buffers = Buffers()
        lives = [(torch.empty(draw.randint(1, 300), dtype=draw.choice((torch.float32, torch.float64, torch.bool))),
                  step, step + draw.randint(0, 6)) for step in range(40)]
        if expected:
            buffers.expect(lives)
        kept: list[tuple[Tensor, int]] = []
        for sample, step, last in lives:
            assert buffers.room(sample, step)
            memory = buffers.take(tuple(sample.shape), sample, step, last)
            assert memory.dtype == sample.dtype
            assert memory.shape == sample.shape
            assert memory.data_ptr() % 64 == 0
            assert memory.storage_offset() == 0
            assert memory.untyped_storage().nbytes() == memory.nbytes
            assert not any(overlap(memory, other) for other, until in kept if until >= step)
            if draw.random() < 0.3:
                last += 3
                buffers.use(memory[-1:], last)
            kept.append((memory, last))


def test_kept_memory_is_little_more_than_is_in_use_at_once() -> None:
    shares = []
    for seed in range(40):
        draw = random.Random(seed)
        lives = [(torch.empty(draw.choice((100, 1000, 4000))), k, k + draw.randint(1, 12)) for k in range(60)]
        most = max(sum(t.nbytes for t, first, last in lives if first <= k <= last) for k in range(60))
        buffers = Buffers()
        buffers.expect(lives)
        for sample, step, last in lives:
            buffers.take(tuple(sample.shape), sample, step, last)
        shares.append(buffers.bytes / most)
    assert statistics.median(shares) < 1.25
    assert max(shares) < 1.6


def test_strided_views_of_kept_memory_begin_where_the_value_begins() -> None:
    """`as_strided` counts from the beginning of the storage, so that each value has a storage of its own."""

    def f(x: Tensor) -> Tensor:
        a, b = x @ x, x @ (x + 1)
        return a.as_strided((2, 2), (1, 3), 1).exp() + b.as_strided((2, 2), (1, 3), 1)

    repeated = ao.compile(f)
    for k in range(4):
        x = torch.arange(9.0).reshape(3, 3) / 10 + k
        torch.testing.assert_close(repeated(x), f(x))
    assert not repeated.report().kinds[0].reason


def test_all_plans_together_keep_a_bounded_amount(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond it plans are made and right, with new memory for each call; a plan that is gone gives its own back."""
    gc.collect()
    monkeypatch.setattr(memory, "ALL", sum(memory.KEPT.values()) + 4096)
    x = torch.randn(16, 16)
    plans = [ao.compile(lambda x, k=k: (x @ x).exp().sum(0) * k) for k in range(12)]
    for k, plan in enumerate(plans):
        for _ in range(3):
            torch.testing.assert_close(plan(x), (x @ x).exp().sum(0) * k)
        assert not plan.report().kinds[0].reason
        assert sum(memory.KEPT.values()) <= memory.ALL
    before = sum(memory.KEPT.values())
    del plans, plan
    gc.collect()
    assert sum(memory.KEPT.values()) < before
