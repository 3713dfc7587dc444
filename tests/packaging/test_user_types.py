"""A user's program over the whole interface is checked strictly, finds no value of the type Any, and runs."""

from __future__ import annotations

import ast
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import autograd_opt as ao
from tests.docs.test_reference import members
from tests.packaging.test_typecheck import ROOT

PROGRAM = Path(__file__).with_name("user_program.py")
NAMES = {node.attr for node in ast.walk(ast.parse(PROGRAM.read_text(encoding="utf-8")))
         if isinstance(node, ast.Attribute)}
UNTYPED = {"to_networkx"}
"""Methods that return objects of packages without types."""


@pytest.mark.slow
def test_a_users_program_has_no_any(tmp_path: Path) -> None:
    pytest.importorskip("mypy", reason="types are checked by mypy, which the extra dev has")
    runpy.run_path(str(ROOT / "scripts" / "typecheck.py"))["lay_out"](tmp_path)
    command = [sys.executable, "-m", "mypy", "--strict", "--disallow-any-expr", "--no-pretty", "--cache-dir",
               str(tmp_path / "cache"), "--follow-imports=silent", str(PROGRAM)]
    done = subprocess.run(command, cwd=tmp_path, env={**os.environ, "MYPYPATH": str(tmp_path)}, capture_output=True,
                          text=True, check=False)
    assert done.stdout.startswith("Success"), done.stdout + done.stderr


def test_the_program_uses_every_public_name() -> None:
    assert {name for name in dir(ao) if not name.startswith("__")} <= NAMES | {"verify"}
    for of in ("AutogradGraph", "api.kept.Snapshot"):
        assert set(members(f"autoclass:: autograd_opt.{of}")) <= NAMES | UNTYPED


@pytest.mark.slow
def test_the_program_runs(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, str(PROGRAM)], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "1 merged, 5 pruned" in done.stdout
