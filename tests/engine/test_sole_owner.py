"""Whose memory a tensor lies in is the same read from torch's objects and asked of its Python interface."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

from autograd_opt.abi import symbols, tensor_info

KINDS: dict[str, Callable[[], torch.Tensor]] = {
    "new": lambda: torch.ones(3),
    "empty": lambda: torch.empty(0),
    "result": lambda: torch.ones(3) + 1,
    "parameter": lambda: torch.nn.Parameter(torch.ones(2)),
    "made by a rule of torch's": lambda: torch.ones(2, requires_grad=True) * 2,
    "part": lambda: torch.ones(4, 4)[1:, 2].data,
    "bytes of others": lambda: torch.frombuffer(bytearray(24), dtype=torch.float32),
    "copy on write": lambda: torch.ones(3)._lazy_clone(),
    "meta": lambda: torch.ones(3, device="meta"),
    "half": lambda: torch.ones(3, dtype=torch.float16),
}


@pytest.fixture(params=[True, False], ids=["objects", "python"])
def said(request: pytest.FixtureRequest) -> Iterator[None]:
    before = tensor_info.use_reads(request.param)
    yield
    tensor_info.use_reads(before)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("said")
def test_a_tensor_shares_its_memory_with_views_alone(kind: str) -> None:
    t = KINDS[kind]()
    assert tensor_info.sole_owner(t)
    view = t.detach()
    assert not tensor_info.sole_owner(t)
    assert not tensor_info.sole_owner(view)
    del t
    assert tensor_info.sole_owner(view)


@pytest.mark.usefixtures("said")
def test_the_object_that_python_has_for_the_memory_is_no_tensor() -> None:
    t = torch.ones(3)
    memory = t.untyped_storage()
    assert tensor_info.sole_owner(t)
    del memory
    assert tensor_info.sole_owner(t)
    other = torch.empty(0).set_(t.untyped_storage())  # type: ignore[call-overload]
    assert not tensor_info.sole_owner(t)
    assert not tensor_info.sole_owner(other)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("said")
def test_memory_of_others_cannot_grow(kind: str) -> None:
    t = KINDS[kind]()
    assert tensor_info.resizable(t) == t.untyped_storage().resizable() == (kind != "bytes of others")


@pytest.fixture
def installed() -> Iterator[None]:
    yield
    symbols.install()


@pytest.mark.usefixtures("installed")
def test_places_are_used_only_where_they_are_the_only_ones() -> None:
    if not tensor_info.use_reads(True):
        pytest.skip("this build of torch does not export the functions")
    own = [torch.empty(size) for size in (1, 7, 300)]
    others = [torch.frombuffer(bytearray(size), dtype=torch.uint8) for size in (3, 24, 500)]
    assert tensor_info.install_memory([*own, *others])
    assert not tensor_info.install_memory(own)                   # nothing tells which byte it is
    assert not tensor_info.install_memory(others)
    t = torch.ones(2)
    assert tensor_info.sole_owner(t)
    assert tensor_info.resizable(t)
    assert not tensor_info.resizable(others[0])
