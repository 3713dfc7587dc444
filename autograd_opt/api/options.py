"""Types of options and of tensors in signatures, for editors and checkers; nothing of it runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias, TypedDict

from torch import Tensor
from torch.autograd.graph import GradientEdge

from autograd_opt.passes import Pass, Pipeline
from autograd_opt.verification.result.budget import Budget

Tensors: TypeAlias = Tensor | GradientEdge | Sequence[Tensor | GradientEdge | None]
"""One or several tensors, as `torch.autograd.grad` takes them."""

Passes: TypeAlias = Sequence[str | Pass] | Pipeline
"""Passes by name or as objects, in order."""


class RegionOptions(TypedDict, total=False):
    """Options of `AutogradGraph` that regions and plans take, too."""

    passes: Passes | None
    verify: bool
    anomaly: bool
    name: str | None
    allowance: int | None
    sources: bool


class CallOptions(RegionOptions, total=False):
    """Options of regions and plans."""

    patience: int | None


class GraphOptions(RegionOptions, total=False):
    """Options of `AutogradGraph`."""

    keep: bool


class VerifyOptions(TypedDict, total=False):
    """Options of a proof, as `autograd_opt.verify.verify` takes them."""

    engines: Sequence[str]
    budget: Budget | None
    exact: str
    assume: Sequence[str]
    seed: int
    save: str | Path | None
    anew: bool
