"""Kernels called by their C++ entry give what torch's bindings give, are heard by modes, and fail as they do."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

import autograd_opt as ao
from autograd_opt.abi import symbols, tensor_info
from autograd_opt.abi.kernel_names import SINGLES
from benchmarks.counting import KernelCounter


@pytest.fixture
def as_found() -> Iterator[None]:
    yield
    tensor_info.install_kernels(symbols.kernels())


def step(weight: torch.Tensor | None, reduction: str, optimize: bool) -> list[torch.Tensor]:
    torch.manual_seed(0)
    x, target = torch.randn(2, 3, 5), torch.tensor([0, 2, 1, -100, 3, 0])
    leaves = [torch.randn(n, requires_grad=True) for n in ((4, 5), (4,), (4, 4), (4,))]
    w, b, v, c = leaves
    with ao.AutogradGraph(optimize=optimize):
        y = F.relu(F.linear(x, w, b)).reshape(6, 4)
        loss = F.cross_entropy(F.linear(y, v, c) + y @ v, target, weight, reduction=reduction).sum()
        loss.backward()
    return [loss.detach(), *(t.grad for t in leaves if t.grad is not None)]


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.usefixtures("as_found")
def test_either_way_gives_the_same_bits(optimize: bool, reduction: str, weighted: bool) -> None:
    weight = torch.tensor([0.5, 1.0, 2.0, 0.25]) if weighted else None
    direct = step(weight, reduction, optimize)
    tensor_info.install_kernels({})
    bound = step(weight, reduction, optimize)
    assert len(direct) == len(bound) == 5
    assert all(torch.equal(a, b) for a, b in zip(direct, bound, strict=True))


def elementwise(dtype: torch.dtype, optimize: bool) -> list[torch.Tensor]:
    """A loss and gradients of every elementwise operator, on operands that broadcast, views and numbers."""
    torch.manual_seed(0)
    x, y = (torch.rand(3, 4, dtype=dtype).requires_grad_() for _ in range(2))
    b = torch.rand(4, 1, dtype=dtype).requires_grad_()
    with ao.AutogradGraph(optimize=optimize):
        u, v = x * y + x / (y + 0.5) - b.t(), (y.t() * b - 2.0).t()
        total = (u * v).sum() + (v / (1.0 + u * u)).mean() + (-u * 3).sum() + (x[1:] * y[:2] * x[:2]).sum()
        for name in SINGLES:
            total = total + (getattr(torch, name)(x) * getattr(x * y + 0.25, name)()).sum()
        (first,) = torch.autograd.grad(total, x, create_graph=True)
        (first.tanh() * first.sigmoid()).sum().backward()
    return [total.detach(), first.detach(), *(t.grad for t in (x, y, b) if t.grad is not None)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.usefixtures("as_found")
def test_elementwise_kernels_give_the_same_bits(dtype: torch.dtype, optimize: bool) -> None:
    for _ in range(4):                   # until what to keep for reuse has been learned at this place
        direct = elementwise(dtype, optimize)
    with Heard() as heard:
        elementwise(dtype, optimize)
    tensor_info.install_kernels({})
    bound = elementwise(dtype, optimize)
    assert len(direct) == len(bound) == 5
    assert all(torch.equal(a, b) for a, b in zip(direct, bound, strict=True))
    with Heard() as named:
        elementwise(dtype, optimize)
    assert heard.names == named.names
    assert {"mul.Tensor", "add.Tensor", "neg.default", "sin.default", "tanh_backward.default"} <= set(heard.names)


@pytest.mark.parametrize("wrong", ["sin", "mul", "sub_", "addcdiv_", "tanh_backward"])
def test_an_elementwise_function_that_says_something_else_is_left(monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    if not symbols.kernels():
        pytest.skip("this build of torch does not export the entries, or no C++ compiler was there")
    other = {"sin": "cos", "mul": "div", "sub_": "add_", "addcdiv_": "addcmul_", "tanh_backward": "sigmoid_backward"}
    monkeypatch.setattr(symbols, "ELEMENTWISE", {**symbols.ELEMENTWISE, wrong: symbols.ELEMENTWISE[other[wrong]]})
    assert symbols.kernels() == {}
    monkeypatch.setattr(symbols, "ELEMENTWISE", {**symbols.ELEMENTWISE, wrong: "_ZN2at4_ops11no_such_name4callEv"})
    assert symbols.kernels() == {}
    monkeypatch.undo()
    assert symbols.kernels()


@pytest.mark.parametrize("call", [
    lambda x: x * torch.ones(7), lambda x: torch.ones(7) - x, lambda x: x / torch.ones(2, 7, requires_grad=True)])
def test_an_elementwise_kernel_fails_as_its_binding_does(call: Any) -> None:
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError) as expected:
        call(x)
    with ao.AutogradGraph(optimize=True), pytest.raises(RuntimeError) as found:
        call(x)
    assert str(expected.value) in str(found.value)


def test_functions_that_say_something_else_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    if not symbols.kernels():
        pytest.skip("this build of torch does not export the entries, or no C++ compiler was there")
    other = {**symbols.KERNELS, "mm": "_ZN2at4_ops4kron4callERKNS_6TensorES4_"}     # takes and returns the same types
    monkeypatch.setattr(symbols, "KERNELS", other)
    assert symbols.kernels() == {}
    monkeypatch.setattr(symbols, "KERNELS", {**other, "mm": "_ZN2at4_ops11no_such_name4callEv"})
    assert symbols.kernels() == {}
    monkeypatch.undo()
    assert symbols.kernels()


@pytest.mark.usefixtures("as_found")
def test_each_function_alone_can_be_missing() -> None:
    functions = symbols.kernels()
    if not functions:
        pytest.skip("this build of torch does not export the entries, or no C++ compiler was there")
    assert len(functions) == 9 + len(symbols.ELEMENTWISE)
    expected = step(None, "mean", True)
    for left_out in functions:
        tensor_info.install_kernels({name: f for name, f in functions.items() if name != left_out})
        assert all(torch.equal(a, b) for a, b in zip(step(None, "mean", True), expected, strict=True))


CONVOLUTIONS: dict[str, Any] = {
    "one axis": lambda x, w, b: torch.conv1d(x[:, :, 0], w[:, :, 0], b, 2, 1),
    "two axes": lambda x, w, b: torch.conv2d(x, w, b, (2, 1), (1, 0), (1, 2)),
    "three axes": lambda x, w, b: torch.conv3d(x[:, :, None], w[:, :, None], b, padding=(0, 1, 2)),
    "in groups": lambda x, w, b: torch.conv2d(x, w[:, :2], b, groups=2, padding="same", dilation=2),
    "transposed": lambda x, w, b: torch.conv_transpose2d(x, w, b, 2, 1, (1, 0)),
    "of one image": lambda x, w, b: torch.conv2d(x[0], w, b),
    "without bias": lambda x, w, b: torch.conv2d(x, w),
    "of an image alone": lambda x, w, b: torch.conv2d(x, w.detach()),
    "by the weight alone": lambda x, w, b: torch.conv2d(x.detach(), w, b.detach()),
}


def convolved(call: Any, dtype: torch.dtype) -> list[torch.Tensor]:
    """The gradients of a convolution of four channels."""
    torch.manual_seed(0)
    x, w, b = (torch.randn(shape, dtype=dtype).requires_grad_() for shape in ((2, 4, 6, 7), (4, 4, 3, 3), (4,)))
    with ao.AutogradGraph(optimize=True):
        call(x, w, b).square().sum().backward()
    return [t.grad for t in (x, w, b) if t.grad is not None]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.usefixtures("as_found")
def test_the_backward_of_a_convolution_gives_the_same_bits(name: str, dtype: torch.dtype) -> None:
    direct = convolved(CONVOLUTIONS[name], dtype)
    with Heard() as heard:
        convolved(CONVOLUTIONS[name], dtype)
    functions = symbols.kernels()
    tensor_info.install_kernels({name: f for name, f in functions.items() if name != "convolution_back"})
    bound = convolved(CONVOLUTIONS[name], dtype)
    assert direct
    assert len(direct) == len(bound)
    assert all(torch.equal(a, b) for a, b in zip(direct, bound, strict=True))
    with Heard() as named:
        convolved(CONVOLUTIONS[name], dtype)
    assert heard.names == named.names
    assert "convolution_backward.default" in heard.names


@pytest.mark.usefixtures("as_found")
def test_what_a_mode_raises_in_the_backward_of_a_convolution_comes_through_once() -> None:
    with Refusing("convolution_backward.default") as mode, pytest.raises(LookupError, match="convolution_backward"):
        convolved(CONVOLUTIONS["two axes"], torch.float64)
    assert mode.calls == 1
    assert len(convolved(CONVOLUTIONS["two axes"], torch.float64)) == 3


def test_a_convolution_that_says_something_else_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    if not symbols.kernels():
        pytest.skip("this build of torch does not export the entries, or no C++ compiler was there")
    monkeypatch.setattr(symbols, "KERNELS", {**symbols.KERNELS, "convolution_back": "_ZN2at4_ops11no_such_name4callEv"})
    assert symbols.kernels() == {}
    monkeypatch.undo()
    assert symbols.kernels()


class Heard(TorchDispatchMode):
    """The names of what reaches the dispatcher."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func.__name__)
        return func(*args, **(kwargs or {}))


@pytest.mark.usefixtures("as_found")
def test_a_dispatch_mode_hears_the_same() -> None:
    with Heard() as direct:
        step(None, "mean", True)
    tensor_info.install_kernels({})
    with Heard() as bound:
        step(None, "mean", True)
    assert direct.names == bound.names
    assert {"mm.default", "linear.default", "nll_loss_backward.default"} <= set(direct.names)


class Refusing(TorchDispatchMode):
    """A mode that raises once."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name, self.calls = name, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.__name__ == self.name:
            self.calls += 1
            if self.calls == 1:
                raise LookupError(self.name)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", [
    "mm.default", "linear.default", "threshold_backward.default", "nll_loss_forward.default",
    "nll_loss_backward.default", "sum.dim_IntList", "t.default",
])
def test_what_a_mode_raises_comes_through_once(name: str) -> None:
    with Refusing(name) as mode, pytest.raises(LookupError, match=name):
        step(None, "mean", True)
    assert mode.calls == 1


@pytest.mark.usefixtures("as_found")
def test_errors_are_the_bindings() -> None:
    w, b = torch.randn(4, 5, requires_grad=True), torch.randn(4)
    x = torch.randn(3, 4, requires_grad=True)
    calls = [
        lambda: F.linear(torch.randn(3, 2), w, b),
        lambda: F.linear(torch.randn(3, 5, dtype=torch.float64), w, b),
        lambda: F.cross_entropy(x, torch.tensor([0, 9, 1])),
        lambda: torch._C._nn.nll_loss(x, torch.tensor([0.0, 9.0, 1.0])),
        lambda: torch._C._nn.nll_loss(x, torch.tensor([0, 1, 1]), torch.ones(7)),
    ]
    for functions in ({}, symbols.kernels()):
        tensor_info.install_kernels(functions)
        for call in calls:
            with pytest.raises((RuntimeError, IndexError)) as plain:
                call()
            with ao.AutogradGraph(optimize=True), pytest.raises((RuntimeError, IndexError)) as recorded:
                call()
            assert type(recorded.value) is type(plain.value)
            assert str(recorded.value).splitlines()[0] == str(plain.value).splitlines()[0]


@pytest.mark.parametrize("optimize", [False, True])
def test_views_of_constants_are_computed_once(optimize: bool) -> None:
    """Also where a tensor with views has come to require grad, in this graph or in one before it."""
    base, constant = torch.ones(4), torch.arange(6).reshape(2, 3)
    view = base[1:]
    for inside in (True, False):
        with ao.AutogradGraph(optimize=optimize), KernelCounter() as counter:
            if inside:
                base.requires_grad_()
            flat, doubled = constant[:, 1:].reshape(-1), constant.double()[:, 1:].contiguous()
        assert counter.names["clone"] == 2
        assert flat.tolist() == doubled.flatten().tolist() == [1, 2, 4, 5]
    assert view.requires_grad


def test_other_threads_run_meanwhile() -> None:
    """A kernel lets go of the interpreter, or the second thread could not set the flag before the loop is over."""
    w, seen, stop = torch.randn(700, 700, requires_grad=True), [0], threading.Event()

    def count() -> None:
        while not stop.is_set():
            seen[0] += 1

    thread = threading.Thread(target=count)
    thread.start()
    try:
        with ao.AutogradGraph():
            for _ in range(3):
                F.linear(w, w, w[0]).sum().backward()
    finally:
        stop.set()
        thread.join()
    assert seen[0] > 0


def held(t: torch.Tensor) -> tuple[int, int]:
    """How many tensors of C++ there are of `t`, and how many over its memory."""
    return t._use_count(), torch._C._storage_Use_Count(t.untyped_storage()._cdata)  # type: ignore[attr-defined]


def test_nothing_is_left_behind() -> None:
    """Results are held as often as torch eager's, and what a product has transposed no more."""
    x, w, b = torch.randn(3, 5), torch.randn(4, 5, requires_grad=True), torch.randn(4, requires_grad=True)
    target = torch.tensor([0, 3, 1])

    def forward() -> torch.Tensor:
        return F.cross_entropy(F.relu(F.linear(x, w, b)), target)

    forward().backward()
    assert w.grad is not None
    assert b.grad is not None
    expected = [held(t) for t in (x, w, b, w.grad, b.grad, target)]
    for _ in range(3):
        w.grad = b.grad = None
        with ao.AutogradGraph(optimize=True):
            loss = forward()
            loss.backward()
        assert [held(t) for t in (x, w, b, w.grad, b.grad, target)] == expected
    assert held(loss) == held(torch.zeros(()))
