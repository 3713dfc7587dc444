"""What a weak reference leads to is gone when its tensor is, also where its value is handed out again."""

import gc
import weakref

import pytest
import torch

import autograd_opt as ao


@pytest.mark.parametrize("custom", [False, True])
def test_a_value_found_again_is_not_under_the_weak_reference_of_a_dead_tensor(custom: bool) -> None:
    x, y = ((ao.tensor([1.0, 2.0]) if custom else torch.ones(2, requires_grad=True)) for _ in range(2))
    with ao.AutogradGraph(optimize=True, allowance=1 << 20):
        held = x + y
        mine = x + y
        reference = weakref.ref(mine)
        names: weakref.WeakKeyDictionary[torch.Tensor, str] = weakref.WeakKeyDictionary({mine: "dead"})
        called: list[str] = []
        weakref.finalize(mine, called.append, "finalized")
        del mine
        assert reference() is None
        assert called == ["finalized"]
        again = x + y
        assert reference() is None
        assert again not in names
        assert torch.equal(held, again)


@pytest.mark.parametrize("optimize", [False, True])
def test_a_result_that_its_rule_reads_lives_on_without_the_users_references(optimize: bool) -> None:
    x = torch.tensor([0.5, 1.0], requires_grad=True)
    with ao.AutogradGraph(optimize=optimize):
        result = torch.exp(x)
        result.note = "of the user's"           # type: ignore[attr-defined]
        reference = weakref.ref(result)
        total = result.sum()
        del result
        assert reference() is None
        gc.collect()
        total.backward()
    assert torch.equal(x.grad, torch.exp(x.detach()))


def test_attributes_end_with_their_tensor() -> None:
    x = torch.tensor([0.5, 1.0], requires_grad=True)
    kept = []

    class Noted:
        def __del__(self) -> None:
            kept.append("gone")

    with ao.AutogradGraph(optimize=True, allowance=1 << 20):
        result = torch.exp(x)
        result.note = Noted()                   # type: ignore[attr-defined]
        total = result.sum()
        del result
        assert kept == ["gone"]
        assert not hasattr(torch.exp(x), "note")
        total.backward()
