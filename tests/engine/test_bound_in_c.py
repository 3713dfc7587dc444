"""Calls bound without Python: writes in place of results, and indexing by tensors."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

import autograd_opt as ao
from autograd_opt.ops.indexing import bind_index
from autograd_opt.record import inplace

X = torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]])
W = torch.tensor([[2.0, 1.0, -0.5], [0.25, 3.0, 1.0]])

WRITES: dict[str, Callable[[Any, Any], Any]] = {
    "a number": lambda y, w: y.add_(2.0),
    "a tensor": lambda y, w: y.sub_(w),
    "a factor without gradient": lambda y, w: y.mul_(w.detach()),
    "keywords": lambda y, w: y.add_(other=w, alpha=3.0),
    "an operator": operator.iadd,
    "a row of another": lambda y, w: y.add_(w[0]),
    "of one operand": lambda y, w: y.exp_(),
    "three operands": lambda y, w: y.addcmul_(w.detach(), w.detach(), value=0.5),
}


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("name", WRITES)
def test_a_write_of_a_result_takes_no_python(name: str, optimize: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def step(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, int]:
        y = x * 2.0
        assert WRITES[name](y, w) is y
        (y * y).sum().backward()
        return y.detach().clone(), y._version

    x, w = X.clone().requires_grad_(), W.clone().requires_grad_()
    expected = step(x, w)
    a, b = ao.tensor(X), ao.tensor(W)
    monkeypatch.setattr(inplace, "write", lambda *_: pytest.fail("the write was recorded in Python"))
    with ao.AutogradGraph(optimize=optimize):
        found = step(a, b)
        assert torch.equal(found[0], expected[0])
        assert found[1] == expected[1]
        for mine, theirs in ((a, x), (b, w)):
            assert (mine.grad is None) == (theirs.grad is None)
            assert mine.grad is None or torch.equal(mine.grad, theirs.grad)


def test_a_value_that_the_rule_reads_is_copied_before_the_write() -> None:
    x, w = X.clone().requires_grad_(), W.clone().requires_grad_()
    (x * 2.0).mul_(w).sum().backward()
    a, b = ao.tensor(X), ao.tensor(W)
    with ao.AutogradGraph():
        (a * 2.0).mul_(b).sum().backward()
        assert torch.equal(a.grad, x.grad)
        assert torch.equal(b.grad, w.grad)


def test_a_saved_value_that_was_written_is_found() -> None:
    a = ao.tensor(X)
    with ao.AutogradGraph():
        y = a * 2.0
        z = (y * y).sum()
        y.add_(1.0)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            z.backward()


def test_hooks_and_retained_gradients_follow_a_write_as_in_torch() -> None:
    def step(x: torch.Tensor) -> tuple[list[torch.Tensor], torch.Tensor]:
        seen: list[torch.Tensor] = []
        y = x * 2.0
        y.register_hook(lambda g: seen.append(g.clone()))
        y.retain_grad()
        y.mul_(3.0)
        (y * y).sum().backward()
        return seen, y.grad

    hooks, kept = step(X.clone().requires_grad_())
    with ao.AutogradGraph():
        mine, mine_kept = step(ao.tensor(X))
        assert len(mine) == len(hooks) == 1
        assert torch.equal(mine[0], hooks[0])
        assert torch.equal(mine_kept, kept)


ROWS, MASK, ONE = torch.tensor([1, 0, 1]), X > 0, torch.tensor(1)
INDICES: dict[str, Any] = {
    "a tensor": ROWS, "a mask": MASK, "two": (ROWS, ROWS), "after a slice": (slice(None), ROWS),
    "with an axis": (None, ROWS, Ellipsis), "a number and a tensor": (1, ROWS), "a tensor of no axes": ONE,
    "one among others": (ONE, slice(0, 2)), "one before a tensor": (ONE, ROWS),
    "a truth value of no axes": torch.tensor(True),
    "a list": [1, 0], "an array": (slice(None), ROWS.numpy()), "a truth value": True,
}


@pytest.mark.parametrize("name", INDICES)
def test_an_index_is_bound_as_the_table_binds_it(name: str) -> None:
    index = INDICES[name]
    x = X.clone().requires_grad_()
    expected = x[index]
    expected.square().sum().backward()
    a = ao.tensor(X)
    with ao.AutogradGraph() as graph:
        found = a[index]
        node = found._node
        found.square().sum().backward()
        assert torch.equal(found, expected)
        assert torch.equal(a.grad, x.grad)
        if node.op == "index":
            assert node.attributes == bind_index(X, index)[1]
        else:
            assert node.op == "slice"
            assert name in ("a tensor of no axes", "one among others")
        assert len(graph) > 1


def frames(run: Callable[[], Any]) -> set[str]:
    """The functions of this library that Python runs meanwhile, as `module.name`."""
    found = set()

    def note(frame: Any, event: str, _: Any) -> None:
        module = frame.f_globals.get("__name__", "")
        if event == "call" and module.startswith("autograd_opt."):
            found.add(f"{module.removeprefix('autograd_opt.')}.{frame.f_code.co_name}")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(before)
    return found


@pytest.mark.parametrize("join", [torch.cat, torch.stack])
def test_a_list_of_operands_is_bound_without_python(join: Callable[..., torch.Tensor]) -> None:
    x, w = ao.tensor(X), ao.tensor(W)
    with ao.AutogradGraph(sources=False):
        join([x, w])                                # looked up once
        assert frames(lambda: join([x, w], dim=1)) == set()
        assert frames(lambda: join((x, w))) == set()
        assert join([x, w], dim=1).equal(join([X, W], dim=1))


def test_the_backward_of_a_training_step_runs_no_rule_in_python() -> None:
    layer, given = torch.nn.Linear(3, 2), torch.rand(2)
    optimizer = torch.optim.SGD(layer.parameters(), 0.1)
    with ao.AutogradGraph(sources=False):
        for _ in range(2):                          # the second reads parameters that were written in between
            loss = (layer(X[:, :3]) @ given).sum()
            found = frames(loss.backward)
            optimizer.step()
        found.discard("record.transforms.enclosing")    # asked before the run begins
        assert not {name for name in found if name.startswith(("ops.", "record."))}


@pytest.mark.parametrize("function", [torch.zeros_like, torch.ones_like, lambda t: t > 0, lambda t: t.argmax()])
def test_what_no_gradient_goes_through_is_not_bound(function: Callable[..., torch.Tensor]) -> None:
    x = ao.tensor(X)
    with ao.AutogradGraph(sources=False):
        y = x * 2
        function(y)                                 # looked up once
        assert frames(lambda: function(y)) <= {"engine.test_bound_in_c.<lambda>"}
        assert function(y).equal(function(X * 2))


def test_a_method_is_called_past_its_entry() -> None:
    x = ao.tensor(X)
    with ao.AutogradGraph():
        with pytest.raises(TypeError, match=r"torch\._C\.TensorBase"):
            torch.Tensor.sum(1.0)
        with pytest.raises((TypeError, RuntimeError)):       # of torch 2.12, which takes a text for a name
            x.sum("no axis")
        assert x.sum(1, keepdim=True).equal(X.sum(1, keepdim=True))
        assert torch.Tensor.__getitem__(x, 1).equal(X[1])


def test_several_writes_to_one_memory_are_told_apart_by_their_lines() -> None:
    x = ao.tensor(X)
    with ao.AutogradGraph() as graph:
        for times in (True, False):
            (x * 3).sum()
            with torch.no_grad():
                if times:
                    x.mul_(2)
                else:
                    x.add_(1)
        total = (x * 3).sum()
        assert total.item() == (X * 6 + 3).sum().item()
        lines = [line.rpartition(" ")[2] for line in str(graph).splitlines() if " = written(" in line]
    assert len(set(lines)) == len(lines) == 2
