"""Set the scene of a random program: the names that it uses, and what it lets others see."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

Env = dict[str, Any]


class Session:
    """The graphs of a program, one after another; torch eager has none."""

    def __init__(self, make: Callable[[], Any] | None = None) -> None:
        self.make = make
        self.graph: Any = None

    def __enter__(self) -> Session:
        if self.make is not None:
            self.graph = self.make()
            self.graph.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        if self.graph is not None:
            graph, self.graph = self.graph, None
            graph.__exit__(*error)

    def fresh(self) -> None:
        """Leave the graph and open another."""
        self.__exit__(None, None, None)
        self.__enter__()

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Leave the graph for a block."""
        self.__exit__(None, None, None)
        try:
            yield
        finally:
            self.__enter__()


def environment(leaves: Env, session: Session | None = None) -> Env:
    """Return the names that a program may use; `seen` collects what hooks saw, by label, `told` what else it found."""
    from tests import acts
    from tests.named import NAMES

    seen: dict[str, list[Any]] = {}
    told: list[Any] = []
    watched: list[weakref.ref[Any]] = []
    session = session or Session()

    def see(label: str) -> Callable[[Any], None]:
        def hook(g: Any) -> None:
            seen.setdefault(label, []).append(g.detach().clone())

        return hook

    def see_all(label: str) -> Callable[[Any], None]:
        def hook(gs: Any) -> None:
            seen.setdefault(label, []).extend(g.detach().clone() for g in gs if g is not None)

        return hook

    def see_grad(label: str) -> Callable[[Any], None]:
        def hook(t: Any) -> None:
            seen.setdefault(label, []).append(t.grad.detach().clone())

        return hook

    def alive() -> None:
        told.append([ref() is not None for ref in watched])

    return {
        "torch": torch,
        "F": torch.nn.functional,
        "nan": float("nan"),
        "inf": float("inf"),
        "seen": seen,
        "see": see,
        "see_grad": see_grad,
        "see_all": see_all,
        "handles": [],
        "told": told,
        "tell": told.append,
        "watch": lambda t: watched.append(weakref.ref(t)),
        "alive": alive,
        "fresh": session.fresh,
        "outside": session.outside,
        **acts.NAMES,
        **NAMES,
        **leaves,
    }
