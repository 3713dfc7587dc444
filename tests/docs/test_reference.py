"""The reference has every public name, and every one says what it is."""

from __future__ import annotations

import inspect
import re

import pytest

import autograd_opt as ao
from tests.docs.loading import ROOT

REFERENCE = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
METHODS = re.findall(r"\w+", re.findall(r"autoclass:: autograd_opt\.AutogradGraph\n   :members:((?:.*,\n)*.*)", REFERENCE)[0])


@pytest.mark.parametrize("name", ao.__all__)
def test_every_public_name_is_in_the_reference(name: str) -> None:
    errors = re.search(r"automodule:: autograd_opt\.errors\n   :members:((?:.*,\n)*.*)", REFERENCE)
    assert errors is not None
    assert f":: autograd_opt.{name}\n" in REFERENCE or re.search(rf"\b{name}\b", errors.group(1))


def test_every_public_method_of_a_graph_is_in_the_reference() -> None:
    inner = {"label", "spent_graph", "prepare", "root_numbers", "planned"}
    public = {name for name, value in vars(ao.AutogradGraph).items()
              if not name.startswith("_") and callable(getattr(value, "fget", value)) and not name.startswith("require")}
    assert public - inner <= set(METHODS), public - inner - set(METHODS)
    assert set(METHODS) <= public


@pytest.mark.parametrize("name", [n for n in ao.__all__ if not n.endswith("Error")])
def test_functions_and_classes_show_an_example(name: str) -> None:
    text = inspect.getdoc(getattr(ao, name)) or ""
    assert ">>> " in text
    assert len(text.splitlines()) > 3


@pytest.mark.parametrize("name", METHODS)
def test_methods_say_what_they_do(name: str) -> None:
    text = inspect.getdoc(getattr(ao.AutogradGraph, name)) or ""
    assert len(text.splitlines()) > 1 or text.endswith(".")
