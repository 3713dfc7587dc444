"""What every test sees: one thread, and torch's random state its own."""

from collections.abc import Iterator

import pytest
import torch


def pytest_configure() -> None:
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _random_state() -> Iterator[None]:
    """A test starts with a fixed seed and leaves torch's generator and default dtype as they were."""
    dtype = torch.get_default_dtype()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield
    torch.set_default_dtype(dtype)
