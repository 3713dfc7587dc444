"""What every test sees: one thread, torch's random state its own, and nothing learned from earlier tests or runs."""

import os
from collections.abc import Iterator

import hypothesis
import pytest
import torch

from autograd_opt import node, recorder


def pytest_configure() -> None:
    torch.set_num_threads(1)
    os.environ["AUTOGRAD_OPT_CACHE"] = "off"
    node.compact_always(bool(os.environ.get("AUTOGRAD_OPT_COMPACT")))        # `make compact`
    # the same examples in each run, however slow the machine: `python -m tests.fuzz` looks for new ones
    hypothesis.settings.register_profile("repeatable", deadline=None, derandomize=True,
                                         suppress_health_check=[hypothesis.HealthCheck.too_slow])
    hypothesis.settings.load_profile("repeatable")


@pytest.fixture(autouse=True)
def _random_state() -> Iterator[None]:
    """A test starts with a fixed seed, no place known, and leaves torch's generator and default dtype as they were."""
    dtype = torch.get_default_dtype()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        recorder.forget_places()
        yield
    torch.set_default_dtype(dtype)
