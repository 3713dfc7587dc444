"""What torch refuses is refused, with torch's error; what it takes is taken."""

from __future__ import annotations

import copy
import itertools
import random
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

import autograd_opt as ao
from tests.bad_arguments import ENDS, cases, differs, own

pytest.importorskip("expecttest", reason="torch's OpInfo database needs it")

from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db

UNLIKE = {
    "nn.functional.embedding": "a weight without axes",
    "nn.functional.scaled_dot_product_attention": "a key without axes, or no values at all",
    "nn.functional.linear_cross_entropy": "which of two wrong things is named first",
    "nn.functional.nll_loss": "which of two wrong things is named first",
}
"""Entries some of whose bad arguments are refused with another error."""


@pytest.fixture(autouse=True)
def _no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("op", [op for op in op_db if op.error_inputs_func is not None], ids=lambda op: op.full_name)
@pytest.mark.parametrize("tracked", [False, True])
def test_errors_of_the_database(op: Any, tracked: bool) -> None:
    def call(sample: Any) -> Any:
        x, args, kwargs = copy.deepcopy((sample.input, tuple(sample.args), sample.kwargs))     # out= may be one of them
        if "out" not in kwargs:
            x, args, kwargs = own(x, tracked), own(args, tracked), {k: own(v, tracked) for k, v in kwargs.items()}
        return op(x, *args, **kwargs)

    found = [differs(partial(call, error.sample_input), True) for error in op.error_inputs("cpu")]
    assert not any(found) or op.name in UNLIKE, found


@pytest.mark.parametrize("info", [m for m in module_db if m.module_error_inputs_func is not None], ids=lambda m: m.name)
@pytest.mark.parametrize("training", [False, True])
def test_errors_of_modules(info: Any, training: bool) -> None:
    def inputs() -> list[Any]:
        return list(info.module_error_inputs_func(
            info, device="cpu", dtype=torch.float64, requires_grad=False, training=training))

    def call(k: int) -> Any:
        given = inputs()[k].module_error_input
        module = info.module_cls(*given.constructor_input.args, **given.constructor_input.kwargs).double()
        return module.train(training)(*given.forward_input.args, **given.forward_input.kwargs)

    found = [differs(partial(call, k), True) for k in range(len(inputs()))]
    assert not any(found), found


@pytest.mark.slow
@pytest.mark.parametrize("op", [op for op in op_db if op.name not in ENDS], ids=lambda op: op.full_name)
def test_one_argument_changed(op: Any) -> None:
    def call(args: list[Any], kwargs: dict[str, Any]) -> Any:
        return op(*own(args, True), **{k: own(v, True) for k, v in kwargs.items()})

    try:
        tried = list(itertools.islice(cases(op, 1), 200))[random.randrange(2)::2]      # another half with another seed
    except (RuntimeError, NotImplementedError) as error:
        pytest.skip(f"torch makes no samples here: {error}")
    found = {name: differs(partial(call, args, kwargs), False) for name, args, kwargs in tried}
    found = {name: text for name, text in found.items() if text}
    assert not found or op.name in UNLIKE, found


@pytest.mark.parametrize("call", [
    lambda x: F.dropout(x, 2.5, training=False),
    lambda x: F.cross_entropy(x, torch.zeros(3, 2).long()),
    lambda x: F.cross_entropy(x, x.detach(), label_smoothing=1.5),
    lambda x: F.kl_div(x, torch.ones(3, 3, dtype=torch.long)),
    lambda x: torch.linalg.vecdot(x, torch.ones(3, 3)),
    lambda x: F.triplet_margin_loss(x, x[0], x),
    lambda x: torch.cartesian_prod(x, x),
    lambda x: torch.diff(x, -1),
    lambda x: F.batch_norm(x, None, None, training=True, eps=-1.0),
])
def test_a_decomposition_takes_no_more_than_the_function(call: Callable[[Any], Any]) -> None:
    x = torch.rand(3, 3, dtype=torch.float64, requires_grad=True)
    with pytest.raises((RuntimeError, ValueError)) as theirs:
        call(x)
    for optimize in (False, True):
        with ao.AutogradGraph(optimize=optimize):
            for _ in range(3):
                with pytest.raises(theirs.type) as ours:
                    call(x)
                assert str(ours.value)[:40] == str(theirs.value)[:40]
            F.cross_entropy(x, torch.zeros(3).long()).backward()        # the graph goes on


def test_a_mode_sees_the_calls_of_the_program_alone() -> None:
    class Devices(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.update(t.device.type for t in args if isinstance(t, torch.Tensor))
            return func(*args, **(kwargs or {}))

    seen: set[str] = set()
    x = torch.rand(5, 3, requires_grad=True)
    with ao.AutogradGraph(), Devices():
        F.cross_entropy(x, torch.rand(5, 3)).backward()
    assert seen == {"cpu"}


@pytest.mark.parametrize("dtypes", [(torch.float32, torch.float64), (torch.float64, torch.float32)])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy_with_probabilities_of_another_dtype(dtypes: Any, smoothing: float) -> None:
    x, target = torch.rand(4, 3, dtype=dtypes[0], requires_grad=True), torch.rand(4, 3, dtype=dtypes[1])

    def step() -> Any:
        x.grad = None
        loss = F.cross_entropy(x, target, label_smoothing=smoothing)
        loss.backward()
        return loss.detach(), x.grad

    theirs = step()
    with ao.AutogradGraph():
        torch.testing.assert_close(step(), theirs, rtol=0, atol=1e-12 if smoothing == 0 else 1e-7)


def test_an_integer_takes_the_size_of_a_tensor_that_requires_grad() -> None:
    x = torch.rand(2, 3, requires_grad=True)
    with ao.AutogradGraph():
        y = torch.resize_as_(torch.zeros(3, 2, dtype=torch.long), x)
        assert y.shape == (2, 3)
        assert not y.requires_grad
