"""torch's Python functions that are two operators of the table, recorded without a detour through their bodies."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from autograd_opt.dispatch import decomposed, special
from autograd_opt.ops.table import BINDERS, OPS
from autograd_opt.recorder import apply

LOG_SOFTMAX, NLL = OPS["log_softmax"], OPS["nll_loss"]
bind_log_softmax, bind_nll = BINDERS["log_softmax"], BINDERS["nll_loss"]
NN: Any = torch._C._nn
REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}
cross_entropy_body = decomposed(F.cross_entropy)


def class_indices(input: Any, target: Any, weight: Any = None, size_average: Any = None, ignore_index: int = -100,
                  reduce: Any = None, reduction: str = "mean", label_smoothing: float = 0.0) -> tuple[Any, ...] | None:
    """The arguments of `cross_entropy` where the target is one class for each row of a matrix, else None."""
    if label_smoothing or size_average is not None or reduce is not None or reduction not in REDUCTIONS \
            or input.ndim != 2 or target.ndim != 1 or target.dtype is not torch.int64 \
            or torch._C._is_any_autocast_enabled():
        return None
    return input, target, weight, REDUCTIONS[reduction], ignore_index


@special(F.cross_entropy)
def cross_entropy(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Logarithms of the softmax, then the negative one of each row's class, as torch composes them."""
    with torch._C.DisableTorchFunction():
        try:
            found = class_indices(*args, **kwargs)
        except TypeError:
            found = None
        if found is not None:
            x, target, weight, reduction, ignore_index = found
            operands, attributes = bind_log_softmax(x, 1)
            log_p = apply(LOG_SOFTMAX, torch.log_softmax, (x, 1), {}, operands, attributes)
            given = (log_p, target, weight, reduction, ignore_index)
            operands, attributes = bind_nll(*given)
            return apply(NLL, NN.nll_loss, given, {}, operands, attributes)
    return cross_entropy_body(func, args, kwargs)
