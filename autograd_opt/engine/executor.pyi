from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from autograd_opt.engine.task import GraphTask
from autograd_opt.graph.node import Node

def run(
    task: GraphTask, roots: list[Node], cotangents: list[Tensor], inputs: Sequence[Node | None] | None,
    accumulate: bool, accumulator: Callable[..., Any] | None,
) -> list[Tensor | None]: ...
def use_native(on: bool) -> bool: ...
