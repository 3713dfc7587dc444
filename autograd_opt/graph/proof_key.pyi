from types import ModuleType
from typing import Any

from autograd_opt.graph.structure import Structure

def seen_by_proofs(
    nodes: list[Any], roots: Any, leaves: Any, led: bool, reading: ModuleType
) -> tuple[Structure, tuple[Any, ...]] | None: ...
