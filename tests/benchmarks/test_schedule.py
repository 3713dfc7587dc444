"""What runs beside what, and what an interrupted run keeps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from autograd_opt.benchmarks import jobs, schedule, summary
from autograd_opt.benchmarks.command import bench
from autograd_opt.benchmarks.conditions import build
from autograd_opt.benchmarks.jobs import Settings
from autograd_opt.benchmarks.schedule import Task
from autograd_opt.benchmarks.section import Check, Grid, Row, Section
from autograd_opt.benchmarks.sections import COUNTS, SECTIONS


def never(*_: object) -> Row:
    raise AssertionError("measured in this process")


def section(name: str, labels: list[str], **more: object) -> Section:
    return Section(name, "t", lambda groups: labels, never, lambda rows: [], **more)  # type: ignore[arg-type]


def test_what_is_timed_runs_after_what_is_counted() -> None:
    timed = section("timed", ["a", "b"], counts=lambda label: label)
    counted = section("counted", ["a", "c"], counts=lambda label: "a" if label == "a" else None,
                      alone=lambda label: False)
    plan = schedule.planned([(timed, ["a", "b"], {"b": 40.0}), (counted, ["a", "c"], {"c": 9.0})], Settings())
    counts, beside = plan.beside
    assert [(task.section, task.label) for task in counts] == [(COUNTS, "a"), (COUNTS, "b")]
    assert [(task.section, task.label) for task in beside] == [("counted", "c"), ("counted", "a")]
    assert plan.alone == (Task("timed", "a", timed.expected), Task("timed", "b", 40.0))
    assert plan.seconds == (20 + 9 + counted.expected) / plan.lanes + timed.expected + 40


def test_lanes_are_left_when_each_measurement_has_many_threads() -> None:
    assert schedule.planned([], Settings(threads=10_000)).lanes == 1


def test_counts_are_shared_by_all_sections(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = []

    def run(name: str, label: str, *rest: object) -> Row:
        asked.append((name, label))
        return {"name": label, "took": 0.0, **({"kernels": 7} if name == COUNTS else {"seconds": 1.0})}

    def joined(row: Row, counts: Row) -> Row:
        return row | {"kernels": counts["kernels"]}

    for name in ("times", "cse"):
        monkeypatch.setitem(SECTIONS, name, section(name, ["a"], counts=lambda label: label, joined=joined))
    monkeypatch.setattr(jobs, "in_process_of_its_own", run)
    done = CliRunner().invoke(bench, ["times", "cse", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert asked == [(COUNTS, "a"), ("times", "a"), ("cse", "a")]
    for name in ("times", "cse"):
        (row,) = json.loads((tmp_path / f"{name}.json").read_text())["rows"]
        assert (row["kernels"], row["seconds"], row["build"]) == (7, 1.0, build())


def test_a_resumed_run_measures_what_is_missing_failed_or_of_another_build(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
) -> None:
    asked = []

    def run(name: str, label: str, *rest: object) -> Row:
        asked.append(label)
        return {"name": label, "took": 0.0}

    monkeypatch.setitem(SECTIONS, "times", section("times", ["kept", "failed", "old", "missing"]))
    monkeypatch.setattr(jobs, "in_process_of_its_own", run)
    rows = [{"name": "kept", "build": build()}, {"name": "failed", "build": build(), "error": "it burns"},
            {"name": "old", "build": "another"}]
    text = json.dumps({"conditions": {"command": "python -m benchmarks times --repeats 30 --threads 1"}, "rows": rows})
    (tmp_path / "times.json").write_text(text)
    assert CliRunner().invoke(bench, ["times", "--resume", "--out", str(tmp_path)]).exit_code == 0
    assert asked == ["failed", "old", "missing"]
    names = [row["name"] for row in json.loads((tmp_path / "times.json").read_text())["rows"]]
    assert names == ["kept", "failed", "old", "missing"]
    (tmp_path / "times.json").write_text(text)
    CliRunner().invoke(bench, ["times", "--resume", "--repeats", "3", "--out", str(tmp_path)])
    assert len(asked) == 3 + 4, "rows of other options are measured anew"


def test_rows_of_another_build_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(SECTIONS, "times", section("times", ["a", "b"]))
    monkeypatch.setattr(jobs, "in_process_of_its_own", lambda name, label, *rest: {"name": label, "took": 0.0})
    rows = [{"name": "a", "build": "another"}, {"name": "b", "build": "another"}]
    (tmp_path / "times.json").write_text(json.dumps({"rows": rows}))
    monkeypatch.setitem(SECTIONS["times"].__dict__, "labels", lambda groups: ["b"] if groups else ["a", "b"])
    assert CliRunner().invoke(bench, ["times", "gp", "--update", "--out", str(tmp_path)]).exit_code == 0
    assert "Measured with another build of the library: a." in (tmp_path / "times.md").read_text()


def test_a_peer_that_is_late_is_a_result() -> None:
    row = jobs.in_process_of_its_own("peers", "mlp: torch.compile, aot_eager", Settings(repeats=1, patience=0.05))
    assert (row["unfinished"], "error" in row) == (0.05, False)


def test_what_came_before_the_end_is_kept() -> None:
    here, there = jobs.FORKING.Pipe(duplex=False)
    there.send_bytes(json.dumps({"tick": 1, "row": {"name": "a", "first": 2.0}}).encode())
    ticks: list[int] = []
    assert jobs.read_row(here, 0.01, lambda: ticks.append(1)) == ({"name": "a", "first": 2.0}, True)
    assert ticks == [1]


def test_the_summary_counts_bars_and_goals_and_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                                                                    ) -> None:
    def checks(rows: list[Row]) -> list[Check]:
        return [Check(row["name"], "time", row["share"], 1.0, goal=0.5) for row in rows]

    monkeypatch.setattr(summary, "SECTIONS", {
        "times": Section("times", "t", lambda groups: ["a", "b", "c", "d"], never, lambda rows: [], checks),
        "peers": section("peers", ["x"])})
    rows = [{"name": name, "share": share} for name, share in (("a", 0.4), ("b", 0.9), ("c", 1.2))]
    about = {"command": "run it", "date": "2000-01-01"}
    (tmp_path / "times.json").write_text(json.dumps({"conditions": about, "rows": rows}))
    summary.write(tmp_path)
    text = (tmp_path / "bars.md").read_text()
    assert "| times | time | 3: a … c | 1.20 | ≤ 1.00 | 2 of 3 | ≤ 0.50 | 1 of 3 | c 1.20 |" in text
    assert "Not measured in this run: 1 of 4 rows, of d." in text
    assert "- `peers`: not measured." in text
    assert "Plain networks cannot win" in text


def test_a_goal_may_have_to_be_beaten() -> None:
    even, better = (Check("a", "peak", found, 1.0, goal=1.0, below=True) for found in (1.0, 0.9))
    assert (even.result, better.result) == ("met", "met, and the goal")
    assert even.goal_text == "< 1.00"
    assert Check("a", "times faster", 100, 50, at_least=True, goal=200).result == "met"
    assert Check("a", "x", 2.0, 1.0).result == "MISSED"
    assert Grid("t", (), []).lines == []
