"""torch's Python functions that are two operators of the table, recorded without a detour through their bodies."""

from __future__ import annotations

import torch.nn.functional as F

from autograd_opt.ops.table import OPS
from autograd_opt.record.cross_entropy import CrossEntropy
from autograd_opt.record.dispatch import decomposed, special

REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}

cross_entropy = special(F.cross_entropy)(CrossEntropy(
    OPS["log_softmax"], OPS["nll_loss"], {"dim": 1, "dtype": None}, REDUCTIONS, decomposed(F.cross_entropy)))
