"""Where the operands, results and scratch of a stretch lie, and its steps over them."""

from __future__ import annotations

import torch

from autograd_opt.plans.emission import Emission, Place
from autograd_opt.plans.fusing import Group
from autograd_opt.plans.program import Ref

Tensor = torch.Tensor


class Layout:
    """The places of a stretch, and its steps over them."""

    def __init__(self, group: Group, samples: list[Tensor], wanted: set[int]) -> None:
        self.group, self.samples = group, samples
        self.emission = Emission(self.operand)
        self.operands: dict[int, int] = {}
        self.results: dict[int, int] = {}
        self.computed: dict[int, int] = {}
        last = {n: k for k, (member, _) in enumerate(group.members) for n in member.operands}
        for k, (member, expression) in enumerate(group.members):
            n = member.outs[0]
            if n in wanted:
                kind = "result_bool" if samples[n].dtype == torch.bool else "result"
                self.results[n] = self.emission.place(kind)
            self.computed[n] = self.emission.emit(expression, self.results.get(n))
            for read in {*member.operands, n}:
                if read in self.computed and last.get(read, k) <= k and read not in self.results:
                    self.emission.free.append(self.computed.pop(read))

    def operand(self, part: Ref) -> int:
        """Where a value lies."""
        if part.number in self.computed:
            return self.computed[part.number]
        if part.number not in self.operands:
            self.operands[part.number] = self.emission.place(*self.source(self.samples[part.number]))
        return self.operands[part.number]

    def source(self, t: Tensor) -> Place:
        """How the elements of an operand are read, in the order of the group's shape."""
        suffix = "_bool" if t.dtype == torch.bool else ""
        if t.numel() == 1:
            return f"single{suffix}", (), ()
        if tuple(t.shape) == self.group.shape and t.is_contiguous():
            return f"whole{suffix}", (), ()
        wide = t.expand(self.group.shape)
        return f"strided{suffix}", tuple(wide.shape), wide.stride()
