"""What a peer is: a library, how it takes a workload, and when it cannot."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..workload import Workload

Step = Callable[[], list[Tensor]]
"""Runs one step and returns its results as torch tensors: gradients of the leaves, or the values."""


@dataclass(frozen=True)
class Peer:
    """One way of running workloads in another library.

    Attributes
    ----------
    name, package : str
        In the table, and what has to be installed.
    build : callable
        `build(label, workload)` returns a step, having traced or compiled nothing that a
        user would not have at that point; None where the workload cannot be said there.
    cannot : dict of str
        First words of the workloads that cannot be said in it, and why not.
    retraces : bool
        Whether a new structure has to be built, traced or compiled again.
    """

    name: str
    package: str
    build: Callable[[str, Workload], Step]
    cannot: Mapping[str, str] = field(default_factory=dict)
    retraces: bool = True

    def obstacle(self, label: str) -> str | None:
        """Why the workload cannot be said in this library; None where it can."""
        return self.cannot.get(label.split()[0])


def arrays(values: Any) -> Any:
    """Tensors as NumPy arrays, in whatever tuple, list or dict they are."""
    if isinstance(values, Tensor):
        return values.detach().numpy()
    if isinstance(values, dict):
        return {name: arrays(value) for name, value in values.items()}
    if isinstance(values, list) and values and isinstance(values[0], Tensor):
        return [arrays(value) for value in values]
    return values


def mapped(data: dict[str, Any], convert: Callable[[Any], Any]) -> dict[str, Any]:
    """NumPy arrays in `data` converted, the rest as it is."""

    def one(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return convert(value)
        if isinstance(value, list) and value and isinstance(value[0], np.ndarray):
            return [convert(v) for v in value]
        return value

    return {name: one(value) for name, value in data.items()}


def tensors(results: Any, workload: Workload) -> list[Tensor]:
    """Results of another library as tensors like the workload's."""
    results = results if isinstance(results, (list, tuple)) else [results]
    like = workload.leaves[0].dtype
    return [torch.from_numpy(np.array(r)).to(like) for r in results]
