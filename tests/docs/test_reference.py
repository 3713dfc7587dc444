"""The reference has every public name, and every one says what it is."""

from __future__ import annotations

import inspect
import re

import pytest

import autograd_opt as ao
from autograd_opt.cli.main import COMMANDS
from tests.docs.loading import ROOT

REFERENCE = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
MEMBERS = r"{}\n   :members:((?:.*,\n)*.*)"


def members(of: str) -> list[str]:
    """The names behind `:members:` of a directive."""
    found = re.search(MEMBERS.format(re.escape(of)), REFERENCE)
    assert found is not None
    return re.findall(r"\w+", found.group(1))


METHODS = members("autoclass:: autograd_opt.AutogradGraph")
ERRORS = members("automodule:: autograd_opt.errors")


@pytest.mark.parametrize("name", [name for name in dir(ao) if not name.startswith("__")])
def test_every_public_name_is_in_the_reference(name: str) -> None:
    assert re.search(rf":: autograd_opt\.{name}[.\n]", REFERENCE) or name in ERRORS


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_in_the_reference(command: str) -> None:
    assert f"| `autograd-opt {command}" in REFERENCE


def test_every_public_method_of_a_graph_is_in_the_reference() -> None:
    inner = {"label", "spent_graph", "prepare", "root_numbers", "planned", "merges"}
    own = [kind for kind in ao.AutogradGraph.__mro__ if kind.__module__.startswith("autograd_opt.api")]
    public = {name for kind in own for name, value in vars(kind).items()
              if not name.startswith(("_", "require", "refuse")) and callable(getattr(value, "fget", value))}
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
