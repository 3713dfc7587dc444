"""Notebooks out of the example scripts: `python scripts/notebooks.py [NAME]...` writes and runs them.

The script is the source.  Its docstring is the notebook's head, and comments divide it:

    # %%                a cell of code
    # %% [markdown]     a cell of text, in comments
    # %% [notebook]     a cell of code for the notebook alone, in comments: pictures, plots

What stands under `if __name__ == "__main__":` is the script's alone.  `--check` runs nothing and
leaves with 1 where a notebook's cells are not its script's.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SCRIPTS, NOTEBOOKS = ROOT / "examples", ROOT / "examples" / "notebooks"
MARK = re.compile(r"^# %%(?: \[(\w+)\])?$")
SECONDS = 300
"""Limit for one cell."""
Cell = tuple[str, str]


def cells_of(script: str) -> list[Cell]:
    """(markdown or code, text) of every cell.

    >>> cells_of('\"\"\"Title.\\n\\nText.\\n\"\"\"\\nx = 1\\n# %% [markdown]\\n# More.\\n')
    [('markdown', '# Title\\n\\nText.'), ('code', 'x = 1'), ('markdown', 'More.')]
    """
    tree = ast.parse(script)
    title, _, text = (ast.get_docstring(tree) or "").partition("\n")
    head = f"# {title.rstrip('.')}\n\n{literal_blocks(text.strip())}".strip()
    rest = script.splitlines()[tree.body[0].end_lineno or 0:]
    found = [("markdown", head), *((kind, text) for kind, text in divided(rest) if text)]
    return [("code" if kind == "notebook" else kind, text) for kind, text in found if kind != "script"]


def literal_blocks(text: str) -> str:
    """The indented lines of a docstring, as a fenced block of Markdown."""
    return re.sub(r"(?:^    .*\n?)+", lambda m: "```text\n" + re.sub("(?m)^    ", "", m.group()).rstrip() + "\n```\n",
                  text, flags=re.MULTILINE)


def divided(lines: list[str]) -> Iterator[Cell]:
    """Kind and text of every marked part, comment signs taken off where the part is a comment."""
    kind, part = "code", list[str]()
    for line in [*lines, "# %%"]:
        mark = MARK.match(line)
        main = line.startswith("if __name__ ==")
        if not mark and not main:
            part.append(line)
            continue
        if kind in ("markdown", "notebook"):
            part = [re.sub("^# ?", "", one) for one in part]
        yield kind, "\n".join(part).strip("\n")
        kind, part = ("script" if main else mark.group(1) or "code" if mark else kind), []


def notebook_of(script: Path) -> dict[str, Any]:
    """The notebook of a script, not run yet."""
    cells = []
    for k, (kind, text) in enumerate(cells_of(script.read_text(encoding="utf-8"))):
        cell: dict[str, Any] = {"cell_type": kind, "id": f"cell-{k}", "metadata": {}, "source": text.splitlines(True)}
        if kind == "code":
            cell |= {"execution_count": None, "outputs": []}
        cells.append(cell)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": cells, "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
            "nbformat": 4, "nbformat_minor": 5}


def run(notebook: dict[str, Any]) -> dict[str, Any]:
    """Run every cell in a kernel of its own; an error in one is raised."""
    import nbformat
    from nbclient import NotebookClient
    loaded = nbformat.reads(json.dumps(notebook), as_version=4)
    client = NotebookClient(loaded, timeout=SECONDS, resources={"metadata": {"path": str(SCRIPTS)}})
    client.execute(env={**os.environ, "OMP_NUM_THREADS": "1"})       # on small tensors more threads only cost
    for cell in loaded.cells:
        cell.metadata.pop("execution", None)         # times of the run
    loaded.metadata.pop("language_info", None)
    return dict(json.loads(nbformat.writes(loaded)))


def sources(notebook: dict[str, Any]) -> list[Cell]:
    """Kind and text of a notebook's cells."""
    return [(cell["cell_type"], "".join(cell["source"])) for cell in notebook["cells"]]


def main() -> int:
    """Write, or check, the notebooks named, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="examples; default: all")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    stale = []
    for script in sorted(SCRIPTS.glob("*.py")):
        if options.names and script.stem not in options.names:
            continue
        path = NOTEBOOKS / f"{script.stem}.ipynb"
        if options.check:
            if not path.exists() or sources(json.loads(path.read_text("utf-8"))) != sources(notebook_of(script)):
                stale.append(path.name)
            continue
        text = json.dumps(run(notebook_of(script)), indent=1, ensure_ascii=False) + "\n"
        NOTEBOOKS.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(f"{path.relative_to(ROOT)}: {len(text) / 1024:.0f} KiB")
    if stale:
        print(f"not what their scripts say: {', '.join(stale)}; run python scripts/notebooks.py", file=sys.stderr)
    return bool(stale)


if __name__ == "__main__":
    sys.exit(main())
