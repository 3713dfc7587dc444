"""Fill the figures of README and docs from docs/results: `python scripts/figures.py`.

A figure stands between two comments, which no renderer shows:

    <!--figure times/mechanics/kernels/torch eager-->7,387<!--/figure-->

names a section, a row, and the keys of the figure in the row's JSON.  A dict of counts is summed, `…|.1f`
sets another format, and `a ÷ b` is a quotient.  A table stands between

    <!--table times/Bars only=chain,mlp-->
    <!--/table-->

and is named by section and title; `only=` selects the lines whose first cell begins with one of the words.
The command that measured it is written below.  `<!--summary gain-->` … `<!--/summary-->` holds
one of `SUMMARIES`, in words that need no other page.  `<!--picture cse-->` … `<!--/picture-->` holds the
plot of a section.  `--check` writes nothing, and fails if a page and the results disagree.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from autograd_opt.benchmarks import summary
from autograd_opt.benchmarks.section import Grid
from autograd_opt.benchmarks.sections import SECTIONS
from autograd_opt.benchmarks.show import table
from autograd_opt.benchmarks.tables import older, tables, unfinished, unmeasured

CHECKOUT = Path(__file__).resolve().parent.parent
FIGURE = re.compile(r"<!--figure (?P<what>[^>]+?)-->(?P<now>.*?)<!--/figure-->", re.DOTALL)
TABLE = re.compile(r"<!--table (?P<section>\w+)/(?P<title>.+?)(?: only=(?P<only>.+?))?-->\n(?P<now>.*?)<!--/table-->",
                   re.DOTALL)
PICTURE = re.compile(r"<!--picture (?P<name>\w+)-->\n(?P<now>.*?)<!--/picture-->", re.DOTALL)
SUMMARY = re.compile(r"<!--summary (?P<name>\w+)-->\n(?P<now>.*?)<!--/summary-->", re.DOTALL)
GAIN = {
    "mechanics": "double pendulum, formulas and Jacobian from sympy",
    "sharing 0.9": "elementwise work, nine tenths of it repeated",
    "population 10,000": "symbolic regression, 64 trees of one population",
    "pinn_navier_stokes": "physics-informed network, Navier–Stokes",
    "gp": "Gaussian-process likelihood, written plainly",
}
"""Workloads that repeat work, by their names in the tables."""
PLAIN = {"mlp": "an MLP", "cnn": "a CNN", "transformer": "a transformer", "lstm": "an LSTM"}
"""Unmodified networks, which repeat no work."""
WHOLE = {"world": "training steps of public packages", "algorithms": "whole programs of many kinds, written plainly"}
"""Sections whose programs were not chosen for repeated work."""


def results(folder: Path, section: str) -> dict[str, Any]:
    """Read the conditions and rows of a section."""
    path = folder / f"{section}.json"
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing: run `python -m benchmarks {section}`")
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def value(folder: Path, path: str) -> float:
    """Find the number at `section/row/…`."""
    section, name, *rest = path.strip().split("/")
    rows = {row["name"]: row for row in results(folder, section)["rows"]}
    found: Any = rows[name]
    for key in rest:
        found = found[int(key)] if isinstance(found, list) else found[key]
    return sum(found.values()) if isinstance(found, dict) else found


def figure(folder: Path, what: str) -> str:
    """Format a figure.

    Raises
    ------
    KeyError
        If the results have no such row or entry.
    """
    path, _, form = what.partition("|")
    try:
        parts = [value(folder, part) for part in path.split("÷")]
    except (KeyError, IndexError) as error:
        raise KeyError(f"no figure {what!r} in {folder}: {error}") from error
    number = parts[0] / parts[1] if len(parts) == 2 else parts[0]
    return format(number, form or (",d" if isinstance(number, int) else ".2f"))


def filled_table(folder: Path, section: str, title: str, only: str | None) -> str:
    """Format a table of a section, with the command that measured it below."""
    try:
        found = results(folder, section)
        grid = next(grid for grid in tables(SECTIONS[section], found["rows"]) if grid.title == title)
    except (FileNotFoundError, StopIteration):
        return f"\nNot measured yet: `python -m benchmarks {section}`.\n"
    if only:
        words = tuple(only.split(","))
        lines = [line for line in grid.lines if line[0].startswith(words)]
        grid = Grid(grid.title, grid.headings, lines, grid.caption)
    rows = found["rows"]
    left_out = [*unmeasured(SECTIONS[section], rows), *unfinished(rows), *older(rows, found["conditions"])]
    return "\n".join(["", *table(grid), "", *([grid.caption] if grid.caption else []), measured_by(found),
                      *([] if only else left_out), ""])


def measured_by(found: dict[str, Any]) -> str:
    """Name the command that wrote the results, its date, torch and processor."""
    about = found["conditions"]
    return (f"Measured by `{about['command']}`, {about['date']}, torch {about['torch']}, {about['processor']}, "
            f"threads: {about['threads']}.")


def gain(folder: Path) -> str:
    """Format the table of steps that repeat work; its last lines are the medians of other programs."""
    ways = [f"kernels/{way}" for way in ("torch eager", "optimize=True")] + ["times/optimize=True/ratio"]
    lines = [[text, *(figure(folder, f"times/{name}/{way}") for way in ways)] for name, text in GAIN.items()]
    others = [[f"median of {len(found)} {text}", "", "", f"{statistics.median(found):.2f}"]
              for section, text in WHOLE.items() if (found := ratios(folder, section))]
    lines += others
    headings = ("one step, forward and backward", "kernels in torch eager", "here", "time, torch eager = 1")
    measured = measured_by(results(folder, "times"))
    if others:
        dates = [f"`python -m benchmarks {section}`, {results(folder, section)['conditions']['date']}"
                 for section in WHOLE if ratios(folder, section)]
        measured += f" The medians: {'; '.join(dates)}."
    return "\n".join([*table(Grid("", headings, lines)), "", measured, ""])


def plain(folder: Path) -> str:
    """Say in a sentence what a step costs in networks that repeat no work."""
    parts = [f"{figure(folder, f'times/{name}/times/optimize=True/ratio')} in {text}" for name, text in PLAIN.items()]
    return f"Time of one step, torch eager = 1: {', '.join(parts)}.\n"


def ratios(folder: Path, section: str) -> list[float]:
    """Sort the times of a section's programs, torch eager = 1; empty where it was not measured."""
    if not (folder / f"{section}.json").exists():
        return []
    return sorted(row["times"]["optimize=True"]["ratio"] for row in results(folder, section)["rows"] if "times" in row)


def whole(folder: Path) -> str:
    """Format the median, best and worst time of programs that were not chosen for repeated work."""
    lines, measured = [], []
    for section, text in WHOLE.items():
        times = ratios(folder, section)
        if not times:
            continue
        found = results(folder, section)
        lines.append([f"{len(times)} {text}", *(f"{t:.2f}" for t in (statistics.median(times), times[0], times[-1]))])
        failed = sum("error" in row for row in found["rows"])
        measured.append(measured_by(found) + (f" {failed} more failed to import or run." if failed else ""))
    return "\n".join([*table(Grid("", ("time, torch eager = 1", "median", "best", "worst"), lines)), "", *measured, ""])


def bars(folder: Path) -> str:
    """List every bar of every section, and what was not measured."""
    return "\n".join(["", *summary.lines_of(folder), ""])


SUMMARIES: dict[str, Callable[[Path], str]] = {"gain": gain, "plain": plain, "whole": whole, "bars": bars}


def picture(folder: Path, name: str) -> str:
    """Link the plot of a section, if there is one."""
    title = SECTIONS[name].title
    return f"![{title}](results/{name}.png)\n" if (folder / f"{name}.png").exists() else ""


def filled(text: str, folder: Path) -> str:
    """Fill every figure, table, picture and summary of a page."""
    text = FIGURE.sub(lambda m: f"<!--figure {m['what']}-->{figure(folder, m['what'])}<!--/figure-->", text)
    text = PICTURE.sub(lambda m: f"<!--picture {m['name']}-->\n{picture(folder, m['name'])}<!--/picture-->", text)
    text = SUMMARY.sub(lambda m: f"<!--summary {m['name']}-->\n{SUMMARIES[m['name']](folder)}<!--/summary-->", text)
    return TABLE.sub(lambda m: m[0][: m.start("now") - m.start()]
                     + filled_table(folder, m["section"], m["title"], m["only"]) + "<!--/table-->", text)


def pages(root: Path = CHECKOUT) -> list[Path]:
    """List README and the pages of the documentation, without the results themselves."""
    return [root / "README.md", *sorted((root / "docs").glob("*.md"))]


def main() -> None:
    """Fill the pages, or with `--check` compare them."""
    parser = argparse.ArgumentParser(description="Fill the figures of README and docs from docs/results.")
    parser.add_argument("--check", action="store_true", help="write nothing, fail where a page disagrees")
    check = parser.parse_args().check
    old = []
    for page in pages():
        text = page.read_text(encoding="utf-8")
        new = filled(text, CHECKOUT / "docs" / "results")
        if new != text:
            old.append(page)
            if not check:
                page.write_text(new, encoding="utf-8")
    for page in old:
        print(f"{'disagrees with docs/results' if check else 'filled'}: {page.relative_to(CHECKOUT)}")
    if check and old:
        sys.exit("run `python scripts/figures.py`")


if __name__ == "__main__":
    main()
