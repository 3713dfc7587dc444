"""Histories around a repeated call: what operands were computed from, and what is differentiated of the results."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import autograd_opt as ao

Tensor = torch.Tensor
CALLS = 4


def alike(function: Callable[..., Any], use: Callable[[Callable[..., Any]], Any], reason: str | None = "") -> None:
    """Compare what `use` makes of a function, compiled and as it is; `reason` says why calls are recorded each time."""
    compiled = ao.compile(function)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for call in range(CALLS):
            found, expected = use(compiled), use(function)
            torch.testing.assert_close(found, expected, msg=lambda text, call=call: f"call {call + 1}: {text}")
    for kind in compiled.report().kinds:
        assert kind.reason == "" if reason == "" else reason is None or reason in kind.reason, kind.reason


def leaf(*numbers: float) -> Tensor:
    return torch.tensor(numbers, requires_grad=True)


def gradients(*tensors: Tensor) -> list[Tensor | None]:
    return [t.grad for t in tensors]


def test_an_operand_computed_from_another_one() -> None:
    """The gradient of an operand is what the results alone send to it."""

    def use(f: Callable[..., Tensor]) -> Any:
        x = leaf(3.0)
        f(x, x * 2).backward()
        return gradients(x)

    alike(lambda a, b: a * b, use)


def test_an_operand_computed_from_a_parameter_that_the_function_reaches() -> None:
    torch.manual_seed(0)
    net = torch.nn.ModuleDict({"encoder": torch.nn.Linear(2, 2), "head": torch.nn.Linear(2, 1)})

    def use(f: Callable[[Tensor], Tensor]) -> Any:
        net.zero_grad()
        f(net["encoder"](torch.ones(1, 2))).backward()
        return gradients(*net.parameters())

    alike(lambda h: net["head"](h).pow(2).sum() + net["encoder"].bias.sum(), use)


def test_a_view_beside_its_base() -> None:
    def use(f: Callable[..., Tensor]) -> Any:
        w = leaf(1.0, 2.0, 3.0)
        base = w * 2
        f(base[1:], base).backward()
        return gradients(w)

    alike(lambda part, base: part.sum() * base.exp().sum(), use)
    alike(lambda part, base: (part * base[:2]).sum() + base.exp().sum(), use, None)


@pytest.mark.parametrize("inner", [lambda x: x.detach(), lambda x: x.clone().detach(), lambda x: torch.ones(2)])
@pytest.mark.parametrize("by_name", [False, True])
def test_a_leaf_that_the_call_makes(inner: Callable[[Tensor], Tensor], by_name: bool) -> None:
    """A gradient that goes to such a leaf is nobody's."""
    w = torch.nn.Parameter(torch.ones(2))

    def function(x: Tensor) -> Tensor:
        z = inner(x)
        if by_name:
            z.requires_grad = True
        else:
            z.requires_grad_()
        (g,) = torch.autograd.grad((z * z * w).sum(), z, create_graph=True)
        return (g * z * x).sum()

    def use(f: Callable[..., Tensor]) -> Any:
        x = leaf(1.0, 2.0)
        w.grad = None
        f(x).backward()
        return gradients(x, w)

    alike(function, use)


def test_nobody_sees_the_backward_run_from_which_a_plan_is_made() -> None:
    def use(f: Callable[..., Tensor]) -> Any:
        x = leaf(1.0, 2.0)
        h = x * 1
        h.retain_grad()
        f(h).backward()
        return [h.grad, x.grad]

    alike(lambda h: (h * h).sum(), use)


def test_a_backward_function_of_the_program() -> None:
    """It is called as often as gradients are asked for."""

    class Double(torch.autograd.Function):
        calls = 0

        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, *cotangents: Tensor) -> Tensor:
            Double.calls += 1
            return cotangents[0] * 2

    def use(f: Callable[..., Tensor]) -> Any:
        Double.calls = 0
        x = leaf(1.0, 2.0)
        y = f(x)
        before = Double.calls
        y.backward()
        return [x.grad, before, Double.calls]

    alike(lambda x: Double.apply(x).sum(), use, "calls a function written in Python")


class NoDerivative(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> Tensor:
        raise NotImplementedError


def written_after_it_was_saved(x: Tensor) -> Tensor:
    y = x.sin()
    z = y * y
    y.add_(1)
    return z


class Holder:
    parameter = torch.nn.Parameter(torch.ones(2))
    outside = torch.ones(2, requires_grad=True) * 2


def hidden(*parts: str) -> Tensor:
    """An attribute whose name no code shows."""
    return getattr(Holder, "".join(parts))  # type: ignore[no-any-return]


FAILING: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "no derivative": (NoDerivative.apply, "calls a function written in Python"),
    "written after it was saved": (written_after_it_was_saved, "its backward run fails"),
    "a parameter that no attribute shows": (lambda x: x.detach() * hidden("para", "meter"), "nowhere known"),
    "an alias that no attribute shows": (
        lambda x: x * hidden("para", "meter").detach().requires_grad_(), "nowhere known"),
    "a result that no attribute shows": (lambda x: hidden("out", "side"), "returns a leaf"),
}


@pytest.mark.parametrize("case", FAILING)
def test_results_that_are_not_differentiated(case: str) -> None:
    """An error of a backward run reaches nobody who has not asked for it."""
    function, reason = FAILING[case]

    def use(f: Callable[[Tensor], Tensor]) -> Any:
        y = f(leaf(1.0, 2.0))
        return [y.detach(), y.requires_grad]

    alike(function, use, reason)


def test_gradients_followed_inside_of_no_grad() -> None:
    w = leaf(1.0, 2.0)

    def function(x: Tensor) -> Tensor:
        with torch.enable_grad():
            return (x * w).sum()

    def use(f: Callable[[Tensor], Tensor]) -> Any:
        w.grad = None
        with torch.no_grad():
            y = f(torch.ones(2))
        y.backward()
        return [y.requires_grad, w.grad]

    alike(function, use, "inside of no_grad")
    f = ao.compile(lambda x: hidden("out", "side"))
    with torch.no_grad(), pytest.warns(UserWarning, match="inside of no_grad"):
        assert all(f(torch.ones(2)) is Holder.outside for _ in range(3))


def test_a_result_whose_history_has_been_used_beside_one_whose_history_is_open() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        loss = (x.sin() * x).sum()
        loss.backward()
        return loss, x.exp()

    def use(f: Callable[..., tuple[Tensor, Tensor]]) -> Any:
        x = leaf(1.0, 2.0)
        loss, y = f(x)
        y.sum().backward()
        return [loss.detach(), x.grad]

    alike(function, use)


def test_results_that_are_one_tensor() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x * 2
        return y, y

    def use(f: Callable[..., tuple[Tensor, Tensor]]) -> Any:
        x = leaf(1.0, 2.0)
        one, other = f(x)
        (one * other).sum().backward()
        return [one is other, x.grad]

    alike(function, use)


def scaled_in_place(x: Tensor, w: Tensor) -> Tensor:
    x.mul_(2)
    return x + w * w


def part_in_place(x: Tensor, w: Tensor) -> Tensor:
    x.view(-1)[:1].mul_(w[:1])
    return x + w * w


def filled_from_a_parameter(x: Tensor, w: Tensor) -> Tensor:
    x.copy_(w * 3)
    return x + w * w


def followed_from_now_on(x: Tensor, w: Tensor) -> Tensor:
    x.requires_grad_()
    return x + w * w


WRITES = [scaled_in_place, part_in_place, filled_from_a_parameter, followed_from_now_on]


@pytest.mark.parametrize(
    ("function", "computed"), [(f, c) for f in WRITES for c in (False, True) if not (c and f is followed_from_now_on)]
)
def test_writes_that_change_what_gradients_follow(function: Callable[..., Tensor], computed: bool) -> None:
    """The history of an operand is torch's: a call that changes it is recorded each time."""

    def use(f: Callable[..., Tensor]) -> Any:
        v, w = leaf(1.0, 2.0), leaf(3.0, 4.0)
        x = v * 1 if computed else torch.tensor([1.0, 2.0])
        y = f(x, w)
        (y.sum() + (x * x).sum()).backward()
        return [x.detach(), x.requires_grad, v.grad, w.grad]

    harmless = function is scaled_in_place and not computed
    alike(function, use, "" if harmless else "a tensor from outside")


def test_a_buffer_that_comes_to_follow_gradients() -> None:
    w = leaf(1.0, 2.0)
    state = {"buffer": torch.zeros(2)}

    def function() -> Tensor:
        state["buffer"].copy_(w * 2)
        return state["buffer"].detach() * 1

    def use(f: Callable[[], Tensor]) -> Any:
        w.grad, state["buffer"] = None, torch.zeros(2)
        y = f()
        state["buffer"].sum().backward()
        return [y, w.grad]

    alike(function, use, None)


def test_writes_that_no_gradient_follows() -> None:
    """Parameters, buffers and operands are written by repetitions."""
    w, buffer = leaf(1.0, 2.0), torch.zeros(2)

    def function(h: Tensor, x: Tensor) -> Tensor:
        y = (h * w * x).sum()
        with torch.no_grad():
            w.mul_(1.5)
            buffer.add_(h.detach())
            x.add_(1)
        return y.detach() * 2

    def use(f: Callable[..., Tensor]) -> Any:
        with torch.no_grad():
            w.copy_(torch.tensor([1.0, 2.0]))
            buffer.zero_()
        v, x = leaf(1.0, 2.0), torch.ones(2)
        y = f(v * 2, x)
        return [y, x, w.detach().clone(), buffer.clone()]

    alike(function, use)


def backward_inside(h: Tensor, w: Tensor) -> Tensor:
    loss = (h * h * w).sum()
    loss.backward()
    return loss.detach()


def gradient_of_what_an_operand_was_computed_from(h: Tensor, w: Tensor) -> Tensor:
    (g,) = torch.autograd.grad((h * h * w).sum(), w)
    return g


@pytest.mark.parametrize("function", [backward_inside, gradient_of_what_an_operand_was_computed_from])
def test_gradients_that_go_on_in_the_history_of_an_operand(function: Callable[..., Tensor]) -> None:
    calls = itertools.count()

    def use(f: Callable[..., Tensor]) -> Any:
        w = leaf(1.0, next(calls) // 2 + 0.5)
        y = f((w * 2).exp(), w)
        return [y, w.grad]

    alike(function, use, "history of an operand")


def test_backward_inside_beside_an_operand_with_a_history() -> None:
    """A gradient that goes to leaves alone is repeated."""
    w = torch.nn.Parameter(torch.ones(2))

    def function(h: Tensor, x: Tensor) -> Tensor:
        y = h * 2
        (w * x).sum().backward()
        return y

    def use(f: Callable[..., Tensor]) -> Any:
        w.grad = None
        v, x = leaf(1.0, 2.0), leaf(3.0, 4.0)
        f(v * 2, x).sum().backward()
        return gradients(v, x, w)

    alike(function, use)


def test_operands_that_the_differentiated_result_does_not_lead_to() -> None:
    """They get no gradient, not one of zeros."""
    a, b = torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2))

    def function(x: Tensor) -> list[Tensor]:
        return [(x * a).sum(), (x * b).sum(), (a * b).exp()]

    def use(f: Callable[..., list[Tensor]]) -> Any:
        seen: list[Any] = []
        for which in ([0], [1], [2], [0, 1], [0, 2]):
            a.grad = b.grad = None
            x = leaf(1.0, 2.0)
            results = f(x)
            torch.stack([results[k].sum() for k in which]).sum().backward()
            seen += gradients(a, b, x)
        return seen

    alike(function, use)


LAZY: dict[str, Callable[[], Tensor]] = {
    "negative": lambda: torch.tensor([1 + 2j, 3 - 1j]).conj().imag,
    "zeros without memory": lambda: torch._efficientzerotensor(2),
    "of other strides": lambda: torch.tensor([1.0, 2.0, 3.0])[::2],
    "expanded": lambda: torch.tensor(2.0).expand(2),
}


@pytest.mark.parametrize("cotangent", LAZY)
def test_cotangents_whose_memory_is_not_their_value(cotangent: str) -> None:
    def use(f: Callable[..., Tensor]) -> Any:
        x = leaf(1.0, 2.0)
        f(x).backward(LAZY[cotangent]())
        return gradients(x)

    alike(lambda x: x.sin() * x, use)


def test_a_lazy_conjugate_as_a_cotangent() -> None:
    def use(f: Callable[..., Tensor]) -> Any:
        x = torch.tensor([1 + 1j, 2 - 1j], requires_grad=True)
        f(x).backward(torch.tensor([1 + 2j, 3 - 1j]).conj())
        return gradients(x)

    alike(lambda x: x.sin() * x, use)


def test_batches_of_cotangents() -> None:
    """They are differentiated slice by slice."""

    def use(f: Callable[..., Any]) -> Any:
        x, w = leaf(1.0, 2.0), leaf(3.0, 4.0)
        y, z = f(x, w)
        once = torch.autograd.grad(y, [x, w], torch.eye(2), is_grads_batched=True, retain_graph=True, allow_unused=True)
        return [*once, *torch.autograd.grad(z, [x, w], torch.ones(3), is_grads_batched=True)]

    alike(lambda x, w: (x.sin() * x, (x * w).sum()), use)


SHARING: dict[str, Callable[[Tensor], list[Tensor]]] = {
    "one tensor": lambda x: [y := x * 2, y],
    "twins": lambda x: [x.abs(), x.abs()],
    "twins and a view": lambda x: [x.abs(), x.abs(), x.abs().view(-1)],
    "a twin and its view": lambda x: [x.abs(), y := x.abs(), y.view(-1)],
    "a twin and its value": lambda x: [x.abs(), y := x.abs(), y.detach()],
    "two twins and their values": lambda x: [y := x.abs(), z := x.abs(), z.detach(), y.detach(), z.detach()],
    "parts of twins": lambda x: [x.abs()[0], x.abs()[1], x.abs()[0]],
    "two views of each twin": lambda x: [y := x.abs(), z := x.abs(), y.view(-1), z.view(-1)],
    "an operand": lambda x: [x.detach(), x, x.detach().view(-1), x.clone(), x.clone()],
}


@pytest.mark.parametrize("case", SHARING)
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad])
def test_memory_that_results_share(case: str, mode: Any) -> None:
    """Results are memory of their own, or one tensor, or share memory, as in torch."""

    def use(f: Callable[[Tensor], list[Tensor]]) -> Any:
        x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
        with mode():
            results = [*f(x), x]
        same = [[one is other for one in results] for other in results]
        for k, t in enumerate(dict.fromkeys(results)):
            t.mul_(k + 2)
        return [same, *results]

    alike(SHARING[case], use, "several views" if case == "two views of each twin" else "")


def test_gradients_that_are_results() -> None:
    a, b = torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2))

    def function(x: Tensor) -> list[Tensor | None]:
        ((a + b) * x).sum().backward()
        return [a.grad, x * 1]

    def use(f: Callable[[Tensor], list[Tensor]]) -> Any:
        a.grad = b.grad = None
        g, y = f(torch.tensor([3.0, 4.0]))
        assert a.grad is not None
        a.grad.add_(1)
        return [g is a.grad, g, y, a.grad, b.grad]

    alike(function, use)


MADE: dict[str, Callable[[Tensor], Tensor]] = {
    "differentiated": lambda x: [d := (x * 2).detach().requires_grad_(), (d * d).sum().backward()][0],
    "new": lambda x: torch.ones(2, requires_grad=True),
    "a parameter": lambda x: torch.nn.Parameter(x * 2, requires_grad=False),
}


@pytest.mark.parametrize("case", MADE)
def test_leaves_that_are_results(case: str) -> None:
    def use(f: Callable[[Tensor], Tensor]) -> Any:
        t = f(torch.ones(2))
        return [t.detach(), t.requires_grad, t.grad, isinstance(t, torch.nn.Parameter)]

    alike(MADE[case], use, "returns a leaf")


def test_results_that_are_not_differentiated_beside_infinite_slopes() -> None:
    """Where no cotangent arrives nothing is computed, not zero times infinity."""

    def function(x: Tensor, w: Tensor) -> list[Tensor]:
        y = x.sqrt() * w
        return [y.sum(), (x * w).sum(), torch.cat([y, x.expand(2) * 2]), (x.log() + w).sum() + y.sum(), x.floor()]

    def use(f: Callable[..., list[Tensor]]) -> Any:
        seen: list[Any] = []
        for which in ([0], [1], [2], [1, 4], [4], [0, 3], [0, 1, 2, 3, 4]):
            for start in (0.0, 2.0):
                x, w = leaf(start, 1.0), leaf(2.0, 3.0)
                results = f(x, w)
                torch.stack([results[k].square().sum() for k in which]).sum().backward()
                seen += gradients(x, w)
        return torch.stack([torch.full((2,), -7.0) if t is None else t for t in seen])

    def nan_is_a_number(f: Callable[..., list[Tensor]]) -> Any:
        return use(f).nan_to_num(nan=-9.0)

    alike(function, nan_is_a_number)
