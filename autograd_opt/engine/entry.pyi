from collections.abc import Callable
from typing import Any

from torch import Tensor

def backward_usual(t: Tensor) -> bool: ...
def grad_usual(
    outputs: Any, inputs: Any, given: Any, retain: Any, allow_unused: bool,
) -> tuple[Tensor | None, ...] | None: ...
def install_entry(
    accumulate: Callable[..., None], ones: Callable[..., Tensor], memory: Callable[..., Any],
    missing: Callable[[int], Exception],
) -> None: ...
