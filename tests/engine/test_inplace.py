"""In-place writes and views: what torch does, in every graph mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import autograd_opt as ao
from tests.differential import compare

X = torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]], dtype=torch.float64)
Y = torch.tensor([[1.25, 0.5, -2.0], [0.1, 3.0, 0.7]], dtype=torch.float64)
R = torch.tensor([0.3, 0.6, 0.9], dtype=torch.float64)


def simple_add_(x, y):
    z = x * 2
    z.add_(y)
    return z * x


def mul_keeps_old_value(x, y):
    z = x * 2
    z.mul_(y)
    return z + x


def augmented(x, y):
    z = x * y
    z += y
    z *= 3
    z -= x
    return z


def fan_out_before(x, y):
    z = x + 0
    a = z + 1
    z.add_(y)
    return a * z


def saved_then_written(x, y):
    z = x * 2
    w = z * y
    z.add_(1)
    return w


def saved_output_written(x, y):
    z = x.exp()
    z.add_(1)
    return z * y


def not_saved_then_written(x, y):
    z = x * 2
    w = z + y
    z.add_(1)
    return w * z


def relu_(x, y):
    z = x * y
    torch.relu_(z)
    return z


def leaf_written(x, y):
    x.add_(1)
    return x


def view_of_leaf_written(x, y):
    x[0].add_(1)
    return x


def leaf_written_no_grad(x, y):
    a = x * y
    with torch.no_grad():
        y.add_(0)
    return x * y + 1 + a * 0


def write_through_view(x, y):
    z = x * 2
    v = z.view(-1)
    v.mul_(3)
    return z * y


def write_base_then_use_view(x, y):
    z = x * 2
    v = z[0]
    z.mul_(y)
    return v + z[1]


def sibling_views(x, y):
    z = x + 0
    a, b = z[0], z.view(-1)
    a.mul_(2)
    b.add_(1)
    return a.sum() * z + b.sum()


def view_of_view(x, y):
    z = x * 1
    v = z.t()[1:]
    v.mul_(y.t()[1:])
    return z + v.sum()


def base_gains_gradient_through_view(x, y):
    z = torch.zeros(2, 3, dtype=torch.float64)
    z[0].copy_(x[0])
    z[1, 1:].add_(y[1, 1:])
    return z * x


def setitem_scalar(x, y):
    z = x * y
    z[0, 1] = 7.0
    return z * x


def setitem_tensor(x, y):
    z = x * 1
    z[:, 0] = y[:, 1]
    return z * z


def setitem_mask(x, y):
    z = x * 1
    z[z > 0] = 0.5
    return z * y


def setitem_index(x, y):
    z = x * 1
    z[:, torch.tensor([0, 2])] = y[:, :2]
    return z * z


def setitem_broadcast(x, y):
    z = x * 1
    z[1:] = y[0]
    return z * y


def zero_and_fill(x, y):
    z = x * 1
    z.zero_()
    w = y * 1
    w.fill_(2.0)
    return (z + x) * (w + y)


def fill_tensor(x, y):
    z = x * 1
    z.fill_(y.sum())
    return z


def copy_broadcast(x, y):
    z = x * 1
    z.copy_(y[0])
    return z * z


def unbind_written(x, y):
    a, b = (x * 1).unbind()
    a.add_(1)
    return a + b


def view_in_no_grad_written(x, y):
    z = x * 1
    with torch.no_grad():
        v = z[0]
    v.mul_(2)
    return z


def expanded_written(x, y):
    z = (x[0] * 1).expand(2, 3)
    z.add_(y)
    return z


def inplace_metadata(x, y):
    z = x * 1
    z.t_()
    z.unsqueeze_(0)
    return z.squeeze(0).t() * y


def detach_shares(x, y):
    z = x * 1
    w = z * y
    z.detach().add_(1)
    return w


def data_write(x, y):
    z = x * 1
    w = z * y
    z.data.mul_(2)
    return w


def clamp_inplace(x, y):
    z = x * 2
    z.clamp_(-1, 1)
    return z * y


def masked_fill_(x, y):
    z = x * 2
    z.masked_fill_(x > 0, 3.0)
    return z * y


def index_add_(x, y):
    z = x * 2
    z.index_add_(1, torch.tensor([0, 2]), y[:, :2])
    return z * y


def out_refused(x, y):
    return torch.mul(x, y, out=torch.empty(2, 3, dtype=torch.float64))


def inplace_on_non_grad_target(x, y):
    z = torch.ones(2, 3, dtype=torch.float64)
    z.mul_(x)
    z.add_(y)
    return z


def twins_then_write(x, y):
    b = x * 2
    c = x * 2
    b.add_(y)
    return b * c + (x * 2)


def twins_write_saved(x, y):
    b = x * 2
    c = x * 2
    d = b * y
    c.add_(1)
    return d * c


def twin_views(x, y):
    z = x * y
    u, v = z.view(-1), z.view(-1)
    u.mul_(2)
    return v + z.view(-1)


def write_between_twins(x, y):
    z = x * 1
    a = z.sin()
    z.add_(1)
    b = z.sin()
    return a * b + y


def copy_between_twins(x, y):
    z = x * 1
    c1 = z.cos()
    c1.copy_(y)
    c2 = z.cos()
    return c1 * c2


def as_strided_write(x, y):
    z = x * 1
    z.as_strided((2,), (4,), 0).mul_(5)
    return z * y


def normal_inplace(x, y):
    z = x * 1
    z.normal_()
    return z * y


def dropout_inplace(x, y):
    z = x * y
    torch.nn.functional.dropout(z, 0.5, inplace=True)
    return z


def cumsum_(x, y):
    z = x * y
    z.cumsum_(1)
    return z * x


def overload_of_a_tensor(x, y):
    z = x * 2
    torch.ops.aten.mul_.Tensor(z, y)
    torch.ops.aten.add_(z, x)
    return z * z


def overloads_of_numbers(x, y):
    z = x * y
    torch.ops.aten.mul_.Scalar(z, 3.0)
    torch.ops.aten.lerp_.Scalar(z, y, 0.5)
    torch.ops.aten.index_put_.default(z, [torch.tensor([0])], y[1:])
    return z * x


def overload_through_a_view(x, y):
    z = x * 2
    torch.ops.aten.mul_.Tensor(torch.ops.aten.select.int(z, 0, 0), y[0])
    torch.ops.aten.fill_.Scalar(z[1, :1], 3.0)
    return z * z


def overload_on_a_constant(x, y):
    z = torch.zeros(2, 3, dtype=x.dtype)
    torch.ops.aten.copy_.default(z, y)
    torch.ops.aten.zero_.default(z[0])
    return z * x


def real_and_imaginary_assigned(x, y):
    z = torch.complex(x, y) * (1 + 2j)
    z.real = y * x
    z.imag = z.real * 2
    return (z * (1 - 1j)).real


def real_assigned_from_numbers(x, y):
    z = torch.complex(x, y) * 1
    z.real = 3.0
    z[0].imag = torch.tensor(2.0, dtype=x.dtype)
    return (z * z).real


def real_of_a_real_tensor_assigned(x, y):
    z = x * 2
    z.real = y
    return z * x


def real_of_a_constant_assigned(x, y):
    z = torch.zeros(2, 3, dtype=torch.complex128)
    z.real = x * y
    z[:, :1].imag = y[:, :1]
    return (z * z.conj()).real


def real_of_a_leaf_assigned(x, y):
    with torch.no_grad():
        x.real = y
    return x * y


def real_of_a_leaf_assigned_with_gradients_on(x, y):
    x.real = y
    return x * y


def real_of_a_saved_value_assigned(x, y):
    z = torch.complex(x, y) * 1
    w = z * z
    z.real = y
    return w.real


def imaginary_part_of_a_real_tensor_assigned(x, y):
    z = x * 2
    z.imag = y
    return z


def real_assigned_from_no_number(x, y):
    z = x * 2
    z.real = [1.0]
    return z


PROGRAMS = [f for name, f in list(globals().items()) if callable(f) and getattr(f, "__module__", "") == __name__
            and not name.startswith("test")]
PLAIN = (real_of_a_constant_assigned, real_of_a_leaf_assigned_with_gradients_on)


@pytest.mark.parametrize("program", [p for p in PROGRAMS if p not in PLAIN], ids=lambda f: f.__name__)
def test_as_torch(program):
    compare(program, X, Y)


@pytest.mark.parametrize("program", PLAIN, ids=lambda f: f.__name__)
def test_a_part_of_a_plain_tensor_is_assigned_as_in_torch(program):
    compare(program, X, Y)


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("write", [
    lambda k: k.copy_(k.flip(0)), lambda k: k.data.copy_(k.flip(0)), lambda k: k.zero_(),
], ids=["copy_", "data", "zero_"])
@pytest.mark.parametrize("dim", [0, None])
def test_counts_of_repeat_interleave_written_before_backward(dim, write, optimize):
    """torch keeps indices that it has made of them."""
    def grads():
        x = torch.arange(1.0, 5.0, dtype=torch.float64).reshape(4, 1).requires_grad_()
        counts = torch.tensor([3, 1, 0, 2])
        y = x.repeat_interleave(counts, dim)
        write(counts)
        g, = torch.autograd.grad((y ** 3).sum(), x, create_graph=True)
        return g, *torch.autograd.grad((g ** 2).sum(), x)

    wanted = grads()
    with ao.AutogradGraph(optimize=optimize):
        found = grads()
    for f, w in zip(found, wanted, strict=True):
        torch.testing.assert_close(f.as_subclass(torch.Tensor), w)


TARGETS: dict[str, Callable[[Tensor], Tensor]] = {
    "constant": lambda x: torch.zeros(3, 4, dtype=x.dtype),
    "result": lambda x: x * 2,
    "result of a result that saves it": lambda x: x.exp(),
    "constant with a view": lambda x: held(torch.zeros(3, 4, dtype=x.dtype)),
    "result with a view": lambda x: held(x * 2),
}
PLACES: dict[str, Any] = {
    "number": 1, "slice": slice(1, 3), "numbers": (2, 1), "everything": slice(None), "new axis": (None, 0),
    "ellipsis and number": (..., 1), "tensor": torch.tensor([2, 0]), "mask": torch.tensor([True, False, True]),
    "tensor and slice": (torch.tensor([0, 1]), slice(0, 2)), "number as a tensor": torch.tensor(1),
}
PARTS: dict[str, Callable[[Tensor, Tensor, Any], Any]] = {
    "number": lambda x, t, place: 2.5,
    "scalar": lambda x, t, place: x[0, 0] * x[1, 1],
    "value": lambda x, t, place: (x.sin() * 3)[place],
    "constant": lambda x, t, place: x.detach()[place] + 1,
    "part of itself": lambda x, t, place: t[place] * 2,
}
_views: list[Tensor] = []


def held(t: Tensor) -> Tensor:
    """A tensor with a view that was made before anything was written."""
    _views.append(t[1:])
    return t


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("place", PLACES)
def test_assignments_are_those_of_torch(place: str, target: str, part: str, optimize: bool) -> None:
    def run() -> list[Any]:
        _views.clear()
        x = torch.arange(1.0, 13.0, dtype=torch.float64).view(3, 4).div_(7).requires_grad_()
        t = TARGETS[target](x)
        for _ in range(2):
            t[PLACES[place]] = PARTS[part](x, t, PLACES[place])
        facts: list[Any] = [t.requires_grad, t._version, *(v.requires_grad for v in _views)]
        loss = (t * t.abs()).sum() + sum(v.sum() for v in _views)
        if not loss.requires_grad:
            return [*facts, loss]
        (first,) = torch.autograd.grad(loss, x, create_graph=True, allow_unused=True)
        second = first is not None and first.requires_grad and torch.autograd.grad(first.square().sum(), x)[0]
        return [*facts, loss.detach(), *(torch.zeros_like(x) if g is None or g is False else g.detach()
                                         for g in (first, second))]

    def outcome() -> list[Any]:
        try:
            return run()
        except RuntimeError as error:
            return [str(error).partition(":")[0][:60]]

    expected = outcome()
    with ao.AutogradGraph(optimize=optimize):
        found = outcome()
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert torch.allclose(a, b) if isinstance(a, Tensor) else a == b


@pytest.mark.parametrize("optimize", [False, True])
def test_what_an_assignment_is_called(optimize):
    """One number fills what it is assigned to; anything else is copied, or put into a part."""
    def program():
        seen = []
        for index in (Ellipsis, slice(None), (slice(None),), 0, slice(0, 2), torch.tensor([0, 1]), (Ellipsis,)):
            for shape in ((), (1,), (3,)):
                for target in (torch.ones(3), torch.ones(3, requires_grad=True) * 2, torch.ones(2, 3)):
                    value = torch.full(shape, 0.5, requires_grad=True)
                    try:
                        target[index] = value
                    except RuntimeError:
                        seen.append("refused")
                        continue
                    name = target.grad_fn.name()
                    target.sum().backward()
                    seen.append((name, value.grad.tolist()))
        filled = torch.ones(3)
        filled.fill_(torch.tensor(0.5, requires_grad=True))
        return [*seen, filled.grad_fn.name()]

    expected = program()
    with ao.AutogradGraph(optimize=optimize):
        assert program() == expected


WRITTEN = sorted(name for name in dir(Tensor) if name.endswith("_") and not name.startswith("_")
                 and name not in ("requires_grad_", "share_memory_"))
GIVEN = {"alone": (), "number": (1,), "floats": (torch.tensor([1.0, 0.5, -1.0, 0.0], dtype=torch.float64),),
         "integers": (torch.tensor([1, 0, 1, 0]),)}


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("name", WRITTEN)
def test_every_form_has_torchs_gradient(name: str, optimize: bool) -> None:
    """Forms that take these arguments and that torch differentiates, comparisons and logic of floats among them."""
    def outcome(given: tuple[Any, ...]) -> Any:
        x = torch.tensor([0.3, -0.7, 1.0, 0.0], dtype=torch.float64, requires_grad=True)
        y = x * 1
        torch.manual_seed(0)
        try:
            getattr(y, name)(*given)
            gradients = torch.autograd.grad(y.sum(), x, allow_unused=True) if y.requires_grad else ()
        except (TypeError, RuntimeError, IndexError):
            return None
        return y.detach().clone(), *gradients

    for given in GIVEN.values():
        expected = outcome(given)
        if expected is not None:
            with ao.AutogradGraph(optimize=optimize):
                found = outcome(given)
            torch.testing.assert_close(found, expected, equal_nan=True)


@pytest.mark.parametrize("name", ["logical_and_", "logical_or_", "logical_xor_"])
@pytest.mark.parametrize("optimize", [False, True])
def test_a_logical_write_follows_nothing_of_its_operand(name: str, optimize: bool) -> None:
    """torch does not differentiate it: a mask of floats stays one that `numpy()` takes."""
    x = torch.tensor([0.0, 2.0], requires_grad=True)

    def program() -> tuple[list[float], bool, list[float]]:
        mask = torch.ones(2)
        getattr(mask, name)(x)
        (g,) = torch.autograd.grad((mask * x).sum(), x)
        return mask.numpy().tolist(), mask.requires_grad, g.tolist()

    wanted = program()
    with ao.AutogradGraph(optimize=optimize):
        assert program() == wanted


@pytest.mark.parametrize("optimize", [False, True])
def test_a_logical_write_of_a_leaf(optimize):
    """torch does not differentiate such a write, and lets it be made."""
    w = torch.tensor([1.0, 0.0], requires_grad=True)
    with ao.AutogradGraph(optimize=optimize):
        assert w.logical_not_() is w
        (w * w).sum().backward()
    assert w.tolist() == [0.0, 1.0]
    assert w.grad.tolist() == [0.0, 2.0]
    assert w.is_leaf
