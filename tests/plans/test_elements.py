"""Calls whose result is made up by elements of tensors: they are recorded each time, whatever torch says of them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.testing._internal.common_methods_invocations import op_db

import autograd_opt as ao
from autograd_opt.plans import placeholders

Tensor = torch.Tensor
TOLD_BY_ELEMENTS = frozenset("""
    argwhere bincount combinations corrcoef cov masked_select narrow nn.functional.ctc_loss nn.functional.one_hot
    nonzero repeat_interleave tensor_split to to_sparse unique unique_consecutive
""".split())
"""Operators of torch's own samples that read elements, or (`to`) have no meaning without them."""


@torch.library.custom_op("ao_plans::positive", mutates_args=())
def positive(x: Tensor) -> Tensor:
    return x[x > 0].clone()


@torch.library.custom_op("ao_plans::twice", mutates_args=())
def twice(x: Tensor) -> Tensor:
    return x * 2


@twice.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("ao_plans::count", mutates_args=())
def count(x: Tensor) -> tuple[Tensor, int]:
    return x * 2, int((x > 0).sum())


@count.register_fake
def _(x: Tensor) -> tuple[Tensor, int]:
    return torch.empty_like(x), 0


LSTM = torch.nn.LSTM(1, 2)
READING: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "pack_padded_sequence": lambda x, n: pack_padded_sequence(x, n, batch_first=True).data * 2,
    "pad_packed_sequence": lambda x, n: pad_packed_sequence(
        torch.nn.utils.rnn.PackedSequence(x.reshape(-1, 1)[: x.shape[0] * 3], n.sort(descending=True).values)
    )[1] * 2,
    "a recurrent network": lambda x, n: LSTM(torch.nn.utils.rnn.PackedSequence(x.reshape(-1, 1)[:9], n))[0].data,
    "tensor_split": lambda x, n: [t * 2 for t in torch.tensor_split(x, n, 1)],
    "tensor_split, by its schema": lambda x, n: [t * 2 for t in torch.ops.aten.tensor_split(x, n, 1)],
    "ctc_loss": lambda x, n: F.ctc_loss(x.transpose(0, 1).expand(5, 3, 4), torch.ones(3, 1).long(), n, n.clamp(max=1)),
    "sobol": lambda x, n: torch._sobol_engine_draw(n * 0, 2, torch.zeros(3, 30).long(), 3, int(x.dim()), x.dtype),
    "an operator that tells nothing of its shape": lambda x, n: positive(x - n[0]) * 2,
    "an operator that counts": lambda x, n: x * count(x - n[0])[1],
}


def recorded_each_time(compiled: Any) -> bool:
    return all("looks at values" in kind.reason for kind in compiled.report().kinds)


@pytest.mark.parametrize("case", READING)
@pytest.mark.parametrize("follows", [False, True])
def test_lengths_of_other_calls(case: str, follows: bool) -> None:
    function = READING[case]
    compiled = ao.compile(function)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for lengths in ([4, 3, 2], [4, 3, 2], [4, 3, 2], [5, 3, 1], [4, 4, 1]):
            x, n = torch.linspace(-1, 8, 15).reshape(3, 5, 1), torch.tensor(lengths)
            found, right = compiled(x.requires_grad_(follows), n), function(x, n)
            torch.testing.assert_close(found, right)
    assert recorded_each_time(compiled)


def test_an_operator_that_tells_its_shape_is_repeated() -> None:
    compiled = ao.compile(lambda x: twice(x) + twice(x))
    for k in range(4):
        torch.testing.assert_close(compiled(torch.full((3,), float(k))), torch.full((3,), 4.0 * k))
    assert [kind.reason for kind in compiled.report().kinds] == [""]


def calls(operator: Any) -> Iterator[tuple[Any, tuple[Any, ...], dict[str, Any]]]:
    """Calls of an operator that are given integers."""
    for dtype in (torch.float32, torch.int64):
        if dtype in operator.supported_dtypes("cpu") and not operator.name.startswith("jiterator"):
            for sample in list(operator.sample_inputs("cpu", dtype))[:4]:
                args = (sample.input, *sample.args)
                if placeholders.counts(operator.op, args, sample.kwargs):
                    yield operator.op, args, sample.kwargs


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_what_torch_samples_of_each_operator() -> None:
    """No operator is refused but those that look at elements."""
    reading = set()
    for operator in op_db:
        for function, args, kwargs in calls(operator):

            def call(*args: Any, **kwargs: Any) -> Any:
                return function(*args, **kwargs)            # noqa: B023

            call.__module__ = "torch"
            told = placeholders.expected(call, args, kwargs)
            if placeholders.depends_on_elements(function(*args, **kwargs), told):
                reading.add(operator.name)
    assert reading == TOLD_BY_ELEMENTS
