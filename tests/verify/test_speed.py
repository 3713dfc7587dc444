"""The table of costs prints what was proved; it times nothing here."""

from __future__ import annotations

import pytest

from autograd_opt.verify import overhead, speed


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


def test_the_overhead_of_a_workload_says_what_is_known():
    from autograd_opt.benchmarks.population import population
    from autograd_opt.benchmarks.workloads import MAKES

    each, kind = overhead.later(MAKES["gp"])
    assert kind == "known"
    assert each >= 0
    assert overhead.later(lambda: population(points=10))[1] == "a new structure"


def test_the_first_step_is_measured_in_processes_of_their_own(tmp_path):
    found = overhead.in_a_process("mlp", str(tmp_path), False)
    assert found["proved"]
    assert (found["runs"], found["nodes"], found["stored"]) == (1, 15, 0)
    assert found["first"] > 0
