"""What a whole script computes twice.

`watch` is the mode that sees a program's operations, `keys` and `value_ids` number their values, `purity` says which
may be shared, `locator` and `call_sites` find the expressions that asked for them, `executions` compares the
executions of expressions as a whole, `findings` gathers what was repeated, `advice` says what to do about it, and
`render` prints it.  Why two tensors of a graph are one value is said by `inspection.difference`.
"""

from __future__ import annotations

from autograd_opt.explaining.watch import Watch, explain
from autograd_opt.inspection.difference import Difference, PairExplanation, explain_pair

__all__ = ["Difference", "PairExplanation", "Watch", "explain", "explain_pair"]
