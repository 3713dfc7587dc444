"""Every Python block of the documentation runs, page by page, top to bottom."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from pathlib import Path

import pytest

from autograd_opt.explaining import watch
from tests.docs.loading import ROOT, loaded

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of one language."""
    return [m.group(2) for m in BLOCK.finditer(page.read_text(encoding="utf-8")) if m.group(1) == language]


def script(page: Path) -> str:
    """The page's Python blocks as one script whose line numbers are the page's."""
    lines = []
    inside = False
    for line in page.read_text(encoding="utf-8").splitlines():
        inside = inside and line != "```"
        lines.append(line if inside else "")
        inside = inside or line == "```python"
    return "\n".join(lines) + "\n"


@pytest.mark.filterwarnings("ignore:enable_nested_tensor:UserWarning")
@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "python")], ids=lambda p: p.stem)
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(watch, "FREE", 1e9)       # a busy machine must not end the watching
    file = tmp_path / f"{page.stem}.py"
    file.write_text(script(page), encoding="utf-8")
    printed: dict[int, str] = {}

    def note(*values: object) -> None:
        printed[sys._getframe(1).f_lineno] = " ".join(map(str, values))

    exec(compile(script(page), str(file), "exec"), {"__name__": "documentation", "print": note})
    for line, text in shown(script(page)).items():
        assert " ".join(printed[line].split()).startswith(text), f"{page.name}:{line} prints {printed[line]}"


def shown(program: str) -> dict[int, str]:
    """Line of a `print` -> what the comments beside and below it say of the output, up to an ellipsis.

    A comment beside the print of a whole graph or report describes it.
    """
    found: dict[int, str] = {}
    lines = program.splitlines()
    for number, line in enumerate(lines, 1):
        call = re.match(r"\s*print\((?!graph\)|graph\.report\(\)\))[^#]*?\)\s*(?:# (.*))?$", line)
        if call is None:
            continue
        below = itertools.takewhile(lambda text: text.lstrip().startswith("#"), lines[number:])
        comments = [call[1] or "", *(text.lstrip()[1:] for text in below)]
        if text := " ".join(" ".join(comments).split()):
            found[number] = text.removesuffix("...").rstrip(" ,")
    return found


def test_the_cython_block_is_a_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled, it gives what the built-in pass gives."""
    pytest.importorskip("Cython")
    import sysconfig

    import numpy as np

    from autograd_opt.passes import NodeTable, identity_leaders, prune
    (code,) = blocks(ROOT / "docs" / "adding-a-pass.md", "cython")
    (tmp_path / "my_prune.pyx").write_text(code)
    subprocess.run([sys.executable, "-m", "cython", "-3", "my_prune.pyx"], cwd=tmp_path, check=True)
    library = tmp_path / f"my_prune{sysconfig.get_config_var('EXT_SUFFIX')}"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", f"-I{sysconfig.get_paths()['include']}", "my_prune.c", "-o",
                    str(library)], cwd=tmp_path, check=True)
    module = loaded(str(library))
    table = NodeTable.from_operands([0, 7, 7, 8, 9], [(), (0, 0), (0, 0), (1, 2), (2,)])
    outputs, leader = np.array([3]), identity_leaders(5)
    assert module.prune(table, outputs, leader).tolist() == prune(table, outputs, leader).tolist()


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```|`[^`\n]+`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        if not target.startswith(("http://", "https://")):
            copied = page.parent.parent / "examples" / target      # notebooks, which the build copies
            assert (page.parent / target).exists() or copied.exists(), f"{page.name} links to {target}"


def test_every_page_is_reached_from_the_index() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    trees = re.findall(r"```\{toctree\}\n(.*?)```", index, re.DOTALL)
    assert re.findall(":caption: (.*)", index) == ["Start", "Guide", "Reference", "Inside"]
    listed = {line.strip() for tree in trees for line in tree.splitlines() if line.strip() and not line.startswith(":")}
    assert {p.stem for p in PAGES} - {"README", "index"} <= listed


def test_the_landing_page_is_short() -> None:
    head = (ROOT / "docs" / "index.md").read_text(encoding="utf-8").partition("```python")[0]
    assert len([line for line in head.splitlines() if line.strip() and not line.startswith("<!--")]) <= 24
