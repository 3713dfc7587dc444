"""One backward run for many cotangents at once (`is_grads_batched`, `vectorize=True`).

The run happens inside a level of torch's `vmap`: each cotangent is a batch that looks like
one of its slices, so rules, hooks and Functions need not know.  What was saved is the same
for all slices and is read once.  A rule that cannot be batched (it writes a buffer of its
own, or asks for a value) is called for each slice outside the level, and the results stacked.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch._functorch.pyfunctorch import temporarily_pop_interpreter_stack
from torch.utils._pytree import tree_flatten, tree_unflatten

from autograd_opt import errors

F: Any = torch._C._functorch
Tensor = torch.Tensor
_entered, _lock = [0], threading.Lock()
USERS: set[Any] = set()
"""Rules that run code of the user's: called once, and torch's own error says what cannot be batched."""


def size_of(cotangents: Sequence[Tensor]) -> int:
    """How many cotangents each of these stacks; refused, with torch's words, where they do not agree."""
    sizes = [g.shape[0] for g in cotangents]
    if len(set(sizes)) > 1:
        raise errors.ArgumentError(errors.at(
            f"vmap: Expected all tensors to have the same size in the mapped dimension, got sizes {sizes} for the "
            "mapped dimension"
        ))
    if sizes[0] == 0:
        raise errors.EmptyError(errors.at(
            "index 0 is out of bounds for dimension 0 with size 0: is_grads_batched=True without any cotangent"
        ))
    return sizes[0]


def unwrapped(cotangents: Sequence[Tensor]) -> tuple[int, list[Tensor]] | None:
    """(level, slices stacked along a first axis) of cotangents that `torch._vmap_internals` has batched; else None.

    torch's `gradcheck(check_batched_grad=True)` calls `grad` with such tensors.
    """
    if not any(F.is_legacy_batchedtensor(g) for g in cotangents):
        return None
    level = torch._C._vmapmode_increment_nesting() - 1
    torch._C._vmapmode_decrement_nesting()
    size = next(torch._remove_batch_dim(g, level, 1, 0).shape[0] for g in cotangents if F.is_legacy_batchedtensor(g))
    return level, [torch._remove_batch_dim(g, level, size, 0) for g in cotangents]


def quietly(by: int) -> None:
    """Keep torch from warning of operators that it batches slice by slice, while any level is entered."""
    with _lock:
        _entered[0] += by
        F._set_vmap_fallback_warning_enabled(not _entered[0])


class Batch:
    """The level of `vmap` that one run is in.

    Parameters
    ----------
    size : how many slices each cotangent has.
    """

    def __init__(self, size: int):
        self.size = size
        self.level = 0

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Inside, tensors may be batches."""
        quietly(1)
        self.level = F._vmap_increment_nesting(self.size, "error")
        try:
            yield
        finally:
            F._vmap_decrement_nesting()
            quietly(-1)

    @contextmanager
    def left(self) -> Iterator[None]:
        """For a while, outside again: what is computed here is the same for every slice."""
        if F.maybe_current_level() == self.level:
            with temporarily_pop_interpreter_stack():
                yield
        else:
            yield

    def joined(self, stacked: Tensor) -> Tensor:
        """The batch of the slices along the first axis."""
        return F._add_batch_dim(stacked, 0, self.level)

    def stacked(self, t: Tensor) -> Tensor:
        """The slices of `t` along a first axis; repeated where it is no batch."""
        return F._remove_batch_dim(t, self.level, self.size, 0)

    def is_batch(self, t: Any) -> bool:
        return isinstance(t, Tensor) and F.is_batchedtensor(t) and F.maybe_get_level(t) == self.level

    def call(self, rule: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """`rule` on batches; slice by slice where torch cannot batch what it does."""
        try:
            return rule(*args, **kwargs)
        except errors.AutogradOptError:
            raise
        except RuntimeError:
            if rule in USERS:
                raise
            return self.by_slices(rule, args, kwargs)

    def by_slices(self, rule: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """`rule` called for each slice."""
        axes = [self.slices(a) for a in args]
        with self.left():
            rows = [rule(*[a if s is None else s(k) for a, s in zip(args, axes, strict=True)], **kwargs)
                    for k in range(self.size)]
            flat, specs = zip(*(tree_flatten(row) for row in rows), strict=True)
            columns = [torch.stack(parts) if isinstance(parts[0], Tensor) else None
                       for parts in zip(*flat, strict=True)]
        return tree_unflatten([None if c is None else self.joined(c) for c in columns], specs[0])

    def slices(self, a: Any) -> Callable[[int], Any] | None:
        """What gives slice `k` of an argument; None where it is the same in all."""
        if hasattr(a, "parts"):
            parts = [(p, self.slices(p)) for p in a.parts]

            def whole(k: int) -> Any:
                one = type(a)(len(parts))
                one.parts[:] = [p if s is None else s(k) for p, s in parts]
                return one
            return whole
        if not self.is_batch(a):
            return None
        physical = self.stacked(a)
        return lambda k: physical[k]
