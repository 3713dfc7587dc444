"""Algorithms as people write them with torch, each a small program, run under torch and inside graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Program = Callable[[], dict[str, Any]]
ALGORITHMS: dict[str, Program] = {}


def algorithm(program: Program) -> Program:
    """Register a program: it draws its own data from the seeded generator and returns what it computed, by name."""
    name = program.__name__
    assert name not in ALGORITHMS, name
    ALGORITHMS[name] = program
    return program
