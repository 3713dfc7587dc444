"""A small transformer, unmodified, trained inside the context; its graph drawn by module.

Next to nothing repeats in a plain transformer, and the report says so: recording then costs a little
time and gains none.  The picture is drawn in blocks, one for each module call.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import autograd_opt as ao

# %%
WORDS = 16


class Reverser(nn.Module):
    """Learns to write a sequence backwards."""

    def __init__(self, width: int = 32, length: int = 8) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, width)
        self.place = nn.Parameter(torch.randn(length, width) * 0.1)
        layer = nn.TransformerEncoderLayer(width, 4, 64, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, WORDS)

    def forward(self, words: Tensor) -> Tensor:
        return self.head(self.encoder(self.embed(words) + self.place))


# %%
def main(arguments: list[str] | None = None) -> tuple[float, float]:
    """Train; returns the first and the last loss."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--picture", type=Path, help="write the graph of one step here (.svg, .png, .mmd)")
    options = parser.parse_args(arguments)
    torch.manual_seed(0)
    model = Reverser()
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    losses: list[float] = []
    for step in range(options.steps):
        words = torch.randint(0, WORDS, (32, 8))
        optimizer.zero_grad()
        with ao.AutogradGraph(optimize=True, name="transformer") as graph:
            if step == 0:
                graph.follow(model)
            loss = F.cross_entropy(model(words).flatten(0, 1), words.flip(1).flatten())
            if step == 0:
                report = graph.report(loss)
                print(f"{report.nodes[0]} nodes, {report.merged} merged, {report.reused} calls not run again")
                if options.picture:
                    graph.draw(options.picture)
            loss.backward()
            losses.append(loss.item())
        optimizer.step()
    print(f"loss {losses[0]:.3f} → {losses[-1]:.3f}")
    return losses[0], losses[-1]


if __name__ == "__main__":
    main()

# %% [notebook]
# first, last = main(["--steps", "60"])
# %% [markdown]
# ## The graph, by module
#
# More than 60 nodes are drawn in blocks, one for each module call; `graph.follow(model)` tells their names.
# %% [notebook]
# from IPython.display import SVG
#
# model = Reverser()
# words = torch.randint(0, WORDS, (4, 8))
# with ao.AutogradGraph(optimize=True, name="transformer") as graph:
#     graph.follow(model)
#     loss = F.cross_entropy(model(words).flatten(0, 1), words.flip(1).flatten())
#     picture = graph.draw()
# SVG(picture)
