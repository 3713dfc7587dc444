"""Why two values are one, or not; and what a whole script computes twice.

`pair` answers for two tensors of a graph.  The rest watches any torch program: `watch` is the
mode that sees its operations, `values` numbers them, `purity` says which may be shared,
`places` where in the user's code they were asked for, `findings` gathers what was repeated,
`advice` says what to do about it, and `show` prints it.
"""

from __future__ import annotations

from autograd_opt.explaining.watch import Watch, explain
from autograd_opt.inspection.difference import Difference, PairExplanation, explain_pair

__all__ = ["Difference", "PairExplanation", "Watch", "explain", "explain_pair"]
