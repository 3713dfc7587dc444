"""Tell which accelerations are on.

Each reaches below torch's or CPython's public interfaces, and has the public way beside it.  `AUTOGRAD_OPT_PLAIN=1`
switches all of them off, `AUTOGRAD_OPT_PLAIN=kernels,getset` these alone, `AUTOGRAD_OPT_PLAIN=0` none, also with a
torch that is newer than all that were tested, where they are off otherwise.  It is read at import.
"""

from __future__ import annotations

import torch

from autograd_opt._common.environment import newer_than_tested, plain_asked

PARTS = {
    "tensor_info": "what a tensor is (type, sizes, version, memory) by torch's C functions and fields",
    "kernels": "kernels by their C++ entries, past the bindings",
    "vectorcall": "an entry of our own for torch's built-in functions and methods",
    "getset": "an entry of our own for properties of plain tensors (without it `z.real = x` is not recorded for a "
        "constant `z`)",
    "module_call": "calls of torch's modules in compiled code",
    "torch_functions": "a shorter way from torch's Python functions to a graph (without it `F.l1_loss` loses its "
        "weight, as under every mode of torch functions)",
}
"""Name of an acceleration -> what it does."""

ASKED = plain_asked()
UNTESTED = newer_than_tested(torch.__version__)


def off(asked: str = ASKED, untested: bool = UNTESTED) -> dict[str, str]:
    """The accelerations that are off -> why; ValueError for a name that is none.

    >>> off("getset,kernels", False)
    {'getset': 'AUTOGRAD_OPT_PLAIN', 'kernels': 'AUTOGRAD_OPT_PLAIN'}
    >>> off("0", True)
    {}
    """
    if asked == "1":
        return dict.fromkeys(PARTS, "AUTOGRAD_OPT_PLAIN=1")
    names = asked.split(",") if asked not in ("", "0") else []
    for name in names:
        if name not in PARTS:
            raise ValueError(f"AUTOGRAD_OPT_PLAIN={asked!r}: {name!r} is no acceleration; "
                             f"it is 0, 1, or some of {', '.join(PARTS)}")
    if untested and not asked:
        return dict.fromkeys(PARTS, f"torch {torch.__version__} is newer than what was tested")
    found = dict.fromkeys(names, "AUTOGRAD_OPT_PLAIN")
    if "tensor_info" in found:
        found.setdefault("kernels", "it needs tensor_info")
    return found


OFF = off()
"""The accelerations that are off in this process -> why."""
