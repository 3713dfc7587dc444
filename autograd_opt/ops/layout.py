"""Rules: calls that change how values lie in memory, not what they are."""

from __future__ import annotations

from autograd_opt.ops.table import OPS, PURE, VIEW, define

if "contiguous" not in OPS:
    define("contiguous", "x, *, memory_format=torch.contiguous_format", PURE, "T.contiguous", x=lambda g: g)
if "unflatten" not in OPS:
    define("unflatten", "x, dim, sizes=()", PURE | VIEW, "T.unflatten torch.unflatten",
           bind=lambda x, dim, sizes: ((x,), {"dim": dim, "sizes": sizes}), x=lambda g, x_shape: g.reshape(x_shape))
