import sys
from pathlib import Path

import pytest
import torch

from autograd_opt.verification.cache import memory_cache
from autograd_opt.verification.checker import congruence
from autograd_opt.verification.strategies.task import Task

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def _seeded():
    """A fixed seed, and no proof known: tests change what proofs are made of."""
    torch.manual_seed(0)
    memory_cache.forget()


@pytest.fixture
def proofs(monkeypatch):
    """Counts what is proved, not remembered."""
    made = []
    run = Task.run
    monkeypatch.setattr(Task, "run", lambda self, *a: made.append(1) or run(self, *a))
    answer = congruence.answer

    def answered(*asked):
        found = answer(*asked)
        made.extend([1] * (found is not None))
        return found

    monkeypatch.setattr(congruence, "answer", answered)
    return made
