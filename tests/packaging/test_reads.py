"""Every compiled module that asks what a tensor is sets where the answers come from, or it would crash when it asks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import autograd_opt

PACKAGE = Path(autograd_opt.__file__).parent
HEADERS = [PACKAGE / "abi" / name for name in ("cpython.h", "torch_tensor.h")]
MODULES = [path for path in sorted(PACKAGE.rglob("*.pyx")) if path != PACKAGE / "abi" / "tensor_info.pyx"]
WORD = re.compile(r"\b[A-Za-z_]\w*\b")


def c_functions() -> dict[str, str]:
    """Name -> text of every function and macro in C of the headers."""
    text = "".join(header.read_text() for header in HEADERS)
    parts = re.split(r"^static (?=[^;{]*\()", text, flags=re.MULTILINE)[1:]
    functions = {found[1]: part for part in parts if (found := re.search(r"\b(ao_\w+)\(", part))}
    return {**dict(re.findall(r"^ *#define (\w+)\(\w+\)(.*)$", text, flags=re.MULTILINE)), **functions}


def inline_functions() -> dict[str, str]:
    """Name -> text of every inline function that a `.pxd` gives to whoever cimports it."""
    found = {}
    for path in PACKAGE.rglob("*.pxd"):
        for part in re.split(r"^cdef inline ", path.read_text(), flags=re.MULTILINE)[1:]:
            found[re.search(r"(\w+)\(", part)[1]] = re.split(r"\n(?=\S)", part)[0]  # type: ignore[index]
    return found


def asking() -> set[str]:
    """The functions that ask by way of the table, or call one that does."""
    texts = {**inline_functions(), **c_functions()}
    found = {name for name, text in texts.items() if "ao_r->" in text}
    while True:
        more = {name for name, text in texts.items() if name not in found and found & set(WORD.findall(text))}
        if not more:
            return found
        found |= more


ASKING = asking()


def test_the_questions_are_found():
    assert {"ao_dtype", "ao_plain", "ao_is_view", "ao_mode_count", "tracked", "follows"} <= ASKING
    assert not {"ao_method", "ao_use_reads", "ordinary", "held_node"} & ASKING


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_that_asks_sets_the_table(path):
    text = path.read_text()
    names = " ".join(re.findall(r"^from [\w.]+ cimport (\([^)]*\)|.*)$", text, flags=re.MULTILINE))
    asked = ASKING & set(WORD.findall(names))
    assert not asked or "\nao_use_reads(reads_address())\n" in text, f"{path.name} asks {sorted(asked)}"
