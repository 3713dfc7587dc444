"""Versions of the packages that proofs rest on, without loading them."""

from __future__ import annotations

import functools
import platform
import re
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import torch

WRITTEN = re.compile(r"""^__version__ = ["']([^"']+)["']$""", re.MULTILINE)


@functools.cache
def version_of(name: str) -> str:
    """What the package says of itself, loaded or not; parsing the metadata of its installer takes a millisecond."""
    if name in sys.modules:
        return str(sys.modules[name].__version__)
    spec = find_spec(name)
    try:
        text = Path(str(spec.origin if spec else "")).with_name("release.py").read_text()
    except OSError:
        text = ""
    found = WRITTEN.search(text)
    return found[1] if found else version(name)


@functools.cache
def versions() -> dict[str, str]:
    """What a verdict says of what it rests on."""
    return {"python": platform.python_version(), "torch": torch.__version__, "sympy": version_of("sympy")}
