"""The optimizer sees integers and byte strings: no torch, no sympy, no package."""

import re
import sys
from importlib.resources import files

import pytest

SOURCES = [source for source in files("autograd_opt.passes").iterdir() if source.name.endswith((".py", ".pyx", ".pyi"))]
ALLOWED = {"numpy", "rustworkx", "libc", *sys.stdlib_module_names}


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_imports_point_one_way(source) -> None:  # type: ignore[no-untyped-def]
    text = source.read_text(encoding="utf-8")
    found = re.findall(r"^\s*(?:from|c?import)\s+([\w.]+)(?=\s+c?import|\s|$)", text, re.M)
    for module in found:
        inside = module.startswith("autograd_opt.passes")
        assert inside or module.split(".")[0] in ALLOWED, module
