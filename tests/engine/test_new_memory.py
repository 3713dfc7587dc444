"""Functions that are called as having results of new memory: no result shares an operand's, none is written."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import autograd_opt as ao
from autograd_opt.abi.torch_private import makes_memory

pytestmark = pytest.mark.filterwarnings("ignore")         # torch's own, about functions of its database
Tensor = torch.Tensor
SAMPLES = 8


def spellings(op: Any) -> Iterator[Any]:
    """The function and the method of an entry, where they are of compiled code."""
    yield from (f for f in (op.op, op.method_variant) if f is not None and makes_memory(f))


ENTRIES = {f"{op.name}.{op.variant_test_name}".rstrip("."): op for op in op_db
           if torch.float32 in op.supported_dtypes("cpu") and any(spellings(op))}


def memories(tree: Any) -> set[int]:
    """Where the tensors of a structure lie."""
    return {t.untyped_storage()._cdata for t in tree_leaves(tree)
            if isinstance(t, Tensor) and t.layout is torch.strided and t.numel()}


@pytest.mark.parametrize("name", ENTRIES)
def test_no_result_lies_in_an_operand(name: str) -> None:
    """Also where an operand has nothing to do, as a power of 1, or a repetition of 1."""
    op = ENTRIES[name]
    samples = list(itertools.islice(op.sample_inputs("cpu", torch.float32), SAMPLES))
    assert samples
    for sample, f in itertools.product(samples, spellings(op)):
        arguments = (sample.input, *sample.args), sample.kwargs
        operands = memories(arguments)
        versions = [t._version for t in tree_leaves(arguments) if isinstance(t, Tensor)]
        for grad in (False, True):
            with ao.AutogradGraph(optimize=False), torch.set_grad_enabled(grad):
                result = f(*arguments[0], **arguments[1])
            assert not memories(result) & operands
        assert versions == [t._version for t in tree_leaves(arguments) if isinstance(t, Tensor)]


def test_enough_functions_are_called_so() -> None:
    assert len(ENTRIES) > 300


@pytest.mark.parametrize("f", [
    Tensor.reshape, Tensor.contiguous, Tensor.to, Tensor.add_, Tensor.type_as, torch.dropout, torch.batch_norm,
    Tensor.squeeze, torch.broadcast_tensors, torch.meshgrid, torch.conj_physical, Tensor.sum_to_size, len, print,
    torch.nn.functional.relu])
def test_others_are_not(f: Any) -> None:
    """Views, writes, and what may return an operand as it is; and what is not torch's compiled code."""
    assert not makes_memory(f)


class Looks(TorchDispatchMode):
    """Notes whether views that it makes are views in torch's eyes."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[bool] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.found.append(args[0].view(-1)._is_view())
        return func(*args, **(kwargs or {}))


def test_a_dispatch_mode_runs_its_own_code_as_for_other_calls() -> None:
    x, mode = torch.rand(2, 3), Looks()
    with ao.AutogradGraph(), torch.no_grad(), mode:
        x.reshape(3, 2)
        x.repeat(2, 1)
    assert len(mode.found) >= 2
    assert len(set(mode.found)) == 1


def test_a_view_after_a_call_that_fails_is_a_view() -> None:
    x = torch.rand(2, 3)
    with ao.AutogradGraph(), torch.no_grad():
        with pytest.raises(IndexError):
            x.gather(5, torch.zeros(1, 1, dtype=torch.int64))
        assert x.view(-1)._is_view()
        with torch.inference_mode():
            x.repeat(2, 1)
        assert x.view(-1)._is_view()
