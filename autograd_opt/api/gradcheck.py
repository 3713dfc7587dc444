"""gradcheck and gradgradcheck: analytical gradients of a graph against finite differences.

torch's own functions of these names work inside a context as well; these open one, and
report where, both values, and both errors beside their tolerances.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from autograd_opt import errors
from autograd_opt._common.arguments import function_of_tensors, named, real
from autograd_opt.abi import torch_private as private
from autograd_opt.api.functional import jacobian, recording

Tensor = torch.Tensor
Values = tuple[Any, ...]
INPUTS = "the inputs of the function to check are"


class GradcheckError(errors.AutogradOptError, RuntimeError):
    """An analytical derivative differs from the finite difference."""


def several(values: Any, what: str) -> Values:
    """A tensor alone, or what a tuple or another iterable holds."""
    if isinstance(values, Tensor):
        return (values,)
    if not isinstance(values, Iterable):
        raise errors.ArgumentTypeError(errors.at(
            f"{what} a tensor or a tuple of tensors, not a value of type {type(values).__name__}"))
    return tuple(values)


def as_outputs(outputs: Any) -> tuple[Tensor, ...]:
    found = several(outputs, "the function to check must return")
    return tuple(o for o in found if isinstance(o, Tensor) and (o.is_floating_point() or o.is_complex()))


@named
def gradcheck(func: Callable[..., Any], inputs: Any, *, eps: float = 1e-6, atol: float = 1e-5, rtol: float = 1e-3,
              raise_exception: bool = True, optimize: bool = False) -> bool:
    """Compare the Jacobian that the graph gives with central differences.

    Parameters
    ----------
    func : takes `inputs`, returns a tensor or a tuple of them.
    inputs : tensors; those that require grad are checked.  Use double precision.
    eps, atol, rtol : step of the difference and tolerances of the comparison.
    raise_exception : raise, or return False.
    optimize : whether the graph merges repeated work.

    Raises
    ------
    ArgumentTypeError : `func` cannot be called; inputs or outputs are no tensors.
    ArgumentError : no input requires grad; `eps` is not above 0, or a tolerance below.
    UnsupportedError : an input or an output is complex; `torch.autograd.gradcheck` takes these inside a context.
    GradcheckError : says which entry, both values, both errors and both tolerances.

    >>> import autograd_opt as ao, torch
    >>> ao.gradcheck(lambda x: x.sin() * x, ao.tensor([0.5, 1.0], dtype=torch.float64))
    True
    """
    function_of_tensors("gradcheck", func)
    eps, atol, rtol = real("eps", eps, above=True, infinite=False), real("atol", atol), real("rtol", rtol)
    values = several(inputs, INPUTS)
    checked = checked_of(values)
    refuse_complex(values[i] for i in checked)
    plain = [detached(x) for x in values]

    def of(*chosen: Tensor) -> tuple[Tensor, ...]:
        given = list(plain)
        for i, x in zip(checked, chosen, strict=True):
            given[i] = x
        outputs = as_outputs(func(*given))
        refuse_complex(outputs)
        return outputs

    chosen = tuple(plain[i] for i in checked)
    analytical = jacobian(of, chosen, optimize=optimize)
    numerical = differences(of, chosen, eps)
    for o, (row, expected) in enumerate(zip(analytical, numerical, strict=True)):
        for k, (mine, theirs) in enumerate(zip(row, expected, strict=True)):
            fault = mismatch(mine, theirs, atol, rtol)
            if fault is not None:
                if raise_exception:
                    raise GradcheckError(f"d output {o} / d input {checked[k]}: {fault}{too_short(chosen[k].dtype)}")
                return False
    return True


@named
def gradgradcheck(func: Callable[..., Any], inputs: Any, grad_outputs: Sequence[Tensor] | None = None, *,
                  eps: float = 1e-6, atol: float = 1e-5, rtol: float = 1e-3, raise_exception: bool = True,
                  optimize: bool = False) -> bool:
    """`gradcheck` of the gradient of `func` with respect to inputs and cotangents.

    >>> import autograd_opt as ao, torch
    >>> ao.gradgradcheck(lambda x: x.sin() * x, ao.tensor([0.5, 1.0], dtype=torch.float64))
    True
    """
    function_of_tensors("gradgradcheck", func)
    values = several(inputs, INPUTS)
    checked = checked_of(values)
    with torch.no_grad(), recording(optimize):
        outputs = as_outputs(func(*[detached(x) for x in values]))
        gs = [torch.randn_like(o) for o in outputs] if grad_outputs is None else list(grad_outputs)

    def first(*arguments: Any) -> Any:
        given, cotangents = list(arguments[:len(values)]), arguments[len(values):]
        with recording(optimize), torch.enable_grad():
            for i in checked:
                if not given[i].requires_grad:
                    given[i] = given[i].detach().requires_grad_()
            results = as_outputs(func(*given))
            return torch.autograd.grad(results, [given[i] for i in checked], cotangents, create_graph=True,
                                       allow_unused=True, materialize_grads=True)

    seconds = [detached(g).requires_grad_() for g in gs]
    return gradcheck(first, (*values, *seconds), eps=eps, atol=atol, rtol=rtol, raise_exception=raise_exception,
                     optimize=optimize)


def checked_of(values: Values) -> list[int]:
    """The places of the inputs that require grad; at least one."""
    checked = [i for i, x in enumerate(values) if isinstance(x, Tensor) and x.requires_grad]
    if not checked:
        raise errors.ArgumentError(errors.at(
            "gradcheck expects at least one input tensor to require gradient, but none of them have requires_grad=True."
        ))
    return checked


def refuse_complex(tensors: Iterable[Tensor]) -> None:
    """A step along the real axis says only half of a complex derivative."""
    if any(t.is_complex() for t in tensors):
        raise errors.UnsupportedError(errors.at(
            "gradcheck of complex inputs or outputs is not offered: call torch.autograd.gradcheck inside "
            "`with AutogradGraph(): ...`"
        ))


def too_short(dtype: torch.dtype) -> str:
    """Say that finite differences need doubles, of an input that holds none."""
    return "" if dtype == torch.float64 else f"; the input is {dtype}, and finite differences need torch.float64"


def detached(x: Any) -> Any:
    """A plain copy of a tensor, so that stepping it harms nobody."""
    if not isinstance(x, Tensor):
        return x
    with private.DisableTorchFunction():
        return x.detach().as_subclass(Tensor).clone()


def differences(func: Callable[..., Any], inputs: tuple[Tensor, ...], eps: float) -> list[list[Tensor]]:
    """Central differences, entry by entry: [output][input], shaped as the Jacobian."""
    with torch.no_grad():
        shapes = [o.shape for o in func(*inputs)]
        columns: list[list[list[Tensor]]] = [[[] for _ in inputs] for _ in shapes]
        for k, x in enumerate(inputs):
            flat = x.view(-1)
            for e in range(flat.numel()):
                old = flat[e].clone()
                flat[e] = old + eps
                above = [detached(o) for o in func(*inputs)]
                flat[e] = old - eps
                below = [detached(o) for o in func(*inputs)]
                flat[e] = old
                for o, (a, b) in enumerate(zip(above, below, strict=True)):
                    columns[o][k].append((a - b) / (2 * eps))
        return [[torch.stack(c, -1).reshape(*shape, *x.shape) if c else torch.zeros(*shape, *x.shape)
                 for c, x in zip(row, inputs, strict=True)] for shape, row in zip(shapes, columns, strict=True)]


def mismatch(mine: Tensor, theirs: Tensor, atol: float, rtol: float) -> str | None:
    """The worst entry beyond the tolerances, in words; None where there is none."""
    error = (mine - theirs).abs()
    excess = error - (atol + rtol * theirs.abs())
    bad = ~(excess <= 0)                # NaN is a mismatch
    if not bool(bad.any()):
        return None
    where = int(torch.where(bad, excess.nan_to_num(torch.inf), -torch.inf).argmax())
    index = list(torch.unravel_index(torch.tensor(where), mine.shape)) if mine.dim() else []
    a, n = mine.reshape(-1)[where], theirs.reshape(-1)[where]
    gap = float((a - n).abs())
    return (
        f"at {[int(i) for i in index]} the graph gives {a.item()!r}, the finite difference {n.item()!r}: they differ "
        f"by {gap:.3g} absolutely (tolerance {atol:g}) and {gap / max(float(n.abs()), 1e-300):.3g} relatively "
        f"(tolerance {rtol:g}); {int(bad.sum())} of {bad.numel()} entries differ"
    )
