from collections.abc import Sequence
from types import ModuleType
from typing import Any

from autograd_opt.graph.structure import Structure

def loose_numbers(nodes: list[Any], leader: Sequence[int]) -> bytearray | None: ...
def seen_by_proofs(
    nodes: list[Any], roots: Any, leaves: Any, led: bool, reading: ModuleType, loose: bytearray | None = None
) -> tuple[Structure, tuple[Any, ...]] | None: ...
