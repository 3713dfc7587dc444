"""Private names of torch and CPython stand in `abi/` alone."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import autograd_opt
import autograd_opt.passes

ROOT = Path(autograd_opt.__file__).parent
PASSES = Path(autograd_opt.passes.__file__).parent
ENDINGS = {".py", ".pyx", ".pxd"}
PRIVATE = re.compile(
    r"\b(?:torch|private)(?:\.\w+)*?\.(?P<name>_(?!_)\w+)"                # torch._C, torch.utils._pytree
    r"|\bfrom torch[\w.]*\._\w+ c?import|^\s*import torch[\w.]*\._\w"     # from torch._ops import OpOverload
    r"|\bfrom torch[\w.]* c?import \(?(?:[^#\n]*,)? *_[a-zA-Z]"         # from torch.overrides import _get_current_mode
    r"|\b_Py[A-Z]\w+|\bctypes\.pythonapi\b", re.MULTILINE)


def code(text: str) -> str:
    """The text without its strings and comments, each line where it was."""
    lines = [list(line) for line in text.splitlines(keepends=True)]
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.STRING, tokenize.COMMENT):
            (row, start), (last, end) = token.start, token.end
            for n in range(row - 1, last):
                for k in range(start if n == row - 1 else 0, end if n == last - 1 else len(lines[n]) - 1):
                    lines[n][k] = " "
    return "".join(map("".join, lines))


def found(text: str, operators: bool) -> Iterator[str]:
    """What is private; operators of torch's, which rows of the table may name, are left out where `operators`."""
    for number, line in enumerate(code(text).splitlines(), 1):
        for match in PRIVATE.finditer(line):
            name = match["name"]
            if not (operators and name and (name == "_VF" or hasattr(torch.ops.aten, name))):
                yield f"{number}: {match[0].strip()}"


def test_no_private_name_stands_outside() -> None:
    wrong = {}
    for path in sorted({*ROOT.rglob("*"), *PASSES.rglob("*")}):
        if path.suffix in ENDINGS and ROOT / "abi" not in path.parents:
            seen = list(found(path.read_text(encoding="utf-8"), ROOT / "ops" in path.parents))
            if seen:
                wrong[str(path.relative_to(ROOT.parent))] = seen
    assert not wrong


@pytest.mark.parametrize("line", [
    "x = torch._C.is_grad_enabled()", "torch.utils._pytree.tree_map(f, x)", "from torch._ops import OpOverload",
    "import torch._dynamo", "from torch.overrides import BaseTorchFunctionMode, _pop_mode",
    "cdef extern _PyObject_Vectorcall", "ctypes.pythonapi.Py_AddPendingCall", "f(private.functorch._add_batch_dim)"])
def test_each_kind_is_seen(line: str) -> None:
    assert list(found(line, False))


@pytest.mark.parametrize("line", ["torch.__version__", "'torch._C._nn.gelu'", "f(x)  # torch._C", "t._version"])
def test_what_is_public_is_not(line: str) -> None:
    assert not list(found(line, False))
