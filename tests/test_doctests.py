"""The examples in every docstring of the package run, also those of compiled modules."""

import doctest
import importlib
import pkgutil

import pytest

import autograd_opt

SKIPPED = ("autograd_opt.__main__", "autograd_opt.benchmarks.__main__")
"""Modules that start a command when they are imported."""
MODULES = ["autograd_opt", *(
    m.name for m in pkgutil.walk_packages(autograd_opt.__path__, "autograd_opt.") if m.name not in SKIPPED
)]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    module = importlib.import_module(name)
    result = doctest.testmod(module, optionflags=doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL)
    assert result.failed == 0


def test_the_passes_are_among_them() -> None:
    importlib.import_module("autograd_opt.passes.pipeline")
    assert any(name.startswith("autograd_opt.ops.") for name in MODULES)
