"""Counting what the clock cannot show: kernels that run, bytes that live."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

FREE = frozenset("""
    _lazy_clone detach alias lift_fresh empty empty_like empty_strided new_empty new_empty_strided _local_scalar_dense
    _unsafe_view _reshape_alias set_ resize_
""".split()
)
"""aten operators beside views that run no kernel over data."""


def launches(func: Any) -> bool:
    """Does this aten operator run a kernel over data?"""
    return not func.is_view and func._schema.name.removeprefix("aten::") not in FREE


class Kernels(TorchDispatchMode):
    """How often each kernel ran."""

    def __init__(self) -> None:
        super().__init__()
        self.ran: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if launches(func):
            self.ran[func._schema.name.removeprefix("aten::")] += 1
        return func(*args, **(kwargs or {}))

    @property
    def total(self) -> int:
        return sum(self.ran.values())


class Memory(TorchDispatchMode):
    """The most bytes alive at once; copies that share memory until one is written count once."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks: dict[int, tuple[StorageWeakRef, int, int]] = {}
        self.groups = 0
        self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func._schema.name.removeprefix("aten::")
        if name.endswith("_") and isinstance(args[0], torch.Tensor):
            self.own(args[0])
        for t in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(t, torch.Tensor) and t.layout is torch.strided:
                self.add(t, self.group_of(args[0]) if name == "_lazy_clone" else None)
        self.peak = max(self.peak, self.now())
        return result

    def add(self, t: torch.Tensor, group: int | None) -> None:
        storage = t.untyped_storage()
        known = self.blocks.get(storage._cdata)
        if known is None or known[0].expired():
            if group is None:
                self.groups += 1
                group = self.groups
            self.blocks[storage._cdata] = (StorageWeakRef(storage), storage.nbytes(), group)

    def group_of(self, t: torch.Tensor) -> int | None:
        known = self.blocks.get(t.untyped_storage()._cdata)
        return None if known is None or known[0].expired() else known[2]

    def own(self, t: torch.Tensor) -> None:
        """A write gives a shared copy memory of its own."""
        key = t.untyped_storage()._cdata
        if key in self.blocks:
            self.groups += 1
            self.blocks[key] = (*self.blocks[key][:2], self.groups)

    def now(self) -> int:
        """Bytes alive."""
        for key in [k for k, (ref, _, _) in self.blocks.items() if ref.expired()]:
            del self.blocks[key]
        return sum({group: size for _, size, group in self.blocks.values()}.values())


def kernels_of(run: Callable[[], Any]) -> Counter[str]:
    """The kernels that `run` launches, by name."""
    with Kernels() as counter:
        run()
    return counter.ran
