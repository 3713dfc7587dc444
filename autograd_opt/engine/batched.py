"""One backward run for many cotangents at once (`is_grads_batched`, `vectorize=True`).

The run happens inside a level of torch's `vmap`: each cotangent is a batch that looks like
one of its slices, so rules, hooks and Functions need not know.  What was saved is the same
for all slices and is read once.  A rule that cannot be batched (it writes a buffer of its
own, or asks for a value) is called for each slice outside the level, and the results stacked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from autograd_opt import errors
from autograd_opt._common.locks import lasting_lock
from autograd_opt.abi import torch_private as private
from autograd_opt.abi.torch_private import tree_flatten, tree_unflatten

F: Any = private.functorch
Tensor = torch.Tensor
_entered, _lock = [0], lasting_lock()
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
    level = private.vmapmode_increment_nesting() - 1
    private.vmapmode_decrement_nesting()
    batched = next(g for g in cotangents if F.is_legacy_batchedtensor(g))
    size = private.legacy_remove_batch_dim(batched, level, 1, 0).shape[0]
    return level, [private.legacy_remove_batch_dim(g, level, size, 0) for g in cotangents]


def quietly(by: int) -> None:
    """Keep torch from warning of operators that it batches slice by slice, while any level is entered."""
    with _lock:
        _entered[0] += by
        private.set_vmap_fallback_warning_enabled(not _entered[0])


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
        self.level = private.vmap_increment_nesting(self.size, "error")
        allowed = F.get_inplace_requires_grad_allowed()
        F.set_inplace_requires_grad_allowed(True)           # no transform of the user's: Functions may make leaves
        try:
            yield
        finally:
            F.set_inplace_requires_grad_allowed(allowed)
            private.vmap_decrement_nesting()
            quietly(-1)

    @contextmanager
    def left(self) -> Iterator[None]:
        """For a while, outside again: what is computed here is the same for every slice."""
        if F.maybe_current_level() == self.level:
            with private.temporarily_pop_interpreter_stack():
                yield
        else:
            yield

    def joined(self, stacked: Tensor) -> Tensor:
        """The batch of the slices along the first axis."""
        return private.add_batch_dim(stacked, 0, self.level)

    def stacked(self, t: Tensor) -> Tensor:
        """The slices of `t` along a first axis; repeated where it is no batch."""
        return private.remove_batch_dim(t, self.level, self.size, 0)

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


METADATA = frozenset("""
    size dim ndimension numel nelement stride is_complex is_floating_point is_contiguous __len__ element_size
    shape dtype device ndim layout is_sparse is_quantized is_meta
""".split())
"""What a batch answers as one of its slices does, by the name of a method or an attribute."""
FEW = 16
"""As many slices are faster one by one: an operation on a batch costs more to record."""


class RecordedBatch(Batch):
    """A batch of cotangents in a recorded run (`create_graph=True`).

    No level of `vmap` is entered: a batch is the shape of a slice with the stacked tensor beside it, and each
    operation on it is recorded as one operation on stacked tensors, so that derivatives of any order exist.
    """

    def joined(self, stacked: Tensor) -> Tensor:
        batch: Any = private.add_batch_dim(stacked, 0, 1)
        batch._stacked = stacked
        return batch

    def stacked(self, t: Tensor) -> Tensor:
        found = t.__dict__.get("_stacked")
        return t.expand(self.size, *t.shape) if found is None else found

    def is_batch(self, t: Any) -> bool:
        return isinstance(t, Tensor) and "_stacked" in t.__dict__

    def call(self, rule: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """`rule` on batches; slice by slice where torch cannot batch it, or the call is not made of operations here."""
        from autograd_opt.record import torch_fallback
        if rule is not torch_fallback.pull_back and rule not in USERS:
            try:
                return rule(*args, **kwargs)
            except errors.AutogradOptError:
                raise
            except RuntimeError:
                pass
        return self.by_slices(rule, args, kwargs)


class Unbatched(RuntimeError):
    """An operation on a batch that is left to its slices."""


def about_batches(error: RuntimeError) -> bool:
    """Has code of the user's, a hook, done what no batch can do?"""
    return isinstance(error, Unbatched) or any(word in str(error) for word in ("BatchedTensor", "vmap", "functorch"))


class OnBatches(TorchFunctionMode):
    """Inside a recorded run, an operation on batches becomes one on the stacked tensors."""

    def __init__(self, batch: RecordedBatch):
        super().__init__()
        self.batch = batch

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        flat, spec = tree_flatten((args, kwargs or {}))
        if not any(map(self.batch.is_batch, flat)):
            return func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        if name == "__get__":
            name = func.__self__.__name__
        if name in METADATA:
            with private.DisableTorchFunction():
                return func(*args, **(kwargs or {}))
        if (name.endswith("_") and not name.endswith("__")) or name in ("__setitem__", "__set__") \
                or (kwargs or {}).get("out") is not None:
            raise Unbatched(name)
        return self.apply(func, name, flat, spec)

    def apply(self, func: Any, name: str, flat: list[Any], spec: Any) -> Any:
        """Record `func`, mapped over the first axis of what is a batch, as one operation."""
        from autograd_opt.record import torch_fallback
        places = [i for i, a in enumerate(flat) if isinstance(a, Tensor)]
        axes = tuple(0 if self.batch.is_batch(flat[i]) else None for i in places)

        def one(*slices: Any) -> Any:
            given = list(flat)
            for i, t in zip(places, slices, strict=True):
                given[i] = t
            args, kwargs = tree_unflatten(given, spec)
            return func(*args, **kwargs)

        def mapped(*stacked: Any) -> Any:
            return private.vmap(one, axes, randomness="same")(*stacked)

        mapped.__name__ = f"batched_{name.strip('_')}"
        operands = [self.batch.stacked(flat[i]) if axis == 0 else flat[i] for i, axis in zip(places, axes, strict=True)]
        try:
            with private.DisableTorchFunction():
                out = torch_fallback.handler(mapped, tuple(operands), {})
        except errors.AutogradOptError:
            raise
        except (RuntimeError, ValueError) as error:
            raise Unbatched(name) from error
        leaves, form = tree_flatten(out)
        return tree_unflatten([self.batch.joined(t) for t in leaves], form)
