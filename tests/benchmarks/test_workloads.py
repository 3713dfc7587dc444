"""Every workload gives torch eager's gradients, and the figures that need no clock are right."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

import autograd_opt as ao
from autograd_opt.benchmarks import counting, measure
from autograd_opt.benchmarks.elementwise import chain, sharing
from autograd_opt.benchmarks.networks import mlp, mlp_by_hand
from autograd_opt.benchmarks.population import Tree, population, replaced, unique_share
from autograd_opt.benchmarks.workload import Workload
from autograd_opt.benchmarks.workloads import MAKES, Make


@pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)
def test_gradients_are_those_of_torch(make: Make) -> None:
    variants = measure.own_variants(make)
    assert set(measure.differences(variants)) == {"torch eager", "optimize=False", "optimize=True"}


def test_a_wrong_gradient_is_not_timed() -> None:
    variants = measure.own_variants(lambda leaf: chain(leaf, length=3))
    wrong = variants[2].workload
    wrong.forward = lambda x, a, b: (x * a * 1.01).sum()
    with pytest.raises(ValueError, match="gradients of optimize=True differ"):
        measure.measure(variants, repeats=1)


def test_the_backward_by_hand_is_right() -> None:
    eager, hand = mlp(), mlp_by_hand()
    eager.step()
    hand.step()
    for a, b in zip(eager.leaves, hand.leaves, strict=True):
        torch.testing.assert_close(a.grad, b.grad)


def test_kernels_are_counted_without_views_and_clones() -> None:
    x = torch.randn(3, 4)
    assert counting.kernels(lambda: (x.t().reshape(-1)[2:] + 1).exp()) == {"clone": 1, "add": 1, "exp": 1}
    assert counting.kernels(lambda: x._lazy_clone().view(12).detach()) == {}


def test_kernels_inside_composite_operators_are_counted_with_and_without_autograd() -> None:
    x, w, b = torch.randn(2, 3), torch.randn(4, 3), torch.randn(4)

    def layer() -> None:
        torch.flatten(torch.nn.functional.linear(x, w, b))

    with ao.AutogradGraph():
        inside = counting.kernels(layer)
    assert inside == counting.kernels(layer) == {"addmm": 1}


def test_kernels_of_a_trace() -> None:
    workload = Workload("twice", [torch.ones(3)], lambda x: (torch.sin(x) * torch.sin(x)).sum())
    before, after = counting.traced_names(workload) or (Counter(), Counter())
    assert 0 < after.total() < before.total()


def test_the_peak_is_what_was_alive_at_once() -> None:
    def two_at_once() -> None:
        a = torch.empty(1 << 20, dtype=torch.uint8)
        del a
        b, c = torch.empty(1 << 20, dtype=torch.uint8), torch.empty(1 << 20, dtype=torch.uint8)
        del b, c

    assert counting.peak_bytes(two_at_once) == 2 << 20


def test_repeats_of_sharing_are_found() -> None:
    def kernels_of(share: float, optimize: bool) -> int:
        workload = sharing(ao.tensor, share=share)
        return counting.kernels(measure.recorded(workload, optimize=optimize)).total()

    assert kernels_of(0.9, True) < 0.4 * kernels_of(0.9, False)
    assert kernels_of(0.0, True) <= kernels_of(0.0, False)


def test_a_population_breeds_other_formulas() -> None:
    workload = population()
    first = workload.step().item()
    assert workload.advance is not None
    workload.advance()
    assert workload.step().item() != first
    assert 0.2 < workload.facts["u"] < 0.6


def test_unique_share() -> None:
    a = Tree("add", (Tree("x"), Tree("c0")))
    assert unique_share([Tree("sin", (a,)), Tree("cos", (a,))]) == (3 + 3 * 2 + 2) / (4 + 4 * 2)
    assert replaced(Tree("mul", (a, Tree("x"))), 3, Tree("c1")).operands[0] == Tree("add", (Tree("x"), Tree("c1")))


def test_labels_are_the_names_of_the_workloads() -> None:
    assert {name: make().name for name, make in MAKES.items()} == {name: name for name in MAKES}


def test_every_variant_opens_its_graphs_at_a_place_of_its_own() -> None:
    workload = chain(length=3)
    codes = {measure.recorded(workload, optimize=True).__code__.co_filename for _ in range(2)}
    assert len(codes) == 2


def test_gradients_of_the_step_before_do_not_count() -> None:
    x = torch.ones(1 << 20, requires_grad=True)

    def step() -> None:
        x.grad = None
        (x * 2).sum().backward()

    fresh = counting.peak_bytes(step, [x])
    assert fresh == counting.peak_bytes(step, [x]) >= x.nbytes
