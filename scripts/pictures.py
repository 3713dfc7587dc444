"""Draw the pictures of the documentation: `python scripts/pictures.py`."""

from __future__ import annotations

from pathlib import Path

import autograd_opt as ao
from autograd_opt.inspection.drawing import draw_comparison

FOLDER = Path(__file__).parents[1] / "docs" / "pictures"


def draw(folder: Path) -> None:
    """Write every picture; Graphviz places it, so machines with another version draw it a little differently."""
    folder.mkdir(exist_ok=True)
    t1, t2 = ao.tensor([1.0, 2.0]), ao.tensor([3.0, 4.0])
    with ao.AutogradGraph(optimize=True, name="README", sources=False) as graph:
        c = t1 + t2
        d = (t1 + t2) * c
        loss = d.sum()
        draw_comparison(graph, folder / "first.svg")
        del loss
    z = ao.tensor([1.0, -1.0])
    with ao.AutogradGraph(optimize=True, name="guide", sources=False) as graph:
        h = (z * 2).exp()
        k = (z * 2).sin()
        k.retain_grad()
        dropped = h * 3
        del dropped
        loss = (h + (z * 2).exp() + k).sum()
        draw_comparison(graph, folder / "comparison.svg")
        del loss


if __name__ == "__main__":
    draw(FOLDER)
