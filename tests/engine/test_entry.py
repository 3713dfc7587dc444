"""The backward of an ordinary step, and an ordinary `grad`, take a way of their own; everything else must not."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import autograd_opt as ao
from autograd_opt.engine.entry import backward_usual, grad_usual

X = torch.tensor([[0.5, -1.0], [2.0, 0.25]])


def leaf() -> Tensor:
    return X.clone().requires_grad_()


def usual(*arguments: Any) -> Any:
    return grad_usual(*arguments) or pytest.fail("another way")


@pytest.fixture(autouse=True)
def _known_thread() -> None:
    """The first run of a thread makes the list of its runs, and never takes the short way."""
    with ao.AutogradGraph():
        leaf().sum().backward()


def test_an_ordinary_step_takes_it() -> None:
    x, y = leaf(), leaf()
    (y.exp() * y).sum().backward()
    with ao.AutogradGraph(optimize=True):
        x.exp().sum().backward()             # the first run of a thread makes the list of its runs
        x.grad = None
        assert backward_usual((x.exp() * x).sum())
    assert x.grad is not None
    assert y.grad is not None
    assert torch.equal(x.grad, y.grad)


@pytest.mark.parametrize("optimize", [False, True])
def test_an_ordinary_grad_takes_it(optimize: bool) -> None:
    def rows(x: Tensor, grad: Callable[[Tensor], Any]) -> list[Tensor]:
        (first,) = torch.autograd.grad((x.exp() * x.exp() * x[:1]).sum(), x, create_graph=True)
        return [grad(entry)[0] for entry in first.flatten().unbind()]

    x, y = leaf(), leaf()
    expected = rows(y, lambda entry: torch.autograd.grad(entry, y, retain_graph=True))
    with ao.AutogradGraph(optimize=optimize):
        found = rows(x, lambda entry: usual((entry,), (x,), None, True, False, False))
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("optimize", [False, True])
def test_an_ordinary_grad_in_results_takes_it(optimize: bool, create_graph: bool) -> None:
    def run(grad: Callable[..., Any]) -> list[Tensor]:
        x, v = leaf(), leaf()
        y, z = x.view_as(x), (x * v).exp()
        w = z * 1
        w.mul_(2)
        root = (y * z * w).sum() + (x.exp() * x.exp() * z).sum()
        found = list(grad(root, (y, z, w, x), None, True, create_graph))
        if create_graph:
            sum((g * g).sum() for g in found).backward()
            return [*found, x.grad, v.grad]
        return found

    expected = run(torch.autograd.grad)
    with ao.AutogradGraph(optimize=optimize):
        found = run(lambda *arguments: usual(*arguments, False))
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, check_stride=True)
        assert a.requires_grad == b.requires_grad


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("optimize", [False, True])
def test_a_product_with_a_jacobian_takes_it(optimize: bool, create_graph: bool) -> None:
    def run(grad: Callable[..., Any]) -> list[Tensor]:
        x, v = leaf(), leaf()
        (first,) = torch.autograd.grad((x.exp() * x.exp() * v).sum(), x, create_graph=True)
        (second,) = grad(first, x, v * 2, True, create_graph)
        (third,) = grad(first.sum(), [x], None, None, create_graph)
        if create_graph:
            (second * third).sum().backward()
            assert x.grad is not None
            assert v.grad is not None
            return [second, third, x.grad, v.grad]
        with pytest.raises(RuntimeError, match="second time"):
            torch.autograd.grad(first.sum(), x)
        return [second, third]

    expected = run(torch.autograd.grad)
    with ao.AutogradGraph(optimize=optimize):
        found = run(lambda *arguments: usual(*arguments, False))
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, check_stride=True)
        assert a.requires_grad == b.requires_grad


@pytest.mark.parametrize("optimize", [False, True])
def test_a_recorded_grad_restores_what_it_has_switched(optimize: bool) -> None:
    x = leaf()
    with ao.AutogradGraph(optimize=optimize):
        y = (x.exp() * x).sum()
        with torch.no_grad():
            (g,) = torch.autograd.grad(y, x, create_graph=True)
            assert not torch.is_grad_enabled()
        assert g.requires_grad
        y = (x.exp() * x).sum()
        y.register_hook(lambda g: 1 / 0)
        depth = torch._C._len_torch_function_stack()
        with pytest.raises(ZeroDivisionError):
            torch.autograd.grad(y, x, create_graph=True)
        assert torch._C._len_torch_function_stack() == depth
        g.sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, X.exp() * (X + 2))


@pytest.mark.parametrize("optimize", [False, True])
def test_an_ordinary_grad_of_several_leaves_takes_it(optimize: bool) -> None:
    def run(grad: Callable[..., Any]) -> tuple[Any, ...]:
        x, y, z, unused = leaf(), leaf(), torch.tensor(2.0, requires_grad=True), leaf()
        loss = (x.exp() * y + x.exp() * z).sum() + z
        found: tuple[Any, ...] = grad(loss, [x, y, z, unused], unused * 3)
        return found

    expected = run(lambda loss, leaves, _: torch.autograd.grad(loss, leaves, allow_unused=True))
    with ao.AutogradGraph(optimize=optimize):
        found = run(lambda loss, leaves, _: usual(loss, leaves, None, False, False, True))
    assert found[3] is expected[3] is None
    for a, b in zip(found[:3], expected[:3], strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("given", [None, (None, 2.0, 3.0)])
@pytest.mark.parametrize("optimize", [False, True])
def test_an_ordinary_grad_of_several_outputs_takes_it(optimize: bool, given: Any, recorded: bool) -> None:
    def run(grad: Callable[..., Any]) -> list[Tensor]:
        x = leaf()
        y = (x * x).sin().flatten() * x.exp().flatten()
        cotangents = given and tuple(None if g is None else torch.tensor(g, dtype=y.dtype) for g in given)
        (first,) = grad(y[:3].unbind(0), x, cotangents, recorded, recorded)
        if recorded:
            assert first.requires_grad
            (first.square().sum() * y.sum()).backward()
            assert x.grad is not None
            return [first.detach(), x.grad]
        return [first]

    expected = run(torch.autograd.grad)
    with ao.AutogradGraph(optimize=optimize):
        found = run(lambda *arguments: usual(*arguments, False))
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, check_stride=True)


def test_several_outputs_one_of_which_is_another_kind_go_the_usual_way_of_all() -> None:
    x = leaf()
    with ao.AutogradGraph(optimize=True):
        loss, other = x.exp().sum(), x.sin()
        scalars = loss, other.sum()
        for outputs, given in (
            ((loss, other), None), ((loss, X), None), ((loss, other), (None, None)), ((loss, loss), None), ((), None),
            (scalars, (None,)), (scalars, ([torch.ones(())], None)), (scalars, torch.ones(())),
        ):
            assert grad_usual(outputs, x, given, True, False, False) is None
        assert grad_usual((loss, other), x, (None, X), True, False, False) is not None


def test_gradients_of_several_leaves_share_what_torchs_share() -> None:
    def run() -> list[float]:
        x, y, z = (torch.tensor(2.0, requires_grad=True) for _ in range(3))
        root = (x + y) * 1 + (x + y) * 1 + z
        first, second, third = torch.autograd.grad(root, (x, y, z), retain_graph=True)
        first.mul_(5)
        with pytest.raises(RuntimeError, match="appears to not have been used"):
            torch.autograd.grad(root, (x, torch.tensor(1.0, requires_grad=True)))
        return [first.item(), second.item(), third.item()]

    expected = run()
    for optimize in (False, True):
        with ao.AutogradGraph(optimize=optimize):
            assert run() == expected


def test_an_ordinary_grad_frees_and_misses_as_any_other() -> None:
    x, y = leaf(), leaf()
    with ao.AutogradGraph(optimize=True):
        loss = (x.exp() * x.exp()).sum()
        (y * 3).sum().backward()
        with pytest.raises(RuntimeError, match="index 0 appears to not have been used"):
            torch.autograd.grad(loss, y, retain_graph=True)
        assert torch.autograd.grad(loss, y, retain_graph=True, allow_unused=True) == (None,)
        assert torch.equal(torch.autograd.grad(loss, x)[0], 2 * X.exp() * X.exp())
        with pytest.raises(RuntimeError, match="second time"):
            torch.autograd.grad(loss, x)


def test_the_result_of_an_ordinary_grad_is_memory_of_its_own() -> None:
    x = torch.tensor(2.0, requires_grad=True)
    with ao.AutogradGraph(optimize=True):
        y = (x * 1) + (x * 1)
        (first,) = torch.autograd.grad(y, x, retain_graph=True)
        first.mul_(5)
        assert torch.autograd.grad(y, x)[0].item() == 2


class Inner(torch.autograd.Function):
    """The backward differentiates again, each time a small graph of its own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, grad: Callable[..., Any]) -> Tensor:
        ctx.save_for_backward(x)
        ctx.grad = grad
        return x.sin()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            a, unused = x.detach().requires_grad_(), torch.ones(2, requires_grad=True)
            b = a.exp()
            c = b * a
            first, second, none = ctx.grad(c, (a, b, unused), g)
        assert none is None
        return first + second, None


@pytest.mark.parametrize("optimize", [False, True])
def test_an_ordinary_grad_is_of_any_tensor_in_any_tensors_and_inside_a_run(optimize: bool) -> None:
    def run(grad: Callable[..., Any]) -> list[Tensor]:
        x, seen = leaf(), []
        y = Inner.apply(x, grad)
        z = y * y
        y.register_hook(lambda g: seen.append(g) or g * 2)
        found = [*grad(z, (y, x), X), *grad((y,), [y], (X,)), *grad(z.sum(), [z, y], None)]
        found[2].mul_(1)
        return [*found, *seen]

    expected = run(lambda outputs, inputs, given: torch.autograd.grad(
        outputs, inputs, given, retain_graph=True, allow_unused=True))
    with ao.AutogradGraph(optimize=optimize):
        found = run(lambda outputs, inputs, given: usual(outputs, inputs, given, True, False, True))
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("optimize", [False, True])
def test_an_ordinary_grad_can_be_differentiated(optimize: bool) -> None:
    def run(grad: Callable[..., Any]) -> list[Tensor]:
        x, w, unused = leaf(), leaf(), leaf()
        y = x * w
        z, given = y * y.exp(), w.sin()
        with torch.no_grad():
            first, none = grad(z, (x, unused), given)
        (second,) = grad(y.cos().sum(), y, None)
        assert none is None
        assert first.requires_grad
        return [first, second, *torch.autograd.grad(first.mul_(second).square().sum() + second.sum(), (x, w))]

    expected = run(lambda outputs, inputs, given: torch.autograd.grad(
        outputs, inputs, given, create_graph=True, allow_unused=True))
    with ao.AutogradGraph(optimize=optimize):
        found = run(lambda outputs, inputs, given: usual(outputs, inputs, given, None, True, True))
        assert torch.is_grad_enabled()
        x = leaf()
        y = x * x
        y.register_hook(lambda g: g if 1 // 0 else None)
        with pytest.raises(ZeroDivisionError):
            grad_usual(y.sum(), x, None, None, True, False)
        assert (leaf() * 2).grad_fn is not None
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("optimize", [False, True])
def test_the_root_of_a_grad_may_be_a_leaf_that_nothing_has_read(optimize: bool) -> None:
    with ao.AutogradGraph(optimize=optimize):
        c = (torch.rand(3) + 0.5).requires_grad_()
        (g,) = torch.autograd.grad(c, c, X[0, :1].expand(3))
    assert torch.equal(g, X[0, :1].expand(3))


def test_gradients_inside_gradients_go_as_deep_as_torchs() -> None:
    def run(depth: int) -> float:
        x = torch.tensor(0.5, requires_grad=True)

        @torch.enable_grad()
        def below(left: int) -> Tensor:
            y = x * (left + 1)
            if left:
                y.register_hook(lambda g: g + below(left - 1))
            return torch.autograd.grad(y * y, x)[0]

        return below(depth).item()

    expected = run(60)
    with ao.AutogradGraph(optimize=True):
        assert run(60) == expected


def test_other_grads_do_not() -> None:
    x = leaf()
    with ao.AutogradGraph(optimize=True):
        y = x.exp()
        loss = (y * y).sum()
        for outputs, inputs, given in (
            (y, x, None), (loss, (x, x), None), ((loss, loss), x, None), (loss, x, (torch.ones(1),)), (loss, x, ()),
            (y, x, X[0]), (y, x, X.double()), (y, x, X.to_sparse()), (loss, x, (None, None)), (loss, X, None),
            (X.sum(), x, None), (loss.detach(), x, None), (y, (y, y), X),
        ):
            assert grad_usual(outputs, inputs, given, True, False, False) is None
        z = leaf()
        z.register_hook(lambda g: g * 2)
        assert grad_usual((z * 3).sum(), z, None, True, False, False) is None
        with torch.autograd.set_detect_anomaly(True):
            assert grad_usual(loss, x, None, True, False, False) is None
        assert grad_usual(loss, x, None, True, False, False) is not None
    with ao.AutogradGraph(anomaly=True):
        assert grad_usual((x * 3).sum(), x, None, False, False, False) is None
    assert grad_usual((x * 3).sum(), x, None, False, False, False) is None


REFUSED: dict[str, Callable[[Tensor], Any]] = {
    "a vector": lambda x: x * 2,
    "a leaf": lambda x: x,
    "nothing to differentiate": lambda x: x.detach().sum() * 2,
    "written since": lambda x: (lambda y: (y.detach().zero_(), y)[1])((x * 2).sum()),
    "a tensor of torch's": lambda x: torch.ones(()),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_roots_do_not(name: str) -> None:
    x = leaf()
    with ao.AutogradGraph(optimize=True):
        (x * 3).sum().backward()
        x.grad = None
        assert not backward_usual(REFUSED[name](x))
        assert x.grad is None


def test_other_graphs_do_not() -> None:
    x = leaf()
    for options in ({"verify": True}, {"anomaly": True}, {"optimize": True, "passes": ["cse"]}):
        with ao.AutogradGraph(**options):
            assert not backward_usual((x * 3).sum())
    with torch.autograd.set_detect_anomaly(True), ao.AutogradGraph():
        assert not backward_usual((x * 3).sum())
    assert not backward_usual((x * 3).sum())
    assert x.grad is None


def test_twins_are_merged_as_the_passes_say() -> None:
    x = leaf()
    with ao.AutogradGraph(optimize=True) as graph:
        assert backward_usual((x.exp() * x.exp()).sum())
        assert (graph.planned[1], graph.tape.merges.handed) == (1, 1)
    torch.testing.assert_close(x.grad, 2 * (2 * X).exp())


def test_a_root_of_an_outer_graph_does_not() -> None:
    x = leaf()
    with ao.AutogradGraph():
        loss = (x * 3).sum()
        with ao.AutogradGraph():
            assert not backward_usual(loss)
            with pytest.raises(ao.GraphMismatchError):
                loss.backward()
        loss.backward()
    assert torch.equal(x.grad, torch.full_like(X, 3.0))


def test_a_run_inside_a_run_does_not() -> None:
    x, seen = leaf(), []
    with ao.AutogradGraph():
        inner = (x * 5).sum()
        loss = (x * 2).sum()
        loss.register_hook(lambda g: seen.append(backward_usual(inner)))
        loss.backward()
    assert seen == [False]


def test_what_a_hook_raises_leaves_every_mode_as_it_was() -> None:
    x = leaf()

    def hook(g: Tensor) -> None:
        raise KeyError("mine")

    with ao.AutogradGraph():
        y = x * 2
        y.register_hook(hook)
        with pytest.raises(KeyError):
            y.sum().backward()
        assert torch.is_grad_enabled()
        z = F.relu(x)
        assert z.requires_grad
        z.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, (X > 0).float())


def test_hooks_run_with_gradients_off() -> None:
    x, seen = leaf(), []
    with ao.AutogradGraph():
        y = x * 2
        y.register_hook(lambda g: seen.append(torch.is_grad_enabled()))
        y.sum().backward()
    assert seen == [False]


def test_a_callback_runs_after_it_with_gradients_on() -> None:
    x, seen = leaf(), []
    with ao.AutogradGraph():
        y = x * 2
        engine: Any = torch.autograd.Variable._execution_engine

        def callback() -> None:
            seen.append((torch.is_grad_enabled(), x.grad is not None))

        y.register_hook(lambda g: engine.queue_callback(callback))
        y.sum().backward()
    assert seen == [(True, True)]


def test_no_hook_gets_the_seed_that_runs_share() -> None:
    labels = torch.tensor([0, 1])
    for _ in range(2):
        x, y = leaf(), leaf()
        with ao.AutogradGraph():
            loss = F.cross_entropy(x, labels)
            loss.register_hook(lambda g: g.mul_(3) and None)
            loss.backward()
            F.cross_entropy(y, labels).backward()
        expected = torch.autograd.grad(F.cross_entropy(z := leaf(), labels), z)[0]
        assert x.grad is not None
        assert y.grad is not None
        torch.testing.assert_close(x.grad, 3 * expected)
        assert torch.equal(y.grad, expected)


def test_first_gradients_are_memory_of_their_own() -> None:
    w, b = torch.nn.Parameter(X.clone()), torch.nn.Parameter(X[0].clone())
    with ao.AutogradGraph():
        F.linear(X, w, b).relu().sum().backward()
    assert w.grad is not None
    assert b.grad is not None
    before = b.grad.clone()
    w.grad.zero_()
    assert torch.equal(b.grad, before)
    assert w.grad.is_contiguous()
    assert b.grad.is_contiguous()
    turned = torch.nn.Parameter(X.clone().t())           # strides of its own, which its gradient takes over
    with ao.AutogradGraph():
        F.linear(X, turned).sum().backward()
    assert turned.grad is not None
    assert turned.grad.stride() == turned.stride()


class Spoils(TorchDispatchMode):
    """Writes into every number that a kernel is given, after the kernel, and without a new version."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func is torch.ops.aten.nll_loss_backward.default:
            args[0].data.fill_(7.0)
            args[0].numpy()[...] = 7.0
        return result


def test_a_dispatch_mode_is_given_a_first_cotangent_of_its_own() -> None:
    labels = torch.tensor([0, 1])
    expected = torch.autograd.grad(F.cross_entropy(z := leaf(), labels), z)[0]
    for mode in (nullcontext(), Spoils(), Spoils(), nullcontext()):
        x = leaf()
        with ao.AutogradGraph(), mode:
            F.cross_entropy(x, labels).backward()
        assert torch.equal(x.grad, expected)  # type: ignore[arg-type]


def test_a_first_gradient_lies_as_its_leaf_does() -> None:
    turned = torch.arange(9.0).reshape(3, 3).t()
    x = torch.nn.Parameter(torch.ones(3, 3))
    with ao.AutogradGraph():
        (x * turned).sum().backward()
    assert x.grad is not None
    assert x.grad.stride() == x.stride()
    assert torch.equal(x.grad, turned)


ORDERS: dict[str, Callable[[], torch.Tensor]] = {
    "transposed": lambda: torch.arange(1.0, 7.0).reshape(2, 3).t(),
    "channels last": lambda: torch.arange(1.0, 49.0).reshape(2, 3, 4, 2).contiguous(memory_format=torch.channels_last),
    "one row": lambda: torch.arange(1.0, 4.0).reshape(3, 1).t(),
    "a stride of its own": lambda: torch.arange(1.0, 9.0).as_strided((1, 3), (7, 1)),
    "permuted": lambda: torch.arange(1.0, 25.0).reshape(2, 3, 4).permute(2, 0, 1),
}
STEPS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "product": lambda x: (x * x).sum(),
    "contiguous factor": lambda x: (x * torch.full_like(x, 2.0, memory_format=torch.contiguous_format)).sum(),
    "exp": lambda x: x.exp().sum(),
    "twice": lambda x: x.sin().sum() + (x * 3).sum(),
    "threshold": lambda x: x.relu().mul(2).sum(),
    "contiguous": lambda x: x.contiguous().exp().sum(),
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("order", ORDERS)
def test_a_kernels_gradient_is_laid_out_as_a_leaf_in_another_order(order: str, step: str) -> None:
    eager, own = (torch.nn.Parameter(ORDERS[order]()) for _ in range(2))
    STEPS[step](eager).backward()
    with ao.AutogradGraph():
        STEPS[step](own).backward()
    assert own.grad is not None
    assert eager.grad is not None
    assert own.grad.stride() == eager.grad.stride()
    assert torch.equal(own.grad, eager.grad)


def test_the_gradient_of_a_leaf_with_gaps_has_none() -> None:
    for step in STEPS.values():
        eager, own = (torch.nn.Parameter(torch.arange(1.0, 13.0).reshape(3, 4)[:, ::2].detach()) for _ in range(2))
        assert own.stride() == (4, 2)
        step(eager).backward()
        with ao.AutogradGraph():
            step(own).backward()
        assert own.grad is not None
        assert eager.grad is not None
        assert own.grad.stride() == eager.grad.stride() == (2, 1)
        assert torch.equal(own.grad, eager.grad)
