"""What an open call, an edge or a frame holds stays in the graph, whoever drops dead records meanwhile."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.autograd.graph import get_gradient_edge
from torch.utils.checkpoint import checkpoint

import autograd_opt as ao
from autograd_opt.graph.tape import compact_always

Tensor = torch.Tensor


@pytest.fixture(params=[False, True], ids=["as due", "always"])
def compacting(request: pytest.FixtureRequest) -> Iterator[None]:
    """Dead records are dropped when it is due, and at every append."""
    before = compact_always(request.param or compact_always(False))
    yield
    compact_always(before)


pytestmark = pytest.mark.usefixtures("compacting")


def same_as_torch(program: Callable[[], Any]) -> None:
    """`program` returns in a context of either kind what it returns outside."""
    expected = program()
    for optimize in (False, True):
        with ao.AutogradGraph(optimize=optimize):
            assert program() == expected, optimize


def churn(steps: int = 33) -> None:
    """Differentiate something else so often that dead records are dropped."""
    z = torch.ones(3, requires_grad=True)
    with torch.enable_grad():
        for _ in range(steps):
            torch.autograd.grad((z * z + z).sum(), z)


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return 2 * g * ctx.saved_tensors[0]


class Implicit(Square):
    """Its forward differentiates."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        churn()
        return x * x


class Nested(Square):
    """Its forward calls a Function that differentiates, and writes the leaf's memory before and after."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        x.data += 1
        with torch.enable_grad():
            y = Implicit.apply(x.detach().requires_grad_())
            torch.autograd.grad(y.sum() * x.sum(), x)
        x.data -= 1
        churn()
        return x * x


class Detaching(torch.autograd.Function):
    """Its forward cuts its operand off, which was recorded before."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        x.detach_()
        churn()
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return 2 * g


def by_data(w: Tensor, step: Tensor) -> None:
    w.data -= 1e-2 * step


def by_array(w: Tensor, step: Tensor) -> None:
    w.detach().numpy()[...] -= 1e-2 * step.numpy()


def by_no_grad(w: Tensor, step: Tensor) -> None:
    with torch.no_grad():
        w -= 1e-2 * step


ASKS: dict[str, Callable[..., Tensor | None]] = {
    "backward": lambda y, w, v: (y.backward(), w.grad)[1],
    "inputs": lambda y, w, v: (y.backward(inputs=[w, v]), w.grad)[1],
    "grad": lambda y, w, v: torch.autograd.grad(y, (w, v), materialize_grads=True)[0],
    "allowed": lambda y, w, v: torch.autograd.grad(y, (w, v), allow_unused=True)[0],
}
CALLS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "function": lambda w, v: Square.apply(w),
    "differentiates": lambda w, v: Implicit.apply(w),
    "nested": lambda w, v: Nested.apply(w),
    "twice": lambda w, v: Square.apply(Implicit.apply(w)) + Implicit.apply(w * 1.5),
    "reentrant": lambda w, v: checkpoint(lambda t: t * t * v, w, use_reentrant=True),
    "recomputed": lambda w, v: checkpoint(lambda t: t * t * v, w, use_reentrant=False),
    "reentrant differentiates": lambda w, v: checkpoint(lambda t: (churn(), t * t * v)[1], w, use_reentrant=True),
    "recomputed differentiates": lambda w, v: checkpoint(lambda t: (churn(), t * t * v)[1], w, use_reentrant=False),
    "nested checkpoints": lambda w, v: checkpoint(
        lambda t: checkpoint(lambda s: (churn(), s.sin() * v)[1], t * t, use_reentrant=False), w, use_reentrant=True),
}


@pytest.mark.parametrize(("call", "ask", "write"), [
    *((call, "backward", by_data) for call in CALLS),
    *((call, "grad", by_data) for call in ("differentiates", "nested", "twice", "recomputed differentiates")),
    *(("function", ask, write) for ask in ASKS for write in (by_data, by_array, by_no_grad)),
    *((call, "backward", by_array) for call in ("differentiates", "nested", "reentrant")),
])
def test_the_operand_of_an_open_call(call: str, ask: str, write: Callable[[Tensor, Tensor], None]) -> None:
    def program() -> Any:
        w, v = torch.tensor([2.0], requires_grad=True), torch.tensor([1.0], requires_grad=True)
        found = []
        for _ in range(12 if call in ("function", "reentrant", "recomputed") else 3):
            w.grad = v.grad = None
            g = ASKS[ask]((CALLS[call](w, v) * 1.01 * 1.01 * 1.01 * v).sum(), w, v)
            found.append(None if g is None else g.tolist())
            write(w, w.detach() * 2 if g is None else g)
        return found

    same_as_torch(program)


def test_an_operand_that_its_function_detaches() -> None:
    def program() -> Any:
        x = torch.tensor([3.0], requires_grad=True)
        y = (x * x).exp()
        out = Detaching.apply(y)
        return torch.autograd.grad(out, x)[0].tolist()

    same_as_torch(program)


def test_a_call_that_raises() -> None:
    """After it, the operand is held by nobody: what it has saved is freed with its tensor."""
    class Raises(Square):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            churn()
            raise ValueError

    for optimize in (False, True):
        with ao.AutogradGraph(optimize=optimize):
            x = torch.ones(3, requires_grad=True)
            y = (x * 2).exp()
            node = y.grad_fn
            with contextlib.suppress(ValueError):
                Raises.apply(y)
            assert torch.autograd.grad(y.sum(), x, retain_graph=True)[0] is not None
            assert node.alive
            del y
            assert not node.alive


def test_edges_and_functions_that_the_user_holds() -> None:
    def program() -> Any:
        seen: list[Any] = []
        x = torch.tensor([3.0, 4.0], requires_grad=True)
        leaf = get_gradient_edge(x)
        leaf.node.register_hook(lambda *_: seen.append(1))
        first, second = (x * x).unbind()
        edge, made = get_gradient_edge(first), second.grad_fn
        del first, second
        churn()
        step, names = made, []
        while step is not None:
            names.append(step.name())
            step = step.next_functions[0][0] if step.next_functions else None
        return (torch.autograd.grad(edge, x, torch.ones(()))[0].tolist(),
                torch.autograd.grad((x * 2).sum(), leaf)[0].tolist(), (x * 3).sum().backward(), seen, names)

    same_as_torch(program)


@pytest.mark.parametrize("recomputes", [False, True])
def test_hooks_that_record_and_differentiate(recomputes: bool) -> None:
    """Record numbers that a run has asked for stay what they are until its last hook."""
    def program() -> Any:
        x, z = torch.tensor([3.0], requires_grad=True), torch.tensor([4.0], requires_grad=True)
        h = x * z
        y = (h.exp() * h).sum()

        def hook(g: Tensor) -> Tensor:
            churn()
            return g * 2

        for t in (x, z, h):
            t.register_hook(hook)
        y.backward(inputs=[x, h, z], retain_graph=recomputes)
        if recomputes:
            y.backward()
        return [None if t.grad is None else t.grad.tolist() for t in (x, z)]

    same_as_torch(program)


def test_saved_tensor_hooks_that_differentiate() -> None:
    def program() -> Any:
        def pack(t: Tensor) -> Tensor:
            with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
                churn()
            return t

        x = torch.tensor([3.0], requires_grad=True)
        with torch.autograd.graph.saved_tensors_hooks(pack, pack):
            y = (x * x).exp().sum()
        (g,) = torch.autograd.grad(y, x, create_graph=True)
        return torch.autograd.grad(g.sum(), x)[0].tolist()

    same_as_torch(program)


def test_a_transform_whose_function_differentiates() -> None:
    def program() -> Any:
        w = torch.tensor([2.0], requires_grad=True)

        def f(x: Tensor) -> Tensor:
            churn()
            return (x * x * w.detach()).sum()

        outer = torch.func.grad(f)(w * 3)
        return torch.autograd.grad(outer.sum() + (w * w).sum(), w)[0].tolist()

    same_as_torch(program)


def test_written_leaves_do_not_pile_up() -> None:
    """A leaf whose memory was written leaves a long-lived graph as any other."""
    with ao.AutogradGraph() as graph:
        for _ in range(300):
            z = torch.ones(3, requires_grad=True)
            y = (z * 2).sum()
            with torch.no_grad():
                z += 1
            (y + (z * 3).sum()).backward()
        del z, y
        churn(3)
        assert len(graph.tape) < 500
