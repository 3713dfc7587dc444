"""Rules: calls that copy or cast values, or change how they lie in memory."""

from __future__ import annotations

from typing import Any

import torch

from autograd_opt.ops.table import PURE, REDUCES, choose, define


def bind_cast(x: Any, *args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What a cast asks for; of a tensor given as a pattern only its dtype."""
    if not kwargs and len(args) == 1 and type(args[0]) is torch.dtype:
        return (x,), {"to": args, "options": ()}
    plain = tuple(a.dtype if isinstance(a, torch.Tensor) else a for a in args)
    named = tuple((k, v.dtype if isinstance(v, torch.Tensor) else v) for k, v in sorted(kwargs.items()))
    return (x,), {"to": plain, "options": named}


def pick_cast(x: Any, *args: Any, **kwargs: Any) -> str | None:
    """Casts within one device; moves between devices are torch's own."""
    if not kwargs and len(args) == 1 and type(args[0]) is torch.dtype:
        return "cast"
    for a in (*args, *kwargs.values()):
        device = a.device if isinstance(a, torch.Tensor) else a
        if isinstance(device, (str, int)) and not isinstance(device, bool):
            device = torch.device(device)
        if isinstance(device, torch.device) and device != x.device:
            return None
    return "cast"


def identity(x: Any, to: Any = (), options: Any = ()) -> Any:
    """The canonical call of a cast."""
    return x.to(*to, **dict(options))


define("contiguous", "x, *, memory_format=torch.contiguous_format", PURE, "T.contiguous", x=lambda g: g)
define("clone", "x, *, memory_format=None", PURE, "torch.clone T.clone", x=lambda g: g)
# the executor casts the cotangent back, as it does for every promoted operand
define("cast", "x, to=(), options=()", PURE | REDUCES, bind=bind_cast, forward=identity, x=lambda g: g)
choose("T.to T.type_as", pick_cast)
for _name in ("float", "double", "half", "bfloat16"):
    define(f"to_{_name}", "x, memory_format=torch.preserve_format", PURE | REDUCES, f"T.{_name}", x=lambda g: g)
