"""optimize="exact": values are reused, and every gradient has the bits of the graph as written."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import autograd_opt as ao
from autograd_opt.errors import ArgumentError
from tests.fuzz.oracle import bits, eager, execute, make_inputs
from tests.optimizer.counting import kernels_of
from tests.programs import from_seed

CHUNK = 40


def outcome_of(program: Any, optimize: Any) -> Any:
    inputs = make_inputs("custom")
    with ao.AutogradGraph(optimize=optimize):
        return execute(program, inputs)


def sums(outcome: Any) -> dict[str, bytes]:
    """Every gradient, and all that hooks saw, as bytes."""
    found = {n: bits(s.grad) for n, s in outcome.sights.items() if s.grad is not None}
    found |= {f"hook {k}, {i}": bits(g) for k, seen in outcome.seen.items() for i, g in enumerate(seen)}
    return found | {f"value {n}": bits(s.value) for n, s in outcome.sights.items()}


@pytest.mark.parametrize("chunk", range(6))
def test_random_programs_keep_every_bit(chunk: int) -> None:
    """Of the graph as written; where that has torch eager's bits, of torch eager."""
    eagers = compared = 0
    for seed in range(CHUNK * chunk, CHUNK * (chunk + 1)):
        program = from_seed(seed)
        reference, plain, exact = eager(program), outcome_of(program, False), outcome_of(program, "exact")
        if plain.error is not None or any(".data" in s or ".numpy()" in s for s in program.statements):
            continue
        assert sums(exact) == sums(plain), str(program)
        compared += 1
        eagers += sums(exact) == sums(reference)
    assert compared > CHUNK // 2
    assert eagers > compared // 2, "bits of torch eager"


def mixed(x: Any) -> Any:
    """Three twins of one sum, each under another factor: merged, their cotangents meet in another order."""
    parts = [((x * 0.1 + 0.3) * f).sin() for f in (1e8, 3.7, 1e-7, 123.4)]
    return (parts[0] + parts[1] + parts[2] + parts[3] + (x * 0.1 + 0.3).exp()).sum()


def test_the_test_would_notice() -> None:
    torch.manual_seed(0)
    value = torch.randn(100)
    grads = {}
    for mode in (False, True, "exact"):
        x = ao.tensor(value)
        with ao.AutogradGraph(optimize=mode):
            mixed(x).backward()
        grads[mode] = x.grad
    eager_x = value.clone().requires_grad_()
    mixed(eager_x).backward()
    assert not torch.equal(grads[True], grads[False]), "merging adds in another order, or this program is too tame"
    assert torch.equal(grads["exact"], grads[False])
    assert torch.equal(grads["exact"], eager_x.grad)


def test_values_are_reused_all_the_same() -> None:
    x = ao.tensor(torch.randn(5))

    def run() -> None:
        with ao.AutogradGraph(optimize="exact") as graph:
            (x.exp() + x.exp() * x.view(5).exp()).sum().backward()
            assert graph.tape.hits == 2

    assert kernels_of(run)["exp"] == 1


def test_a_pass_that_merges_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"optimize='exact'.*'cse'"):
        ao.AutogradGraph(optimize="exact", passes=["cse", "prune"])
    with ao.AutogradGraph(optimize="exact", passes=["prune"]):
        x = ao.tensor([2.0])
        (x * x + x * x).sum().backward()
        assert x.grad.item() == 8
