"""A module that is optimized stays what it was to the rest of a program."""

from __future__ import annotations

import copy
import inspect
import io
import pickle
from typing import Any

import pytest
import torch
from torch import nn

import autograd_opt as ao


class Net(nn.Module):
    """A module with attributes of its own."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.width = width
        self.layer = nn.Linear(3, width)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: torch.Tensor, *, scale: float = 1.0) -> torch.Tensor:
        """Count, and compute."""
        self.seen += 1
        return self.layer(x) * scale


def recorded(net: nn.Module, *args: Any) -> bool:
    """True if a call of the module is a region."""
    return net(*args).grad_fn.name() == "OptimizedRegionBackward"


def test_the_module_is_the_same_object() -> None:
    net = Net()
    names = list(net.state_dict())
    optimized = ao.optimize(net)
    assert optimized is net
    assert isinstance(net, Net)
    assert type(net).__name__ == "Net"
    assert type(net).__module__ == __name__
    assert list(net.state_dict()) == names
    assert net.width == 4
    assert inspect.signature(net.forward) == inspect.signature(Net().forward)
    assert net.forward.__doc__ == "Count, and compute."
    assert recorded(net, torch.ones(2, 3))
    assert net.seen == 1
    assert not isinstance(Net(), type(net))


def test_optimized_twice_is_optimized_once() -> None:
    net = ao.optimize(ao.optimize(Net()), verify=True)
    assert recorded(net, torch.ones(2, 3))
    assert type(net).__mro__[1] is Net


@pytest.mark.parametrize("how", [copy.deepcopy, copy.copy, lambda net: pickle.loads(pickle.dumps(net))],
                         ids=["deepcopy", "copy", "pickle"])
def test_copies_are_optimized(how: Any) -> None:
    net = ao.optimize(Net())
    other = how(net)
    x = torch.ones(2, 3)
    assert recorded(other, x)
    torch.testing.assert_close(other(x), net(x))
    assert isinstance(other, Net)
    assert other.width == 4


def test_a_file_of_a_whole_module() -> None:
    file = io.BytesIO()
    torch.save(ao.optimize(Net()), file)
    file.seek(0)
    assert recorded(torch.load(file, weights_only=False), torch.ones(2, 3))


def test_a_state_dict_goes_to_an_ordinary_module() -> None:
    net, other = ao.optimize(Net()), Net()
    other.load_state_dict(net.state_dict())
    torch.testing.assert_close(other(torch.ones(2, 3)), net(torch.ones(2, 3)))


def test_a_forward_that_another_library_has_put_there() -> None:
    net = Net()
    before = net.forward
    net.forward = lambda x: before(x) * 2  # type: ignore[method-assign]
    assert recorded(ao.optimize(net), torch.ones(2, 3))


def test_a_forward_that_another_library_puts_there_later() -> None:
    net = ao.optimize(Net())
    before = net.forward
    net.forward = lambda x: before(x)  # type: ignore[method-assign]
    assert recorded(net, torch.ones(2, 3))


@pytest.mark.parametrize("wrong", [3, None.__class__, Net, torch.ones(2)], ids=["number", "type", "class", "tensor"])
def test_what_cannot_be_optimized(wrong: Any) -> None:
    with pytest.raises(ao.AutogradOptError, match=r"takes a function or a torch\.nn\.Module"):
        ao.optimize(wrong)


def test_an_async_function_is_refused() -> None:
    async def f() -> None:
        pass

    with pytest.raises(TypeError, match="awaited"):
        ao.optimize(f)


def test_wrong_options_are_refused_at_once() -> None:
    with pytest.raises(TypeError, match="verify"):
        ao.optimize(Net(), verfy=True)  # type: ignore[call-overload]
    with pytest.raises(TypeError):
        ao.optimize(verify=3)  # type: ignore[call-overload]


def test_a_scripted_module_is_refused() -> None:
    with pytest.raises(ao.UnsupportedError, match="TorchScript"):
        ao.optimize(torch.jit.script(nn.Linear(2, 2)))
