"""What the recorder reads of a tensor is the same through torch's C interface and through its properties."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F

import autograd_opt as ao
from autograd_opt.abi import symbols, tensor_info
from autograd_opt.record.dispatch import MODE


@pytest.fixture
def as_found() -> Iterator[None]:
    before = tensor_info.use_reads(True)
    tensor_info.use_reads(before)
    yield
    tensor_info.use_reads(before)


def step(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, optimize: bool) -> tuple[list[str], list[object]]:
    for t in (w, b):
        t.grad = None
    with ao.AutogradGraph(optimize=optimize) as graph:
        y = F.relu(F.linear(x, w, b))
        z = (y.transpose(0, 1) @ y).sum(0) * w.mean() + y[0, 0]
        loss = F.cross_entropy(y, torch.tensor([0, 2, 1])) + z.exp().mean() + (y * y).sum()
        loss.backward()
        described = [f"{n.op.name} {n.shape} {n.dtype} {n.device} {n.requires_grad}" for n in graph.tape.snapshot()]
    return described, [w.grad, b.grad]


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.usefixtures("as_found")
def test_a_step_is_the_same_either_way(optimize: bool) -> None:
    torch.manual_seed(0)
    x, w, b = torch.randn(3, 5), torch.randn(4, 5, requires_grad=True), torch.randn(4, requires_grad=True)
    tensor_info.use_reads(True)
    nodes, gradients = step(x, w, b, optimize)
    tensor_info.use_reads(False)
    other_nodes, other_gradients = step(x, w, b, optimize)
    assert nodes == other_nodes
    assert all(torch.equal(a, c) for a, c in zip(gradients, other_gradients, strict=True))


@pytest.mark.usefixtures("as_found")
def test_a_function_that_says_something_else_is_not_used() -> None:
    found = symbols.addresses()
    if found is None:
        pytest.skip("this build of torch does not export the functions, so there is nothing to refuse")
    dtypes = {torch.float32: torch.empty(0)}
    assert tensor_info.install_reads(found, dtypes, symbols.samples()[:3])
    swapped = {**found, "leaf": found["view"], "view": found["leaf"]}
    assert not tensor_info.install_reads(swapped, dtypes, symbols.samples()[:3])
    assert not tensor_info.use_reads(False)
    assert symbols.install()


@pytest.mark.parametrize(("name", "other"), [
    ("dtype", "device"), ("layout", "device"), ("device", "layout"),
    ("leaf", "view"), ("view", "leaf"), ("grad", "leaf"),
])
@pytest.mark.usefixtures("as_found")
def test_each_function_is_compared_with_its_property(name: str, other: str) -> None:
    found = symbols.addresses()
    if found is None:
        pytest.skip("this build of torch does not export the functions, so there is nothing to refuse")
    dtypes = {dtype: torch.empty(0, dtype=dtype) for dtype in symbols.DTYPES}
    assert not tensor_info.install_reads({**found, name: found[other]}, dtypes, symbols.samples())
    assert not tensor_info.use_reads(False)
    assert symbols.install()


@pytest.mark.usefixtures("as_found")
def test_a_torch_that_sets_versions_another_way_is_asked_through_python(monkeypatch: pytest.MonkeyPatch) -> None:
    def other(t: torch.Tensor, version: int) -> None:
        raise TypeError("expected another argument")

    with monkeypatch.context() as patch:
        patch.setattr(torch._C._autograd, "_unsafe_set_version_counter", other)
        assert not symbols.install()
        assert not tensor_info.use_reads(False)
    symbols.install()


def test_modes_that_are_told_wrongly_are_not_used() -> None:
    found = symbols.addresses()
    if found is None:
        pytest.skip("this build of torch does not export the functions, so there is nothing to refuse")
    assert tensor_info.install_functions(found["functions"], [MODE])
    x = torch.ones(2, requires_grad=True)
    with ao.AutogradGraph() as graph:
        torch.sin(x)
        assert [n.op.name for n in graph.tape.snapshot()] == ["leaf", "sin"]


@pytest.mark.usefixtures("as_found")
def test_versions_shapes_and_dtypes_that_change() -> None:
    """Nothing is remembered of a tensor object: `.data` may give it another shape, memory and dtype."""
    for ready in (True, False):
        tensor_info.use_reads(ready)
        p = torch.nn.Parameter(torch.ones(2, 3))
        for value in (torch.ones(4), torch.full((2, 2), 3.0, dtype=torch.float64), torch.ones(1, 2, 3, 2, 1)):
            p.data = value
            with ao.AutogradGraph(optimize=True) as graph:
                y = p * p
                assert (graph.tape.node(0).shape, graph.tape.node(0).dtype) == (value.shape, value.dtype)
                with torch.no_grad():
                    p += 1
                assert torch.equal(p * p, (value) ** 2)
                assert not torch.equal(y, p * p)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.usefixtures("as_found")
def test_unusual_tensors_are_read_by_properties() -> None:
    tensor_info.use_reads(True)
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    sparse = torch.eye(3).to_sparse().requires_grad_()
    x = torch.ones(3, 3, requires_grad=True)
    with ao.AutogradGraph(optimize=True):
        with pytest.raises(ao.UnsupportedError):
            nested * x[0, 0]
        torch.sparse.mm(sparse, x).sum().backward()
    assert torch.equal(x.grad, torch.ones(3, 3))
    with torch.inference_mode():
        made = torch.ones(3)
    with ao.AutogradGraph(optimize=True):
        assert torch.equal((x * 2 + made).detach(), torch.full((3, 3), 3.0))


def keys(*names: str) -> list[int]:
    return [torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, name)).raw_repr() for name in names]  # type: ignore[attr-defined]


@pytest.fixture
def installed() -> Iterator[None]:
    yield
    symbols.install()


@pytest.mark.usefixtures("installed")
def test_dispatch_keys_are_found_only_where_they_say_what_torch_says() -> None:
    plain = torch.ones(2)
    with torch.inference_mode():
        untracked = torch.ones(2)
    samples = [plain, torch._neg_view(plain), torch._efficientzerotensor(3), torch.zeros(2).int(), untracked]
    negative, zero, tracked = keys("Negative", "ZeroTensor", "ADInplaceOrView")
    if not tensor_info.use_reads(True):
        pytest.skip("this build of torch does not export the functions")
    assert tensor_info.install_keys(negative, zero, tracked, samples)
    assert not tensor_info.install_keys(zero, negative, tracked, samples)
    assert not tensor_info.install_keys(negative, zero, keys("CPU")[0], samples)


@pytest.mark.usefixtures("installed")
def test_switches_that_say_something_else_are_not_used() -> None:
    found = symbols.addresses(symbols.SWITCHES)
    if found is None:
        pytest.skip("this build of torch does not export the functions")
    first, last, other = keys("AutocastCPU", "AutocastPrivateUse1", "Negative")
    assert tensor_info.install_switches(found["recording"], found["excluded"], 2 * last - first, ["cpu", "cuda"])
    assert not tensor_info.install_switches(found["recording"], found["excluded"], other, ["cpu"])
    assert not tensor_info.install_switches(found["recording"], found["excluded"], first, ["cpu", "cuda"])
    assert not torch._C._is_any_autocast_enabled()  # type: ignore[attr-defined]
    assert torch.is_grad_enabled()


@pytest.mark.usefixtures("installed")
def test_exclusion_of_keys_by_functions_that_say_something_else_is_not_used() -> None:
    included = {"key_in": "_ZN3c104impl28tls_is_dispatch_key_includedENS_11DispatchKeyE"}
    found, other = symbols.addresses(symbols.EXCLUSION), symbols.addresses(included)
    if found is None or other is None:
        pytest.skip("this build of torch does not export the functions")
    keys = torch._C.DispatchKey                                  # type: ignore[attr-defined]
    asked = [keys.AutogradFunctionality, keys.AutogradOther]
    before = [torch._C._dispatch_tls_is_dispatch_key_excluded(key) for key in asked]     # type: ignore[attr-defined]
    assert tensor_info.install_exclusion(found["key_off"], found["set_key_off"], asked)
    assert not tensor_info.install_exclusion(other["key_in"], found["set_key_off"], asked)
    after = [torch._C._dispatch_tls_is_dispatch_key_excluded(key) for key in asked]      # type: ignore[attr-defined]
    assert after == before


@pytest.mark.parametrize("optimize", [False, True])
def test_grad_mode_and_autocast_are_those_of_the_moment(optimize: bool) -> None:
    x, w = torch.randn(3, 4), torch.randn(4, 4, requires_grad=True)
    with ao.AutogradGraph(optimize=optimize):
        with torch.no_grad():
            assert not (x @ w).requires_grad
        assert (x @ w).requires_grad
        with torch.autocast("cpu", torch.bfloat16):
            assert (x @ w).dtype is torch.bfloat16
            with torch.autocast("cpu", enabled=False):
                assert (x @ w).dtype is torch.float32
        assert (x @ w).dtype is torch.float32
        assert (torch._neg_view(w) * 2).is_neg() is False


def test_another_thread_has_modes_of_its_own() -> None:
    x, w, found = torch.randn(3, 4), torch.randn(4, 4, requires_grad=True), []

    def elsewhere() -> None:
        with ao.AutogradGraph():
            y = x @ w
            found.append((y.requires_grad, y.dtype))

    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
    assert found == [(True, torch.float32)]


def named(name: bytes) -> object:
    """What C code finds of the mode by a name that is no Python string."""
    find = ctypes.pythonapi.PyObject_GetAttrString
    find.restype, find.argtypes = ctypes.py_object, (ctypes.py_object, ctypes.c_char_p)
    found: object = find(MODE, name)
    return found


def test_names_of_the_mode_are_the_same_in_c() -> None:
    """torch finds the handler, and its owner, without a string being made; every other name as Python does."""
    assert named(b"__torch_function__") is MODE.__torch_function__ is MODE
    assert named(b"__self__") is MODE.__self__ is MODE
    assert named(b"__class__") is type(MODE)
    assert named(b"__enter__") == MODE.__enter__
    with pytest.raises(AttributeError, match="no_such_name"):
        named(b"no_such_name")
