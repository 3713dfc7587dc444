"""The section on watching: same results, a finding in the user's own lines, bars."""

from __future__ import annotations

from pathlib import Path

import pytest

from autograd_opt.benchmarks import explaining
from autograd_opt.benchmarks.jobs import Settings

SCRIPT = """
import time
import torch
x = torch.arange(4.0)
begin = time.process_time()
for _ in range(50):
    y = x.exp() * 2
print(y.sum().item().hex(), time.process_time() - begin + 1)
"""


@pytest.mark.slow
def test_a_script_is_compared_with_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "loop.py").write_text(SCRIPT)
    monkeypatch.setattr(explaining, "FOLDER", tmp_path)
    assert explaining.labels() == ["loop"]
    row = explaining.measure_explain("loop", Settings(repeats=1))
    assert row["results"] == 1
    assert row["repeated"] >= 49
    assert row["findings"][0]["advice"].startswith("compute `y = x.exp() * 2` once, before the loop at loop.py:")
    assert [check.met for check in explaining.checks([row])] == [True, True, True]
    costs, found = explaining.grids([row])
    assert costs.lines[0][5] == "yes"
    assert found.lines[0][0] == "loop"


def test_a_script_that_fails_says_why(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("raise SystemExit('gpytorch is not installed')")
    with pytest.raises(RuntimeError, match="gpytorch is not installed"):
        explaining.run(str(tmp_path), ["bad.py"])


def test_every_script_of_the_section_is_a_program() -> None:
    for label in explaining.labels():
        compile((explaining.FOLDER / f"{label}.py").read_text(), label, "exec")
