"""The table of costs prints what was proved; it times nothing here."""

from __future__ import annotations

import pytest

from autograd_opt.benchmarks import verification_overhead as overhead
from autograd_opt.benchmarks import verification_speed as speed


@pytest.mark.parametrize("build", [b for b in speed.NAMED if "100,000" not in b.__doc__], ids=lambda b: b.__doc__[:30])
def test_every_graph_of_the_table_is_proved(build):
    assert " | proved, " in speed.line("name", build)


def test_a_step_whose_backward_runs_are_inside():
    def build():
        x = speed.leaf(3)
        import torch

        return [torch.autograd.grad((x * x).sum(), x)[0] for _ in range(2)]

    assert "proved |" in speed.runs("name", build)


def test_the_table_of_the_documentation_is_replaced_between_its_markers(tmp_path, monkeypatch):
    path = tmp_path / "page.md"
    path.write_text(f"before\n{speed.BEGIN}\nold\n{speed.END}\nafter\n")
    monkeypatch.setattr(speed, "lines", lambda everything: iter(["| a |", "| b |"]))
    monkeypatch.setattr("sys.argv", ["speed", "--quick", str(path)])
    speed.main()
    assert path.read_text() == f"before\n{speed.BEGIN}\n| a |\n| b |\n{speed.END}\nafter\n"


@pytest.fixture(scope="module")
def processes():
    with overhead.Processes() as found:
        yield found


def test_the_first_step_is_measured_in_processes_of_their_own(processes):
    """What one has proved no other knows."""
    found = [processes.ask("gp") for _ in range(2)]
    assert [(f["proved"], f["runs"], f["nodes"], f["written"]) for f in found] == [(True, 1, 61, 0)] * 2
    assert all(f["first"] > 0 <= f["later"] for f in found)
    assert not any(f["loaded_sympy"] or f["changes"] for f in found)


def test_a_step_that_goes_as_written_makes_its_hash_when_it_is_read(processes):
    found = processes.ask("mlp")
    assert [found[k] for k in ("proved", "runs", "nodes", "written")] == [True, 1, 15, 1]
    assert found["hashing"] > found["first"] > 0


def test_no_transpose_of_a_transpose_loads_sympy(processes):
    found = processes.ask("pinn_burgers")
    assert found["proved"]
    assert not found["loaded_sympy"]


def test_all_runs_of_a_step_count(processes):
    found = processes.ask("hessian_rosenbrock")
    assert (found["runs"], found["nodes"]) == (20, 980)


def test_a_row_says_what_is_found_and_the_most_of_each_kind(processes):
    tables = overhead.Tables(processes, ["gp", "lstm"])
    head, _, row, written, most = tables.steps()
    assert head.count("|") == row.count("|") == written.count("|") == most.count("|")
    assert row.startswith("| `gp` | 61 | proved | ")
    assert written.startswith("| `lstm` | 18 | proved, as written | ")
    assert most == f"| most of all; the bar is 50 | | | | {tables.most[0]:.1f} | | {tables.most[1]:.0f} | |"
    assert 0 <= tables.most[0] < tables.most[1]


def test_what_grows_is_told_from_what_does_not():
    assert overhead.line([10, 100, 1000], [0.00101, 0.0011, 0.002]) == "1.00 + 1.0"


def test_a_process_that_fails_is_an_error():
    with overhead.Processes() as processes, pytest.raises(RuntimeError, match="nothing has failed"):
        processes.ask("nothing")
