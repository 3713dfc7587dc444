"""Functions that return lists, and several results of which some are views."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import autograd_opt as ao


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("with_setup", [False, True])
def test_a_list_is_returned_as_any_other_object(with_setup: bool, optimize: bool) -> None:
    seen: list[str] = []

    def forward(*arguments: Any) -> Any:
        return [arguments[-1] * 2, arguments[-1] * 3]

    members: dict[str, Any] = {"forward": staticmethod(forward), "backward": staticmethod(lambda ctx, *g: g[0])}
    if with_setup:
        members["setup_context"] = staticmethod(lambda ctx, inputs, output: seen.append(type(output).__name__))
    function = type("Listed", (torch.autograd.Function,), members)

    def program() -> list[Any]:
        result: Any = function.apply(torch.ones(2, requires_grad=True))  # type: ignore[attr-defined]
        return [type(result), [(t.requires_grad, t.grad_fn, t.tolist()) for t in result], list(seen)]

    expected = program()
    seen.clear()
    with ao.AutogradGraph(optimize=optimize):
        assert program() == expected
