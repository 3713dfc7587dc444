import sys
from pathlib import Path

import pytest
import torch

from autograd_opt.verify import known
from autograd_opt.verify.task import Task

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def _seeded():
    """A fixed seed, and no proof known: tests change what proofs are made of."""
    torch.manual_seed(0)
    known.forget()


@pytest.fixture
def proofs(monkeypatch):
    """Counts what is proved, not remembered."""
    made = []
    run = Task.run
    monkeypatch.setattr(Task, "run", lambda self, *a: made.append(1) or run(self, *a))
    return made
