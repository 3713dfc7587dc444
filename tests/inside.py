"""A pytest plugin that runs the body of every test inside an `AutogradGraph`: other packages' tests try this library.

`PYTHONPATH=<this checkout> python -m pytest -p tests.inside <their tests>`; with `INSIDE=0` nothing is entered, which
tells what fails without this library, too.  Fixtures run outside: what they compute has torch's own history.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest

import autograd_opt as ao


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[Any]:
    """Enter a graph around the test's call."""
    graph: Any = nullcontext() if os.environ.get("INSIDE") == "0" else ao.AutogradGraph(optimize=True)
    with graph:
        return (yield)
