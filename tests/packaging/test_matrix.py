"""A cell of the matrix fails for what the package does, not for what a machine lacks."""

import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def matrix() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "scripts" / "matrix.py"), run_name="matrix")


def cell(matrix: dict[str, Any], folder: Path, run: Callable[..., int], python: str | None = sys.executable) -> bool:
    """One cell whose commands are answered by `run`."""
    names = matrix["cell"].__globals__
    names.update(run=run, RESULTS=folder / "results", interpreter=lambda *_: python)
    return bool(matrix["cell"]("3.13", "2.13.0", {"import": matrix["STEPS"]["import"]}, folder, None, False))


@pytest.mark.parametrize(("missing", "said"), [("venv", "no environment"), ("sympy", "no packages"),
                                              ("torch==2.13.0", "no torch")])
def test_what_cannot_be_had_is_said_and_passes(matrix: dict[str, Any], tmp_path: Path, missing: str, said: str,
                                               capsys: pytest.CaptureFixture[str]) -> None:
    def run(command: list[str], *_: object, **__: object) -> int:
        return int(any(word.startswith(missing) for word in command))
    assert cell(matrix, tmp_path, run)
    assert f"3.13-2.13.0: {said}" in capsys.readouterr().out


def test_a_python_that_is_not_there_is_said_and_passes(matrix: dict[str, Any], tmp_path: Path,
                                                       capsys: pytest.CaptureFixture[str]) -> None:
    assert cell(matrix, tmp_path, lambda *_, **__: 0, None)
    assert "3.13-2.13.0: no Python 3.13" in capsys.readouterr().out


@pytest.mark.parametrize(("failing", "said"), [(".", "not built"), ("-c", "import: 0 passed, 1 failed")])
def test_a_build_or_a_step_that_fails_fails_the_cell(matrix: dict[str, Any], tmp_path: Path, failing: str, said: str,
                                                     capsys: pytest.CaptureFixture[str]) -> None:
    assert not cell(matrix, tmp_path, lambda command, *_, **__: int(failing in command))
    assert f"3.13-2.13.0{':' if failing == '.' else ''} {said}" in capsys.readouterr().out
