"""Views that torch composes of others, while a dispatch mode is on: they follow their base as without one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from autograd_opt.graph import thread_state
from tests.differential import compare

X = torch.arange(1.0, 13.0, dtype=torch.float64).reshape(2, 6)


class Passing(TorchDispatchMode):
    """A dispatch mode that only looks."""

    def __torch_dispatch__(self, f: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return f(*args, **(kwargs or {}))


VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "reshape": lambda w: w.reshape(3, 4), "T": lambda w: w.T, "mT": lambda w: w.mT, "H": lambda w: w.H,
    "view_as": lambda w: w.view_as(torch.zeros(6, 2)), "ravel": lambda w: w.ravel(), "flatten": lambda w: w.flatten(),
    "movedim": lambda w: w.movedim(0, 1), "swapaxes": lambda w: w.swapaxes(0, 1),
    "unflatten": lambda w: w.unflatten(1, (2, 3)),
    "hsplit": lambda w: w.hsplit(2)[1], "vsplit": lambda w: w.vsplit(2)[1],
    "tensor_split": lambda w: w.tensor_split(2, 1)[0],
    "narrow": lambda w: w.narrow(0, 1, 1), "expand_as": lambda w: w[:, :1].expand_as(torch.zeros(2, 6)),
    "broadcast_to": lambda w: w.broadcast_to((2, 2, 6)), "atleast_3d": torch.atleast_3d,
    "adjoint": lambda w: w.adjoint(),
    "slice": lambda w: w[:, 1:3], "select": lambda w: w[0], "diagonal": lambda w: w.diagonal(),
    "two": lambda w: w.reshape(3, 4).T.reshape(4, 3), "contiguous": lambda w: w.contiguous(),
    "to": lambda w: w.to(w.dtype),
}


@pytest.mark.parametrize("mode", [Passing, None])
@pytest.mark.parametrize("name", VIEWS)
def test_a_view_follows_its_base(name: str, mode: type[TorchDispatchMode] | None) -> None:
    def program(x: Tensor) -> Tensor:
        w = x * 2
        part = VIEWS[name](w)
        w.clamp_(3, 9)
        assert part is w or part._is_view()
        return part * torch.arange(1.0, part.numel() + 1, dtype=part.dtype).reshape(part.shape)

    def under_a_mode(x: Tensor) -> Tensor:
        if mode is None or thread_state.get_recording() is None:
            return program(x)
        with mode():
            return program(x)
    compare(under_a_mode, X)


@pytest.mark.parametrize("name", VIEWS)
def test_a_base_follows_its_view(name: str) -> None:
    def program(x: Tensor) -> Tensor:
        w = x * 2
        part = VIEWS[name](w)
        if not torch._debug_has_internal_overlap(part):
            part.mul_(3)
        return w * w

    def under_a_mode(x: Tensor) -> Tensor:
        if thread_state.get_recording() is None:
            return program(x)
        with Passing():
            return program(x)
    compare(under_a_mode, X)
