"""Other libraries: what they can take, that they are compared before they are timed, what changing structures cost."""

from __future__ import annotations

import importlib.util
import math

import pytest
import torch

from autograd_opt.benchmarks.jobs import Settings
from autograd_opt.benchmarks.peers import table
from autograd_opt.benchmarks.peers.peer import Peer
from autograd_opt.benchmarks.peers.programs import PROGRAMS, program_of
from autograd_opt.benchmarks.workloads import MAKES

ONCE = Settings(repeats=1)


def test_every_workload_without_random_numbers_has_a_program() -> None:
    assert [name for name in MAKES if program_of(name) is None] == ["transformer"]
    assert {word for peer in table.PEERS.values() for word in peer.works} <= {name.split()[0] for name in MAKES}
    assert set(PROGRAMS) <= {name.split()[0] for name in MAKES}


def test_labels_name_what_can_be_said() -> None:
    labels = table.labels(["transformer", "mlp"])
    assert "transformer: torch.compile, inductor" in labels
    assert "transformer: jax.jit" not in labels
    assert "mlp: jax.jit" in labels
    assert "mlp: CasADi" not in labels


def test_a_row_has_the_first_call_and_the_later_ones_apart() -> None:
    row = table.measure_peer("hessian_rosenbrock: autograd_opt", ONCE)
    assert row["first"] > 0
    assert row["again"] > 0
    assert row["new"] is None
    assert table.cost(row, 11) == pytest.approx(row["first"] + 10 * row["again"])
    assert [len(grid.lines) for grid in table.grids([row])] == [1, 1]


def test_new_structures_are_paid_at_every_step() -> None:
    row = table.measure_peer("population 1,000: autograd_opt", ONCE)
    assert table.cost(row, 11) == pytest.approx(row["first"] + 10 * row["new"])


def test_wrong_gradients_are_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(label: str, workload: object) -> object:
        return lambda: [torch.ones(20, 20)]

    monkeypatch.setitem(table.PEERS, "wrong", Peer("wrong", "torch", build))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not timed"):
        table.measure_peer("hessian_rosenbrock: wrong", ONCE)


def test_a_library_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    row = table.measure_peer("mlp: jax.jit", ONCE)
    assert row["notes"] == ["jax is not installed and left out: pip install 'autograd_opt[bench]'"]
    assert table.timed([row]) == []


@pytest.mark.skipif(importlib.util.find_spec("autograd") is None, reason="HIPS autograd is an optional extra")
@pytest.mark.parametrize("name", ["sharing 0.9", "mlp", "lstm", "gp", "hessian_network", "pinn_burgers", "mechanics"])
def test_programs_compute_what_the_workloads_do(name: str) -> None:
    workload = MAKES[name]()
    step = table.PEERS["HIPS autograd"].build(name, workload)
    assert table.compared(MAKES[name](), workload, step) < 2e-4


def test_seconds_have_units() -> None:
    assert [table.seconds(s) for s in (3e-6, 0.5, 90.0)] == ["3.0 µs", "500.0 ms", "90.0 s"]
    assert math.isfinite(table.NEW_STRUCTURES)
