"""Private names of torch that differ between its versions, each looked up here and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from autograd_opt._common.environment import parsed

VERSION = parsed(torch.__version__)
"""Major and minor number of the installed torch: a rule that follows its version says since when it holds."""


def function_apply() -> Callable[..., Any]:
    """`torch.autograd.Function.apply`, to be called with the class in front: Python's up to 2.13, C's since."""
    found = vars(torch.autograd.Function)["apply"]
    return found.__func__ if isinstance(found, classmethod) else found


def frame_callback() -> Callable[[Any], Any]:
    """What sets the function by which torch.compile looks at the frames of this thread, and returns the one before."""
    return torch._C._dynamo.eval_frame.set_eval_frame


def not_compiled(function: Callable[..., Any], why: str) -> None:
    """Let torch.compile end its graph at calls of `function`, and say why."""
    function._torchdynamo_disable = True  # type: ignore[attr-defined]
    function._torchdynamo_disable_msg = why  # type: ignore[attr-defined]
