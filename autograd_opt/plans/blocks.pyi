"""Stretches of elementwise steps, run block by block without tensors between them."""

from typing import Any

from typing_extensions import disjoint_base

NAMES: dict[str, int]
SOURCES: dict[str, int]
AXES: int

def install(floats: dict[str, int], doubles: dict[str, int]) -> None: ...
def available(name: str) -> bool: ...

@disjoint_base
class Stretch:
    operands: tuple[int, ...]
    results: tuple[int, ...]
    def __new__(
        cls,
        steps: list[tuple[Any, ...]],
        places: list[tuple[str, tuple[int, ...], tuple[int, ...]]],
        total: int,
        width: int,
    ) -> Stretch: ...
    def point(self, place: int, address: int) -> int: ...
    def set_number(self, place: int, value: float) -> int: ...
    def run(self) -> int: ...
