"""Common subexpression elimination, step by step, on a graph small enough to read.

The program as recorded, what each pass decides and why, the program that is left, a near miss
with its reason, and the proof.
"""

from __future__ import annotations

from typing import Any

import autograd_opt as ao
from autograd_opt.optimizer import merging


# %% [markdown]
# ## The program
#
# `b` is `a` with operands swapped; `c` and `d` are the same expression, but someone wants to see `c`'s own cotangent.
# %%
def program(x: Any, y: Any) -> tuple[Any, Any, Any]:
    """The sum, and two products that look the same."""
    a = (x + y) * x
    b = x * (y + x)                  # the same: + and * commute, bit for bit
    c = (x + y) * 2
    c.retain_grad()                  # someone wants to see this node's own cotangent
    d = (x + y) * 2
    return (a + b + c + d).sum(), c, d


# %% [markdown]
# ## What the passes see and decide
#
# Passes see integers: for each node its key and operands. `leader` names the node that computes a node's value; `alive`
# says whether anyone needs it.
# %%
def show_decisions(graph: ao.AutogradGraph, loss: Any) -> None:
    """`leader` and `alive`, and for each merge which pass found it."""
    table, result = merging.run_passes(graph.tape, graph.root_numbers(loss), graph.pipeline)
    print("   node   ", *(f"{i:3d}" for i in range(len(table))))
    print("   leader ", *(f"{i:3d}" for i in result.leader))
    print("   alive  ", *(f"{i:3d}" for i in result.alive))
    for merge in result.certificate():
        print(f"   %{merge.node} is %{merge.leader}, found by {merge.reason}")


# %%
def main() -> None:
    """Print the steps."""
    x, y = ao.tensor([1.0, 2.0]), ao.tensor([3.0, 4.0])
    with ao.AutogradGraph(optimize=True, name="lesson") as graph:
        loss, c, d = program(x, y)
        print("1. As recorded, one line an operation:\n")
        print(graph)

        print("\n2. What the passes decide, on integers alone:\n")
        show_decisions(graph, loss)

        print("\n3. What is left:\n")
        for node in graph.to_dict(optimized=True)["nodes"]:
            print(f"   %{node['index']} = {node['expression']}")

        print("\n4. Why two products stay two:\n")
        print(graph.explain(c, d))

        print("\n5. Is the gradient still the same?\n")
        print(graph.verify(loss))

        loss.backward()
    print("\n6. The gradients:", x.grad, y.grad)


if __name__ == "__main__":
    main()

# %% [notebook]
# main()
# %% [markdown]
# ## The same as a picture
#
# Left as written, right what the passes leave. A colour is a value; the dashed nodes on the left are led to the first
# node of their colour; the hexagon is pinned.
# %% [notebook]
# from IPython.display import SVG
#
# x, y = ao.tensor([1.0, 2.0]), ao.tensor([3.0, 4.0])
# with ao.AutogradGraph(optimize=True, name="lesson") as graph:
#     loss, c, d = program(x, y)
#     picture = ao.draw_comparison(graph)
# SVG(picture)
