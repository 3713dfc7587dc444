"""Pictures of results: one style, PNG, readable in black and white."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Points = Sequence[tuple[float, float]]
STYLES = {
    "autograd_opt": ("#c0392b", "o", "-"),
    "torch eager": ("#222222", "s", "-"),
}
"""Colour, marker and line of names that mean the same in every picture."""
REST = [("#2471a3", "^", "--"), ("#b9770e", "v", "--"), ("#1e8449", "D", "--"), ("#7d3c98", "P", "--"),
        ("#707b7c", "X", ":"), ("#17a589", "<", ":"), ("#d35400", ">", ":"), ("#e377c2", "*", ":"),
        ("#8d6e63", "p", "-."), ("#9e9d24", "h", "-.")]


def styles(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """How each line is drawn; other names take colours in their order."""
    free = iter(REST * (1 + len(names) // len(REST)))
    out = {}
    for name in names:
        colour, marker, line = STYLES[name] if name in STYLES else next(free)
        out[name] = {"color": colour, "marker": marker, "linestyle": line, "markersize": 4,
                     "linewidth": 2 if name in STYLES else 1.3}
    return out


def save_panels(
    path: Path, panels: Mapping[str, Mapping[str, Points]], x: str, y: str, title: str, *, logarithmic: bool = False
) -> list[Path]:
    """One small plot for each panel with the same axes, one legend for all."""
    if not panels:
        return []
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = min(2 if len(panels) <= 4 else 3, len(panels))
    rows = -(-len(panels) // columns)
    names = list(dict.fromkeys(name for lines in panels.values() for name in lines))
    style = styles(names)
    legend = 0.3 * -(-len(names) // (2 * columns))
    figure = Figure(figsize=(5.0 * columns, 3.0 * rows + 0.6 + legend), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, sharex=logarithmic, sharey=logarithmic, squeeze=False)
    for axis, (panel, lines) in zip(axes.flat, panels.items(), strict=False):
        for name, points in lines.items():
            drawn = [(a, b) for a, b in points if b > 0 or not logarithmic]     # 0: shorter than the clock tells
            if drawn:
                axis.plot(*zip(*drawn, strict=True), label=name, **style[name])
        axis.set_title(panel, fontsize=10)
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
        if logarithmic:
            axis.set_xscale("log")
            axis.set_yscale("log")
    for axis in list(axes.flat)[len(panels):]:
        axis.set_visible(False)
    for axis in list(axes.flat)[:len(panels)][-columns:]:           # the lowest of each column
        axis.set_xlabel(x, fontsize=10)
        axis.tick_params(labelbottom=True)
    figure.supylabel(y, fontsize=10)
    figure.suptitle(title, fontsize=12)
    from matplotlib.lines import Line2D
    handles = [Line2D([], [], label=name, **style[name]) for name in names]
    figure.legend(handles=handles, loc="outside lower center", ncols=min(2 * columns, len(names)), fontsize=9,
                  frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    return [path]


def save_bars(path: Path, groups: Mapping[str, Mapping[str, float]], x: str, title: str,
              line: float | None = None) -> list[Path]:
    """Horizontal bars from zero, a group for each name."""
    if not groups:
        return []
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(name for bars in groups.values() for name in bars))
    style = styles(names)
    height = 0.8 / len(names)
    figure = Figure(figsize=(8, 1.5 + 0.22 * len(names) * len(groups)), layout="constrained")
    FigureCanvasAgg(figure)
    axis = figure.subplots()
    for k, name in enumerate(names):
        found = [(i, bars[name]) for i, bars in enumerate(groups.values()) if name in bars]
        axis.barh([i + (k - (len(names) - 1) / 2) * height for i, _ in found], [v for _, v in found], height,
                  label=name, color=style[name]["color"])
    axis.set_yticks(range(len(groups)), list(groups))
    axis.invert_yaxis()
    axis.set_xlabel(x)
    if line is not None:
        axis.axvline(line, color="#222222", linewidth=1)
    axis.grid(axis="x", alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    axis.set_title(title, fontsize=12)
    figure.legend(loc="outside lower center", ncols=min(5, len(names)), fontsize=9, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    return [path]
