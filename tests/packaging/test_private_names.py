"""Private names of torch and CPython stand in `abi/` alone."""

from __future__ import annotations

import functools
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.fx
import torch.utils.checkpoint

import autograd_opt
import autograd_opt.passes

ROOT = Path(autograd_opt.__file__).parent
PASSES = Path(autograd_opt.passes.__file__).parent
ENDINGS = {".py", ".pyx", ".pxd", ".h"}
DOCUMENTED = {"_replace", "_asdict", "_fields", "_make"}     # of named tuples
PRIVATE = re.compile(
    r"\b(?:torch|private)(?:\.\w+)*?\.(?P<name>_(?!_)\w+)"                # torch._C, torch.utils._pytree
    r"|\bfrom torch[\w.]*\._\w+ c?import|^\s*import torch[\w.]*\._\w"     # from torch._ops import OpOverload
    r"|\bfrom torch[\w.]* c?import \(?(?:[^#\n]*,)? *_[a-zA-Z]"         # from torch.overrides import _get_current_mode
    r"|\b_Py[A-Z]\w+|\bctypes\.pythonapi\b", re.MULTILINE)
ATTRIBUTE = re.compile(r"(?<!\bautograd_opt)\.(_[A-Za-z]\w*)")          # t._base
TEXT = re.compile(r"[\"'](_[A-Za-z]\w*)[\"']")                           # getattr(t, "_base")
OWN = re.compile(r"\b(?:self|cls)\.(_[A-Za-z]\w*)\b")
OPERATORS = frozenset(name for name in dir(torch.ops.aten) if name.startswith("_")) | {
    schema.name.partition("::")[2] for schema in torch._C._jit_get_all_schemas()}

TEXTS = (tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", None))     # the last from 3.12 on
METHODS = frozenset(dir(torch.Tensor))     # t._version, also where an operator has the same name


@functools.cache
def names_of_torch() -> tuple[frozenset[str], frozenset[str]]:
    """Private names of torch's main objects, and those of all its modules and classes.

    Without fields of this library's own that happen to have such a name.
    """
    modules = [m for name, m in list(sys.modules.items()) if name == "torch" or name.startswith("torch.")]
    classes = [c for m in modules for c in vars(m).values()
               if issubclass(type(c), type) and c.__module__.startswith("torch")]
    leaf = torch.zeros(1, 1, requires_grad=True)
    objects = [leaf, leaf.untyped_storage(), torch.nn.Module(), torch.optim.SGD([leaf], lr=1.0),
               torch.mm(leaf, leaf).grad_fn, torch.nn.modules.module, torch._C]
    own = {name for path in sources() for name in OWN.findall(path.read_text(encoding="utf-8"))}
    own -= {*dir(torch.Tensor), *dir(torch.nn.Module())}

    def private(things: list[object]) -> frozenset[str]:
        names = {name for one in things for name in dir(one) if re.fullmatch(r"_[A-Za-z]\w*", name)}
        return frozenset(names - own - DOCUMENTED)

    return private(objects), private([*modules, *classes, *objects])


def sources() -> list[Path]:
    return [path for path in sorted({*ROOT.rglob("*"), *PASSES.rglob("*")})
            if path.suffix in ENDINGS and ROOT / "abi" not in path.parents]


def code(text: str) -> str:
    """The text without its strings and comments, each line where it was."""
    lines = [list(line) for line in text.splitlines(keepends=True)]
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in TEXTS:
            (row, start), (last, end) = token.start, token.end
            for n in range(row - 1, last):
                for k in range(start if n == row - 1 else 0, end if n == last - 1 else len(lines[n]) - 1):
                    lines[n][k] = " "
    return "".join(map("".join, lines))


def found(text: str, operators: bool) -> Iterator[str]:
    """What is private; operators of torch's, which rows of the table may name, are left out where `operators`."""
    inside, anywhere = names_of_torch()
    for number, (line, written) in enumerate(zip(code(text).splitlines(), text.splitlines(), strict=True), 1):
        for match in PRIVATE.finditer(line):
            name = match["name"]
            if not (operators and name and (name == "_VF" or name in OPERATORS)):
                yield f"{number}: {match[0].strip()}"
        for match in ATTRIBUTE.finditer(line):
            name = match[1]
            if name in anywhere and not (operators and (name in OPERATORS - METHODS or name in ("_C", "_VF"))):
                yield f"{number}: {match[0]}"
        for match in TEXT.finditer(written):
            name = match[1]
            if name in inside and name not in OPERATORS - METHODS:
                yield f"{number}: {match[0]}"


def test_no_private_name_stands_outside() -> None:
    wrong = {}
    for path in sources():
        seen = list(found(path.read_text(encoding="utf-8"), ROOT / "ops" in path.parents))
        if seen:
            wrong[str(path.relative_to(path.parents[1]))] = seen
    assert not wrong


@pytest.mark.parametrize("line", [
    "x = torch._C.is_grad_enabled()", "torch.utils._pytree.tree_map(f, x)", "from torch._ops import OpOverload",
    "import torch._dynamo", "from torch.overrides import BaseTorchFunctionMode, _pop_mode",
    "cdef extern _PyObject_Vectorcall", "ctypes.pythonapi.Py_AddPendingCall", "f(private.functorch._add_batch_dim)",
    "t._version", "base = t._base", "t.untyped_storage()._cdata", "node._sequence_nr()", "module._call_impl",
    "forward_ad._current_level", "names['_parameters']", 'hasattr(node, "_input_metadata")',
    "modules._global_forward_hooks", "get = base.__dict__['_version']", "checkpoint._make_saved_tensor"])
def test_each_kind_is_seen(line: str) -> None:
    assert list(found(line, False))


@pytest.mark.parametrize("line", [
    "torch.__version__", "'torch._C._nn.gelu'", "f(x)  # torch._C", "edge._replace(node=n)",
    "NAMES = {'_reshape_alias'}", "t.__dict__['_node']", "self._own", "from autograd_opt._common import files"])
def test_what_is_public_is_not(line: str) -> None:
    assert not list(found(line, False))
