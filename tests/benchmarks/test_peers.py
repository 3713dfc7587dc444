"""Other libraries: what they can take, that they are compared before they are timed, what changing structures cost."""

from __future__ import annotations

import importlib.util
import math

import pytest
import torch

from autograd_opt.benchmarks.jobs import Settings
from autograd_opt.benchmarks.peers import table, torch_compiled
from autograd_opt.benchmarks.peers.peer import Peer
from autograd_opt.benchmarks.peers.programs import PROGRAMS
from autograd_opt.benchmarks.workload import Workload
from autograd_opt.benchmarks.workloads import MAKES

ONCE = Settings(repeats=1)


def test_every_workload_has_a_program() -> None:
    assert set(PROGRAMS) == {name.split()[0] for name in MAKES}
    assert {word for peer in table.PEERS.values() for word in peer.cannot} <= set(PROGRAMS)


def test_labels_name_what_can_be_said() -> None:
    labels = table.labels(["transformer", "mlp"])
    assert "transformer: torch.compile, inductor" in labels
    assert "transformer: CasADi" not in labels
    assert "mlp: CasADi" in labels


def test_what_cannot_be_said_is_a_line_with_the_reason() -> None:
    rows = [{"name": "cnn: torch eager", "workload": "cnn", "who": "torch eager", "first": 1.0, "again": 1.0,
             "ratio": 1.0, "difference": 0.0},
            {"name": "cnn: PyTensor", "workload": "cnn", "who": "PyTensor", "unfinished": 60.0},
            {"name": "cnn: jax", "workload": "cnn", "who": "jax", "error": "ValueError: it burns"}]
    times, until = table.grids(rows)
    lines = {line[1]: line[2:4] for line in times.lines}
    assert lines == {"torch eager": ["1.0 s", "1.0 s"], "PyTensor": ["> 60 s", ""], "jax": ["ValueError", ""],
                     "CasADi": ["cannot: matrices only, no array of three dimensions", ""]}
    assert [line[1] for line in until.lines] == ["torch eager"]


def test_a_row_has_the_first_call_and_the_later_ones_apart() -> None:
    row = table.measure_peer("hessian_rosenbrock: autograd_opt", ONCE)
    assert row["first"] > 0
    assert row["again"] > 0
    assert "new" not in row
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
@pytest.mark.parametrize("name", ["sharing 0.9", "mlp", "cnn", "lstm", "transformer", "gp", "hessian_network",
                                  "pinn_burgers", "mechanics"])
def test_programs_compute_what_the_workloads_do(name: str) -> None:
    base, workload = MAKES[name](), MAKES[name]()
    table.without_dropout(base, workload)
    step = table.PEERS["HIPS autograd"].build(name, workload)
    assert table.compared(base, workload, step) < 2e-4


def test_seconds_have_units() -> None:
    assert [table.seconds(s) for s in (3e-6, 0.5, 90.0)] == ["3.0 µs", "500.0 ms", "90.0 s"]
    assert math.isfinite(table.NEW_STRUCTURES)


def test_a_leaf_that_is_differentiated_away_has_a_gradient_of_zero() -> None:
    """The last bias of a network whose derivatives alone are in the loss."""
    used, unused = torch.ones(3, requires_grad=True), torch.ones(2, requires_grad=True)
    workload = Workload("w", [used, unused], lambda a, b: (a * a).sum())
    found = torch_compiled.whole_step(workload, "eager")()
    assert [g.tolist() for g in found] == [[2.0] * 3, [0.0] * 2]
