"""Operators whose rules call torch's fused backward kernels: torch's bits, and derivatives of the gradient."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import autograd_opt as ao
from tests.differential import compare
from tests.ops.checker import fresh

OPTIMIZE = pytest.mark.parametrize("optimize", [False, True], ids=["plain", "optimize"])
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)


def gradients(function: Any, inputs: Sequence[Any], context: Any, order: int = 1) -> tuple[list[Any], set[str]]:
    """Outputs and gradients of the sum of squares, and the operators that were recorded."""
    leaves = fresh(inputs)
    wanted = [t for t in leaves if isinstance(t, torch.Tensor) and t.requires_grad]
    torch.manual_seed(3)
    with context as graph:
        out = function(*leaves)
        outs = out if isinstance(out, (tuple, list)) else [out]
        found = torch.autograd.grad(sum((t * t).sum() for t in outs), wanted, create_graph=order == 2)
        if order == 2:
            found = torch.autograd.grad(sum((t * t).sum() for t in found), wanted)
        names = set() if graph is None else {node.op.name for node in graph.tape.snapshot()}
        return [t.detach().clone() for t in (*outs, *found)], names


def assert_same_bits(function: Any, inputs: Sequence[Any], optimize: bool, operator: str) -> None:
    wanted, _ = gradients(function, inputs, nullcontext())
    found, names = gradients(function, inputs, ao.AutogradGraph(optimize=optimize))
    assert operator in names
    assert not any(name.startswith("opaque") for name in names)
    for k, (mine, theirs) in enumerate(zip(found, wanted, strict=True)):
        assert torch.equal(mine, theirs), f"tensor {k} differs by up to {(mine - theirs).abs().max()}"


def some(shape: Sequence[int], dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    return torch.randn(tuple(shape), dtype=dtype, generator=torch.Generator().manual_seed(seed)).requires_grad_()


# ----- attention -----
HEADS = ((2, 4, 5, 8), (2, 4, 6, 8), (2, 4, 6, 8))
KEEP = torch.rand(5, 6, generator=torch.Generator().manual_seed(1)) > 0.3
ATTENTION = [
    ("flash_attention", HEADS, {}), ("flash_attention", HEADS, {"is_causal": True}),
    ("flash_attention", HEADS, {"attn_mask": KEEP}), ("flash_attention", HEADS, {"scale": 0.2}),
    ("attention_dropout", HEADS, {"dropout_p": 0.3}),
    ("attention_dropout", HEADS, {"dropout_p": 0.2, "attn_mask": KEEP}),
    ("attention_dropout", HEADS, {"dropout_p": 0.2, "is_causal": True, "scale": -0.3}),
    ("attention", [s[2:] for s in HEADS], {}), ("attention", [*HEADS[:2], (2, 4, 6, 3)], {}),
]


@OPTIMIZE
@DTYPES
@pytest.mark.parametrize(("operator", "shapes", "options"), ATTENTION, ids=lambda v: v if isinstance(v, str) else "")
def test_attention_has_torch_s_bits(operator: str, shapes: Any, options: Any, dtype: torch.dtype,
                                    optimize: bool) -> None:
    inputs = [some(s, dtype, k) for k, s in enumerate(shapes)]
    assert_same_bits(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, **options), inputs, optimize, operator)


@OPTIMIZE
def test_the_gradient_of_a_mask_takes_the_composition(optimize: bool) -> None:
    inputs = [some(s, torch.float64, k) for k, s in enumerate((*HEADS, (5, 6)))]
    assert_same_bits(lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m * 2), inputs, optimize, "attention")


def test_a_fused_attention_has_the_second_derivative_that_torch_has_only_of_its_composition() -> None:
    inputs = [some(s, torch.float64, k) for k, s in enumerate(HEADS)]
    for options in ({}, {"is_causal": True}, {"attn_mask": KEEP}):
        def function(q: Any, k: Any, v: Any, options: Any = options) -> Any:
            return F.scaled_dot_product_attention(q, k, v, **options)
        with sdpa_kernel(SDPBackend.MATH):
            wanted, _ = gradients(function, inputs, nullcontext(), 2)
        found, names = gradients(function, inputs, ao.AutogradGraph(optimize=True), 2)
        assert "flash_attention" in names
        torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-11)


def test_two_draws_of_attention_under_dropout_are_two_values() -> None:
    q = some((1, 1, 8, 4), torch.float64)
    with ao.AutogradGraph(optimize=True):
        a, b = (F.scaled_dot_product_attention(q, q, q, dropout_p=0.5) for _ in range(2))
        assert not torch.equal(a, b)


# ----- lstm -----
LSTM = [c for c in itertools.product((1, 2), *[(False, True)] * 4) if c[0] == 2 or not c[4]]


@pytest.mark.parametrize(("layers", "bidirectional", "batch_first", "bias", "dropout"), LSTM)
def test_lstm_has_torch_s_bits(layers: int, bidirectional: bool, batch_first: bool, bias: bool, dropout: bool) -> None:
    torch.manual_seed(0)
    net = nn.LSTM(3, 4, layers, bias, batch_first, 0.3 if dropout else 0.0, bidirectional)
    ways = layers * (2 if bidirectional else 1)
    inputs = [some((2, 5, 3), torch.float32), some((ways, 2 if batch_first else 5, 4), torch.float32, 1),
              some((ways, 2 if batch_first else 5, 4), torch.float32, 2), *net.parameters()]

    def run(x: Any, h: Any, c: Any, *weights: Any) -> Any:
        out, (h, c) = torch.func.functional_call(net, dict(zip(names, weights, strict=True)), (x * 1.0, (h, c)))
        return out, h, c

    def only_output(*args: Any) -> Any:
        return run(*args)[0]

    names = [name for name, _ in net.named_parameters()]
    for function in (run, only_output):
        for optimize in (False, True):
            assert_same_bits(function, inputs, optimize, "lstm")
    wanted, _ = gradients(run, inputs, nullcontext(), 2)
    found, _ = gradients(run, inputs, ao.AutogradGraph(optimize=True), 2)
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-4)


NOT_FUSED: dict[str, tuple[Callable[[], Any], tuple[int, ...], torch.dtype]] = {
    "oneDNN is off": (lambda: nn.LSTM(3, 4), (5, 2, 3), torch.float32),
    "projections": (lambda: nn.LSTM(3, 4, proj_size=2), (5, 2, 3), torch.float32),
    "an empty batch": (lambda: nn.LSTM(3, 4), (5, 0, 3), torch.float32),
    "another type": (lambda: nn.LSTM(3, 4).double(), (5, 2, 3), torch.float64),
}


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize("name", NOT_FUSED)
@pytest.mark.parametrize("optimize", [False, True])
def test_what_is_no_fused_lstm_is_torchs(name: str, optimize: bool) -> None:
    make, shape, dtype = NOT_FUSED[name]
    net, x = make(), some(shape, dtype)

    def step() -> list[torch.Tensor]:
        net.zero_grad()
        out, (h, c) = net(x)
        (out.square().sum() + (h * c if h.shape == c.shape else c).sum()).backward()
        return [out.detach(), *[p.grad for p in net.parameters()]]

    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(name != "oneDNN is off")    # the public switch sets others, and warns
    try:
        expected = step()
        with ao.AutogradGraph(optimize) as graph:
            found = step()
            assert "lstm" not in {n.op.name for n in graph.tape.snapshot()}
    finally:
        torch._C._set_mkldnn_enabled(before)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("layers", [1, 2])
def test_the_states_of_lstm_may_be_written(layers: int) -> None:
    net, x = nn.LSTM(3, 4, layers), torch.randn(5, 2, 3)

    def program(x: torch.Tensor) -> torch.Tensor:
        out, (h, c) = net(x)
        seen = h * 2
        h.mul_(2)
        c.zero_()
        return out.sum() + (h * seen).sum() + (out * out).sum() + c.sum()

    compare(program, x, rtol=1e-5)


PARTS: dict[str, Any] = {
    "last": lambda out: out[:, -1], "first": lambda out: out[:, 0], "row": lambda out: out[1],
    "one": lambda out: out[1, 2], "some": lambda out: out[1:, 1:3], "every other": lambda out: out[:, ::2],
    "all": lambda out: out[:], "column": lambda out: out[:, -1, 2:], "new axis": lambda out: out[:, None, -1],
    "ellipsis": lambda out: out[..., -1],
    "select": lambda out: out.select(1, -2), "narrow": lambda out: out.narrow(1, 1, 2), "none": lambda out: out[:, 3:3],
    "two": lambda out: torch.cat([out[:, -1], out[:, 0], out[:, -1]]),
}


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("batch_first", [False, True])
def test_cotangents_of_parts_of_the_output_of_lstm(name: str, batch_first: bool) -> None:
    net = nn.LSTM(3, 4, batch_first=batch_first)
    inputs = [some((3, 5, 3), torch.float32), *net.parameters()]

    def part(x: Any, *weights: Any) -> Any:
        out, _ = torch.func.functional_call(net, dict(zip(names, weights, strict=True)), (x * 1.0,))
        return PARTS[name](out)

    names = [key for key, _ in net.named_parameters()]
    for optimize in (False, True):
        assert_same_bits(part, inputs, optimize, "lstm")
    compare(lambda *leaves: part(*leaves) ** 2, *inputs, rtol=0, atol=0)


def test_a_hook_on_the_output_of_lstm_sees_what_torch_shows() -> None:
    net, x = nn.LSTM(3, 4, batch_first=True), torch.randn(2, 5, 3)
    strides: list[Any] = []
    for context in (nullcontext(), ao.AutogradGraph()):
        with context:
            out, _ = net(x)
            out.register_hook(lambda g: strides.append((g.stride(), g.clone())))
            out[:, -1].sum().backward()
    assert strides[0][0] == strides[1][0]
    assert torch.equal(strides[0][1], strides[1][1])


def test_a_write_into_the_output_of_lstm_is_noticed() -> None:
    net = nn.LSTM(3, 4, batch_first=True)
    with ao.AutogradGraph():
        out, _ = net(torch.randn(2, 5, 3))
        loss = out.sum()
        with torch.no_grad():
            out.mul_(2)
        with pytest.raises(RuntimeError, match="modified"):
            loss.backward()


# ----- merging -----
def test_a_decomposition_of_which_one_factor_is_used_twice_over() -> None:
    """The gradient records the decomposition again; of that twin only one output finds its leader alive."""
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.svd(x, full_matrices=False)[0].abs()

    inputs = [some((3, 2), torch.float64)]
    wanted, _ = gradients(function, inputs, nullcontext(), 2)
    found, _ = gradients(function, inputs, ao.AutogradGraph(optimize=True), 2)
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("narrow", [torch.float16, torch.bfloat16], ids=str)
def test_twins_of_a_rounding_cast_sum_their_gradients_in_the_wide_type(narrow: torch.dtype) -> None:
    x = some((50,), torch.float64)
    given = [torch.rand(50, dtype=torch.float64, generator=torch.Generator().manual_seed(k)).to(narrow) for k in (1, 2)]

    def gradient(context: Any) -> torch.Tensor:
        with context:
            found: torch.Tensor = torch.autograd.grad([x.to(narrow), x.to(narrow)], x, given)[0]
            return found

    assert torch.equal(gradient(ao.AutogradGraph(optimize=True)), gradient(nullcontext()))


def test_a_gradient_that_nobody_asked_for_is_not_computed() -> None:
    seen: list[Any] = []
    net = nn.Conv2d(2, 3, 3)

    class Mask(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if "convolution_backward" in func._schema.name:
                seen.append(list(args[-1]))
            return func(*args, **(kwargs or {}))

    with ao.AutogradGraph():
        x = ao.tensor(torch.randn(1, 2, 5, 5), requires_grad=True)
        out = net(x).sum()
        with Mask():
            torch.autograd.grad(out, x)
    assert seen == [[True, False, False]]
