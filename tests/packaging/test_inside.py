"""`tests/inside.py` runs the tests of other packages inside a graph."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
THEIRS = '''
import unittest

import pytest
import torch


@pytest.fixture
def y():
    return torch.ones(2, requires_grad=True) * 2


class TestTheirs(unittest.TestCase):
    def test_gradient(self):
        x = torch.ones(2, requires_grad=True)
        loss = (x * x).sum()
        loss.backward()
        self.assertEqual(type(loss), torch.Tensor)
        torch.testing.assert_close(x.grad, torch.full((2,), 2.0))
        assert type(loss) is torch.Tensor


def test_of_what_a_fixture_computes(y):
    z = y * 3
    assert torch.autograd.grad(z.sum(), y)[0].tolist() == [3.0, 3.0]
    assert type(z) is torch.Tensor
'''


@pytest.mark.parametrize(("inside", "outcome"), [("0", "2 passed"), ("1", "2 failed")])
def test_the_call_runs_inside_a_graph(tmp_path: Path, inside: str, outcome: str) -> None:
    """The last line of each test tells whether its results were recorded; all lines before hold either way."""
    path = tmp_path / "test_theirs.py"
    path.write_text(THEIRS)
    command = [sys.executable, *"-m pytest -q -p tests.inside -p no:cacheprovider -p no:randomly --rootdir".split()]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "INSIDE": inside}
    done = subprocess.run([*command, str(tmp_path), str(path)], cwd=tmp_path, env=environment, capture_output=True,
                          text=True, check=False)
    assert outcome in done.stdout, done.stdout + done.stderr
    failed = [line for line in done.stdout.splitlines() if line.startswith(">")]
    assert len(failed) == int(inside) * 2
    assert all("is torch.Tensor" in line for line in failed)
