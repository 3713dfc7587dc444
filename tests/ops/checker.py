"""Values, gradients and gradients of gradients of one call, beside torch eager in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

import autograd_opt as ao

Function = Callable[..., Any]
RTOL, ATOL = 1e-7, 1e-9


def differentiable(out: Any) -> list[torch.Tensor]:
    return [t for t in tree_leaves(out) if isinstance(t, torch.Tensor) and t.requires_grad]


def cotangents(tensors: Sequence[torch.Tensor], seed: int) -> list[torch.Tensor]:
    """Fixed numbers of size about 1, one for each element, so that no error cancels."""
    made = []
    for k, t in enumerate(tensors):
        generator = torch.Generator().manual_seed(1000 * seed + k)
        made.append(torch.rand(t.shape, generator=generator, dtype=t.dtype) + 0.5)
    return made


def derivatives(function: Function, inputs: Sequence[torch.Tensor], grad: Function, order: int) -> list[list[Any]]:
    """[outputs, first gradients, second gradients], computed with `grad`."""
    leaves = [t for t in inputs if isinstance(t, torch.Tensor) and t.requires_grad]
    roots = differentiable(function(*inputs))
    levels: list[list[Any]] = [roots]
    for k in range(1, order + 1):
        if not roots:
            break
        given = [c.requires_grad_(k < order) for c in cotangents(roots, k)]
        found = grad(roots, leaves, given, create_graph=k < order, allow_unused=True)
        levels.append(list(found))
        leaves += given  # as gradgradcheck does: the gradient depends on its cotangent too
        roots = [g for g in found if g is not None and g.requires_grad]
    return [[None if t is None else t.detach().clone() for t in level] for level in levels]


def fresh(inputs: Sequence[Any]) -> list[Any]:
    return [t.detach().clone().requires_grad_(t.requires_grad) if isinstance(t, torch.Tensor) else t for t in inputs]


def assert_same(found: Any, wanted: Any, what: str) -> None:
    """Equal within float64 rounding; a gradient that is absent counts as zero."""
    if found is None or wanted is None:
        other = wanted if found is None else found
        assert other is None or not bool(other.any()), f"{what}: one side has no gradient, the other is not zero"
        return
    assert found.shape == wanted.shape, f"{what}: shape {tuple(found.shape)}, torch has {tuple(wanted.shape)}"
    assert found.dtype == wanted.dtype, f"{what}: dtype {found.dtype}, torch has {wanted.dtype}"
    if not torch.allclose(found, wanted, rtol=RTOL, atol=ATOL, equal_nan=True):
        error = (found - wanted).abs()
        raise AssertionError(f"{what}: {found} differs from torch's {wanted} by up to {error.max():.3g}")


def check(function: Function, inputs: Sequence[Any], order: int = 2, optimize: bool = False,
          seen: set[tuple[str, str]] | None = None) -> None:
    """Compare with torch eager; adds to `seen` which rule (operator, operand) ran."""
    torch.manual_seed(0)
    wanted = derivatives(function, fresh(inputs), torch.autograd.grad, order)
    torch.manual_seed(0)
    with ao.AutogradGraph(optimize=optimize) as graph:
        found = derivatives(function, fresh(inputs), graph.grad, order)
        if seen is not None:
            seen |= rules_of(graph)
    for level, (mine, theirs) in enumerate(zip(found, wanted, strict=False)):
        assert len(mine) == len(theirs), f"order {level}: {len(mine)} tensors, torch has {len(theirs)}"
        for k, (a, b) in enumerate(zip(mine, theirs, strict=True)):
            assert_same(a, b, f"order {level}, tensor {k}")


def rules_of(graph: Any) -> set[tuple[str, str]]:
    """(operator, operand) for every operand of a recorded node through which a gradient can pass."""
    seen = set()
    for node in graph.tape.snapshot():
        names = node.op.operands
        for k, operand in enumerate(node.operands):
            if operand is not None and operand.requires_grad and node.requires_grad:
                seen.add((node.op.name, names[k] if k < len(names) else "*"))
    return seen
