"""Run the steps of a plan, and find out whether a call is of the kind that it was made for."""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from typing_extensions import disjoint_base

from autograd_opt.plans.blocks import Stretch

@disjoint_base
class Numbers:
    def __new__(cls, numbers: Collection[int]) -> Numbers: ...

@disjoint_base
class Kernel:
    def __init__(
        self,
        function: Any,
        template: tuple[Any, ...],
        places: tuple[int, ...],
        values: list[int],
        lists: tuple[tuple[int, tuple[int, ...]], ...],
        kwargs: dict[str, Any] | None,
        build: Callable[[list[torch.Tensor]], Any] | None,
        outs: list[int],
        frees: list[int],
    ) -> None: ...

@disjoint_base
class Elementwise:
    def __init__(
        self,
        stretch: Stretch,
        operands: dict[int, int],
        results: list[tuple[int, int, Callable[[], torch.Tensor]]],
        frees: list[int],
    ) -> None: ...

@disjoint_base
class Move:
    def __new__(
        cls,
        regions: list[tuple[int, tuple[int, ...], int, tuple[int, ...], int, tuple[int, ...]]],
        addresses: list[int],
        operands: dict[int, int],
        result: tuple[int, Callable[[], torch.Tensor]] | None,
        width: int,
        size: int,
        fill: bytes | None,
        frees: list[int],
    ) -> Move: ...

@disjoint_base
class TensorGuard:
    def __init__(self, t: torch.Tensor, gradients: bool = ...) -> None: ...

@disjoint_base
class Guard:
    def __init__(
        self, leaves: list[Any], structure: Any, held: list[torch.Tensor], entries: Sequence[tuple[Any, Any, Any]]
    ) -> None: ...
    def holds(self, leaves: list[Any], structure: Any) -> bool: ...

MISSING: object

def run(steps: list[Any], values: list[Any]) -> None: ...
def unchanged(entries: Sequence[tuple[Any, Any, Any]]) -> bool: ...
