"""Anomaly mode, and looking at the nodes of a graph."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch.autograd import Function

import autograd_opt as ao
from tests.engine.behaviour import caught, group

anomalies = group("anomaly mode and introspection")


@anomalies("")
def a_nan_named(new):
    """The operation is named, and the line of its forward warned of."""
    x = new(0.0, 1.0)

    def program() -> Any:
        with torch.autograd.set_detect_anomaly(True):
            return ((x * 0).sqrt() * 0).sum().backward()

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        error = caught(program, 20)
    return error, ["Error detected in" in str(w.message) for w in seen if "Anomaly" not in str(w.message)]


@anomalies("")
def no_check_for_nan(new):
    """check_nan=False lets a NaN pass."""
    x = new(0.0, 1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.autograd.detect_anomaly(check_nan=False):
            ((x * 0).sqrt() * 0).sum().backward()
    return x.grad


@anomalies("")
def an_error_of_a_function(new):
    """An error of any kind is reported with its forward, and keeps its type."""
    class Fails(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            raise KeyError("wrong")

    x = new(0.0, 1.0)

    def program() -> Any:
        with torch.autograd.set_detect_anomaly(True):
            return Fails.apply(x).sum().backward()

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        error = caught(program)
    return error, any("Error detected in FailsBackward" in str(w.message) for w in seen)


@anomalies("")
def walking_the_graph(new):
    """next_functions lead to the leaves, and AccumulateGrad nodes give their leaf."""
    x, y = new(1.0, 2.0), new(3.0, 4.0)
    z = (x * y).exp()
    product = z.grad_fn.next_functions[0][0]
    ends = [f for f, _ in product.next_functions]
    return ([e.variable is t for e, t in zip(ends, (x, y), strict=True)], [e.name().split("::")[-1] for e in ends],
            len(z.grad_fn.next_functions), (x * 2).grad_fn.next_functions[0][1], x.grad_fn is None, z.is_leaf)


@anomalies("test_custom_function_saved_tensors")
def the_context_of_a_function(new):
    """grad_fn of a Function shows what its forward has left on ctx."""
    class Noted(Function):
        @staticmethod
        def forward(ctx, x, k):
            ctx.save_for_backward(x)
            ctx.k = k
            return x * k

        @staticmethod
        def backward(ctx, g):
            return g * ctx.k, None

    x = new(1.0, 2.0)
    y = Noted.apply(x, 5)
    fn = y.grad_fn
    return fn.k, fn.needs_input_grad[0], caught(lambda: fn.nothing).type, hasattr((x * 2).grad_fn, "k"), y


@anomalies("")
def metadata_of_a_node(new):
    """A node's dict of the user's own lives as long as the node."""
    x = new(1.0, 2.0)
    y = x.exp()
    y.grad_fn.metadata["k"] = 5
    z = y * 2
    return z.grad_fn.next_functions[0][0].metadata, "metadata" in dir(y.grad_fn)


@anomalies("")
def printed(new):
    """repr and str of a tensor show grad_fn or requires_grad."""
    x = new(1.0, 2.0)
    return ["grad_fn" in repr(x * 2), "requires_grad=True" in repr(x), "grad" in repr((x * 2).detach()),
            "grad_fn" in str(x.exp()), f"{(x * 2).sum().item():.1f}"]


test_anomaly_mode = anomalies.check()


@pytest.mark.parametrize("optimize", [None, False, True])
def test_where_warnings_are_errors_the_operation_is_named_on_stderr(
        optimize: bool | None, capsys: pytest.CaptureFixture[str]) -> None:
    with nullcontext() if optimize is None else ao.AutogradGraph(optimize=optimize), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Anomaly Detection")
        with torch.autograd.detect_anomaly():
            x = torch.ones(2, requires_grad=True)
            y = x + 1
            z = (y ** 2).sum()
            y += 1
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                z.backward()
    assert "Error detected in PowBackward0" in capsys.readouterr().err
