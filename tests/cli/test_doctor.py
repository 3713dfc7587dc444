"""`autograd-opt doctor`: what is on, and checks that pass."""

import json
import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from autograd_opt.abi.switches import PARTS, off
from autograd_opt.cli import doctor


def test_all_is_right_and_said() -> None:
    done = CliRunner().invoke(doctor.doctor, ["--json"])
    found = json.loads(done.output)
    assert done.exit_code == 0
    assert found["right"]
    assert found["operators"]["checked"] >= 100
    assert found["operators"]["wrong"] == {}
    assert found["proof"] == "proved"
    assert set(found["accelerations"]) == set(PARTS)


def test_a_wrong_operator_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "calls", lambda: {"odd": lambda x, y: x,
                                                  "broken": lambda x, y: x.no_such_method()})
    done = CliRunner().invoke(doctor.doctor, [])
    assert done.exit_code == 1
    assert "WRONG broken: AttributeError" in done.output


@pytest.mark.parametrize(("asked", "untested", "names"), [
    ("", False, set()), ("1", False, set(PARTS)), ("0", True, set()), ("", True, set(PARTS)),
    ("kernels,getset", False, {"kernels", "getset"}), ("tensor_info", False, {"tensor_info", "kernels"}),
])
def test_switches(asked: str, untested: bool, names: set[str]) -> None:
    assert set(off(asked, untested)) == names


def test_an_unknown_switch_is_named() -> None:
    with pytest.raises(ValueError, match="'speed' is no acceleration"):
        off("speed", False)


@pytest.mark.slow
@pytest.mark.parametrize("asked", ["1", *PARTS])
def test_whatever_is_off_all_is_right(asked: str) -> None:
    done = subprocess.run([sys.executable, "-m", "autograd_opt", "doctor", "--json"], capture_output=True, text=True,
                          check=True, env={**os.environ, "AUTOGRAD_OPT_PLAIN": asked})
    found = json.loads(done.stdout)
    assert found["right"]
    assert set(off(asked)) == {name for name, said in found["accelerations"].items() if said.startswith("off")}
