"""The command: one process for each measurement, files, and what happens when something goes wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from autograd_opt.benchmarks import jobs
from autograd_opt.benchmarks.command import bench
from autograd_opt.benchmarks.conditions import build, conditions
from autograd_opt.benchmarks.jobs import Settings, in_process_of_its_own
from autograd_opt.benchmarks.section import Grid, Section
from autograd_opt.benchmarks.sections import SECTIONS
from autograd_opt.benchmarks.show import markdown, notes
from autograd_opt.benchmarks.tables import merged, rows_of


def test_the_command_writes_both_tables(tmp_path: Path) -> None:
    done = CliRunner().invoke(bench, ["gp", "--repeats", "1", "--out", str(tmp_path), "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads((tmp_path / "times-gp.json").read_text())
    assert found == json.loads(done.stdout)["times"]
    assert found["conditions"]["threads"] == 1
    assert found["conditions"]["command"] == "python -m benchmarks times gp --repeats 1 --threads 1"
    kernels = found["rows"][0]["kernels"]
    assert sum(kernels["optimize=True"].values()) < sum(kernels["torch eager"].values())
    assert (tmp_path / "times-gp.md").read_text().count("|") > 20


def test_a_failure_costs_one_row(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fine = {"name": "b", "figure": 1, "took": 0.0}

    def run(section: str, label: str, *rest: object) -> dict[str, object]:
        return {"name": "a", "error": "it burns", "took": 0.0} if label == "a" else fine

    def grids(rows: list[dict[str, object]]) -> list[Grid]:
        return [Grid("t", ("name",), [[str(row["name"])] for row in rows])]

    def never(*_: object) -> dict[str, object]:
        raise AssertionError("measured in this process")

    section = Section("times", "t", lambda groups: ["a", "b"], never, grids)
    monkeypatch.setitem(SECTIONS, "times", section)
    monkeypatch.setattr(jobs, "in_process_of_its_own", run)
    done = CliRunner().invoke(bench, ["times", "--out", str(tmp_path)])
    assert done.exit_code == 1
    assert json.loads((tmp_path / "times.json").read_text())["rows"][1] == fine | {"build": build()}
    assert "a: it burns" in (tmp_path / "times.md").read_text()


def test_rows_are_written_as_they_come(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def run(section: str, label: str, *rest: object) -> dict[str, object]:
        if label == "b":
            raise KeyboardInterrupt
        return {"name": label, "took": 0.0}

    def never(*_: object) -> dict[str, object]:
        raise AssertionError("measured in this process")

    section = Section("times", "t", lambda groups: ["a", "b"], never, lambda rows: [])
    monkeypatch.setitem(SECTIONS, "times", section)
    monkeypatch.setattr(jobs, "in_process_of_its_own", run)
    assert CliRunner().invoke(bench, ["times", "--out", str(tmp_path)]).exit_code != 0
    assert json.loads((tmp_path / "times.json").read_text())["rows"] == [
        {"name": "a", "took": 0.0, "build": build()}]


def test_an_error_in_the_process_is_a_row() -> None:
    row = in_process_of_its_own("times", "no such workload", Settings(repeats=1))
    assert (row["name"], row["error"]) == ("no such workload", "KeyError: 'no such workload'")


def test_a_process_that_dies_is_a_row() -> None:
    row = in_process_of_its_own("no such section", "x", Settings(repeats=1))
    assert "KeyError" in row["error"]


def test_a_measurement_that_takes_too_long_is_given_up() -> None:
    row = in_process_of_its_own("times", "chain", Settings(repeats=10**6, limit=0.1))
    assert (row["name"], row["error"]) == ("chain", "given up after 0 s")


def test_threads_are_the_same_for_all_libraries() -> None:
    variables = jobs.threads_of_all(1)
    assert variables["OMP_NUM_THREADS"] == "1"
    assert "intra_op_parallelism_threads=1" in variables["XLA_FLAGS"]
    assert jobs.empty_caches("/nowhere")["TMPDIR"] == "/nowhere"


def test_an_update_keeps_the_other_rows(tmp_path: Path) -> None:
    path = tmp_path / "times.json"
    path.write_text(json.dumps({"rows": [{"name": "a", "x": 1}, {"name": "b", "x": 1}]}))
    assert merged(rows_of(path), [{"name": "b", "x": 2}, {"name": "c", "x": 2}]) == [
        {"name": "a", "x": 1}, {"name": "b", "x": 2}, {"name": "c", "x": 2}]


def test_a_page_says_what_was_run_and_what_failed() -> None:
    rows = [{"name": "a", "error": "no"}, {"name": "b", "notes": ["x is not installed"]}]
    section = Section("times", "T", lambda groups: [], lambda *_: {}, lambda rows: [], preface="Read this.")
    grid = Grid("t", ("name", "ms"), [["a|b", "1"]])
    page = markdown(section, [grid], conditions("run it", 1), ["p.png"], notes(rows))
    assert page.index("Read this.") < page.index("a: no") < page.index("## t")
    assert "Written by `run it`" in page
    assert "| a\\|b | 1 |" in page
    assert "---:" in page
    assert "torch 2.13" in page
    assert notes(rows) == ["x is not installed", "a: no"]
