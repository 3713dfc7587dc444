"""Steps of public packages: equal before timed, and honest about what is not installed."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
import torch

from autograd_opt.benchmarks import measure, packages, regions
from autograd_opt.benchmarks.jobs import Settings
from autograd_opt.benchmarks.measure import OFF, ON
from autograd_opt.benchmarks.world import WORLD, Entry, outcome, training, updated

ONCE = Settings(repeats=1)


def put(monkeypatch: pytest.MonkeyPatch, make: object, package: str = "torch") -> str:
    label = f"{package}: step"
    monkeypatch.setitem(WORLD, label, Entry(package, make))         # type: ignore[arg-type]
    return label


def test_every_package_is_pinned_and_none_else() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    pins = [pin.split("==") for pin in project["project"]["optional-dependencies"]["world"]]
    assert sorted(name.partition("[")[0] for name, _ in pins) == sorted({entry.package for entry in WORLD.values()})
    assert len(pins) >= 40


def test_a_package_that_is_not_installed_has_no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    row = packages.measure_step(put(monkeypatch, None, "no-such-package"), ONCE)
    assert "times" not in row
    assert row["notes"] == ['no-such-package is not installed: pip install -c constraints.txt ".[world]"']
    summary, every = packages.grids([row])
    assert summary.lines == []
    assert every.lines == [["no-such-package: step", "not installed", "", ""]]
    assert packages.checks([row]) == []


def test_a_step_is_timed_in_both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    net, x = torch.nn.Linear(3, 2), torch.randn(4, 3)
    row = packages.measure_step(put(monkeypatch, lambda: training(net, lambda: net(x).square().mean())), ONCE)
    assert {OFF, ON} < set(row["times"])
    assert [check.name for check in packages.checks([row])] == ["world"] * 3


def test_a_step_is_timed_with_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def make() -> object:
        net, x = torch.nn.Linear(3, 2), torch.randn(4, 3)
        return training(net, lambda: net(x).square().mean())

    row = regions.measure_step(put(monkeypatch, make), ONCE)
    assert set(row["times"]) == {measure.EAGER, regions.REGION}
    assert [check.name for check in regions.checks([row])] == ["regions"]
    summary, every = regions.grids([row])
    assert summary.lines[0][0] == every.headings[-1] == "in a region"
    assert len(every.lines[0]) == 3


def test_a_step_without_a_model_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.ones(2, requires_grad=True)
    row = regions.measure_step(put(monkeypatch, lambda: training([x], lambda: x.exp().sum())), ONCE)
    assert "times" not in row
    assert regions.grids([row])[1].lines == []


def test_models_are_found_through_functions() -> None:
    net, loss, first, other = torch.nn.Linear(1, 1), torch.nn.MSELoss(), torch.nn.Tanh(), torch.nn.Linear(1, 1)

    def inner(x: torch.Tensor) -> torch.Tensor:
        return other(x)

    def step(x: torch.Tensor) -> torch.Tensor:
        return loss(first(net(x)), inner(x))

    assert {id(m) for m in regions.models_of(step)} == {id(net), id(other)}


def test_a_gradient_without_entries_is_equal() -> None:
    assert measure.difference([torch.ones(0), torch.ones(2)], [torch.ones(0), torch.ones(2)]) == 0


def test_the_loss_has_to_be_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    x, calls = torch.ones(2, requires_grad=True), iter(range(10**6))
    label = put(monkeypatch, lambda: training([x], lambda: x.sum() + 1e-2 * next(calls)))
    with pytest.raises(ValueError, match="differ"):
        packages.measure_step(label, ONCE)


def test_a_step_that_ends_with_its_own_results(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = iter(range(10**6))
    label = put(monkeypatch, lambda: outcome(lambda: [torch.tensor(float(next(calls)))]))
    with pytest.raises(ValueError, match="differ"):
        packages.measure_step(label, ONCE)


def test_an_optimizer_starts_each_step_from_the_same_place() -> None:
    net, x = torch.nn.Linear(3, 2), torch.randn(4, 3)
    workload = updated(net, lambda p: torch.optim.Adam(p, 0.1), lambda: net(x).square().mean())
    first = [p.clone() for p in workload.step()]
    assert all(map(torch.equal, first, workload.step()))


@pytest.fixture(params=sorted(WORLD))
def installed(request: pytest.FixtureRequest) -> str:
    label: str = request.param
    if not (entry := WORLD[label]).version():
        pytest.skip(f"{entry.package} is not installed")
    return label


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_steps_of_installed_packages_are_equal(installed: str) -> None:
    assert set(packages.measure_step(installed, ONCE)["times"]) > {OFF, ON}


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_steps_of_installed_packages_are_equal_in_regions(installed: str) -> None:
    row = regions.measure_step(installed, ONCE)
    assert row.get("missing", "a model") == "a model"
