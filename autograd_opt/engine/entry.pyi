from collections.abc import Callable
from typing import Any

from torch import Tensor

from autograd_opt.graph.node import Node
from autograd_opt.graph.tape import Tape

def backward_usual(t: Tensor) -> bool: ...
def grad_usual(
    outputs: Any, inputs: Any, given: Any, retain: Any, create_graph: bool, allow_unused: bool,
) -> tuple[Tensor | None, ...] | None: ...
def install_entry(
    accumulate: Callable[..., None], ones: Callable[..., Tensor], memory: Callable[..., Any],
    missing: Callable[[int], Exception],
) -> None: ...
def run_for_torch(
    tape: Tape, roots: list[Node], cotangents: list[Tensor], targets: list[Node], retain: bool, onward: bool,
) -> list[Tensor | None] | None: ...
def spared(results: list[Tensor | None], cotangents: list[Tensor], recorded: bool) -> bool: ...
def too_deep() -> bool: ...
