"""One training step of each of many public packages, as their documentation writes it; nobody here tuned for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from torch import Tensor, nn

from ..workload import Workload

Make = Callable[[], Workload]


@dataclass(frozen=True)
class Entry:
    """A program and the package, by the name that pip knows, that it shows."""

    package: str
    make: Make

    def version(self) -> str | None:
        """The version that is installed, or None."""
        try:
            return metadata.version(self.package)
        except metadata.PackageNotFoundError:
            return None


WORLD: dict[str, Entry] = {}


def of(package: str) -> Callable[[Make], Make]:
    """Register a program of `package`; it imports the package itself, since it may not be installed."""

    def register(make: Make) -> Make:
        label = f"{package}: {make.__name__.replace('_', ' ')}"
        assert label not in WORLD, label
        WORLD[label] = Entry(package, make)
        return make

    return register


def training(parameters: nn.Module | Iterable[Tensor], loss: Callable[[], Tensor]) -> Workload:
    """One forward and backward; the loss and every gradient are what has to be equal."""
    found = parameters.parameters() if isinstance(parameters, nn.Module) else parameters
    leaves = [leaf for leaf in found if leaf.requires_grad]
    workload = Workload("", leaves, lambda *_: loss(), random=True)
    gradients = workload.results
    workload.results = lambda out: [out.detach(), *gradients(out)]       # type: ignore[method-assign]
    return workload


def outcome(run: Callable[[], Any]) -> Workload:
    """A step that does its backward itself and returns the tensors that have to be equal."""
    return Workload("", (), run, backward=False, random=True)


def updated(module: nn.Module, optimizer: Any, loss: Callable[[], Tensor]) -> Workload:
    """Two whole steps of an optimizer from the same place each time; the parameters have to be equal."""
    start = [p.detach().clone() for p in module.parameters()]

    def run() -> list[Tensor]:
        made = optimizer(module.parameters())
        for parameter, value in zip(module.parameters(), start, strict=True):
            parameter.data.copy_(value)
        for _ in range(2):
            made.zero_grad()
            loss().backward()
            made.step()
        return [p.detach() for p in module.parameters()]

    return outcome(run)
