"""Stretches of elementwise steps, run block by block without tensors between them."""

from typing import Any

NAMES: dict[str, int]
SOURCES: dict[str, int]
AXES: int

def install(floats: dict[str, int], doubles: dict[str, int]) -> None: ...
def available(name: str) -> bool: ...

class Stretch:
    operands: tuple[int, ...]
    results: tuple[int, ...]
    def __init__(
        self,
        steps: list[tuple[Any, ...]],
        places: list[tuple[str, tuple[int, ...], tuple[int, ...]]],
        total: int,
        width: int,
    ) -> None: ...
    def point(self, place: int, address: int) -> int: ...
    def run(self) -> int: ...
