"""Work counted, and the switches that change how much is done.

Tests hold cost by these counts, never by the clock.
"""

import os
from dataclasses import dataclass

__all__ = ["Effort", "checks_forced", "degenerate_hash_forced"]


@dataclass(slots=True)
class Effort:
    """What one run of :func:`~autograd_opt.passes._cse` did.

    Attributes
    ----------
    probes : int
        Slots of the hash table looked at.
    comparisons : int
        Pairs of nodes whose full content was compared.
    hashes : int
        Hashes tried: more than one where the first needed too many probes.
    """

    probes: int = 0
    comparisons: int = 0
    hashes: int = 0


def degenerate_hash_forced() -> bool:
    """Whether ``AUTOGRAD_OPT_DEGENERATE_HASH=1`` makes every hash 0."""
    return os.environ.get("AUTOGRAD_OPT_DEGENERATE_HASH") == "1"


def checks_forced() -> bool:
    """Whether ``AUTOGRAD_OPT_CHECK=1`` checks the built-in passes as well."""
    return os.environ.get("AUTOGRAD_OPT_CHECK") == "1"
