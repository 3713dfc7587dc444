"""The example scripts run, and do what they say."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
import torch

from tests.docs.loading import ROOT, loaded


def load(name: str) -> ModuleType:
    return loaded("examples", f"{name}.py")


@pytest.mark.parametrize(("name", "arguments"), [
    ("burgers", ["--steps", "15"]),
    ("gaussian_process", ["--steps", "15"]),
    ("transformer", ["--steps", "12"]),
])
def test_training_examples_learn(name: str, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    first, last = load(name).main(arguments)
    assert last < first
    assert "→" in capsys.readouterr().out


def test_symbolic_regression() -> None:
    pytest.importorskip("sklearn")
    first, last = load("symbolic_regression").main(["--generations", "4", "--population", "16"])
    assert last <= first < 1.5


def test_hessian_is_the_known_one() -> None:
    """The Hessian of a logistic regression is Xᵀ diag(p (1 − p)) X."""
    pytest.importorskip("sklearn")
    module = load("hessian")
    x = torch.randn(20, 3, dtype=torch.float64)
    y = (torch.rand(20, dtype=torch.float64) > 0.5).double()
    beta = torch.randn(3, dtype=torch.float64, requires_grad=True)
    _, hessian, _ = module.gradient_and_hessian(beta, x, y)
    p = torch.sigmoid(x @ beta.detach())
    assert torch.allclose(hessian, x.T @ ((p * (1 - p))[:, None] * x))
    assert module.main().shape == (5,)


def test_cse_step_by_step(capsys: pytest.CaptureFixture[str]) -> None:
    load("cse_step_by_step").main()
    out = capsys.readouterr().out
    assert "found by cse" in out
    assert "pinned by a hook" in out
    assert "proved" in out


def test_the_transformer_is_drawn(tmp_path: Path) -> None:
    load("transformer").main(["--steps", "1", "--picture", str(tmp_path / "t.mmd")])
    text = (tmp_path / "t.mmd").read_text()
    assert all(f"[\"{name}\"]" in text for name in ("Reverser", "encoder.layers"))


def test_every_example_is_tested() -> None:
    known = {"burgers", "gaussian_process", "transformer", "symbolic_regression", "hessian", "cse_step_by_step"}
    assert {p.stem for p in (ROOT / "examples").glob("*.py")} == known
