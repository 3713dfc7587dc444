"""Common subexpression elimination, step by step, on a graph small enough to read.

Run it and read along: the program as recorded, what each pass decides and why, the program
that is left, a near miss with its reason, and the proof.
"""

from __future__ import annotations

import autograd_opt as ao
from autograd_opt import optimize


def main() -> None:
    """Print the steps."""
    x, y = ao.tensor([1.0, 2.0]), ao.tensor([3.0, 4.0])
    with ao.AutogradGraph(optimize=True, name="lesson") as graph:
        a = (x + y) * x
        b = x * (y + x)                  # the same: + and * commute, bit for bit
        c = (x + y) * 2
        c.retain_grad()                  # someone wants to see this node's own cotangent
        d = (x + y) * 2
        loss = (a + b + c + d).sum()

        print("1. As recorded, one line an operation:\n")
        print(graph)

        print("\n2. What the passes decide, on integers alone:\n")
        table, result = optimize.run_passes(graph.tape, graph.root_numbers(loss), graph.pipeline)
        print("   node   ", *(f"{i:3d}" for i in range(len(table))))
        print("   leader ", *(f"{i:3d}" for i in result.leader))
        print("   alive  ", *(f"{i:3d}" for i in result.alive))
        for merge in result.certificate():
            print(f"   %{merge.node} is %{merge.leader}, found by {merge.reason}")

        print("\n3. What is left:\n")
        for node in graph.to_dict(optimized=True)["nodes"]:
            operands = ", ".join(f"%{o}" for o in node["operands"] if o is not None)
            print(f"   %{node['index']} {node['op']}({operands})")

        print("\n4. Why two products stay two:\n")
        print(graph.explain(c, d))

        print("\n5. Is the gradient still the same?\n")
        print(graph.verify(loss))

        loss.backward()
    print("\n6. The gradients:", x.grad, y.grad)


if __name__ == "__main__":
    main()
