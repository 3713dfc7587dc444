"""`_version` of what operations return: that of torch eager, for every operator of torch's database."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves, tree_map

import autograd_opt as ao
from autograd_opt.abi import switches

Tensor = torch.Tensor
OPERATORS = {}
for op in op_db:
    if torch.float32 in op.supported_dtypes("cpu") and not op.name.startswith("nn.functional.scaled_dot"):
        OPERATORS.setdefault(f"{op.name}.{op.variant_test_name}".rstrip("."), op)
SAMPLES = 3
FEWER = frozenset("""
    __rmatmul__ diff isclose linalg.matrix_power linalg.matrix_rank linalg.matrix_rank.hermitian matmul
    nanquantile nn.functional.alpha_dropout nn.functional.feature_alpha_dropout.with_train
    nn.functional.linear_cross_entropy.chunked nn.functional.linear_cross_entropy.chunked_none
    nn.functional.margin_ranking_loss nn.functional.pad.circular nn.functional.poisson_nll_loss quantile
""".split())
"""torch makes these of several calls and counts the writes between them; one call here, whose result begins at 0."""
COUNTED = frozenset("""
    histogramdd nn.functional.batch_norm nn.functional.linear nonzero stft
""".split())
"""Known gap: writes of the kernel are counted here, without a gradient, too; of batch_norm in its statistics."""
if "tensor_info" in switches.OFF:
    COUNTED |= {"fft.ifft", "nn.functional.conv2d", "nn.functional.conv3d", "nn.functional.conv_transpose2d",
                "nn.functional.conv_transpose3d", "repeat_interleave"}      # the key that counts is left in
if tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 15):
    COUNTED -= {"nn.functional.linear"}         # its kernel does not write its result again
OTHERWISE = FEWER | COUNTED


def versions(op: Any, sample: Any, needs: bool) -> Any:
    """The versions of the results, and of the arguments afterwards, of one call on leaves or constants."""
    torch.manual_seed(0)
    made: list[Tensor] = []

    def fresh(t: Any) -> Any:
        if not isinstance(t, Tensor):
            return t
        made.append(t.detach().clone().requires_grad_(needs and t.is_floating_point()))
        return made[-1]

    args, kwargs = tree_map(fresh, ((sample.input, *sample.args), sample.kwargs))
    try:
        out = op.op(*args, **kwargs)
    except Exception as error:
        return next(kind for kind in type(error).__mro__ if kind.__module__ == "builtins")
    return [t._version for t in tree_leaves(out) if isinstance(t, Tensor)], [t._version for t in made]


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.xfail(strict=True, raises=AssertionError)) if name in OTHERWISE else name
    for name in OPERATORS])
def test_results_have_the_versions_of_torch(name: str) -> None:
    op = OPERATORS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        samples = [s for s, _ in zip(op.sample_inputs("cpu", torch.float32), range(SAMPLES), strict=False)]
        for needs in (False, True):
            for sample in samples:
                expected = versions(op, sample, needs)
                for optimize in (False, True):
                    with ao.AutogradGraph(optimize=optimize):
                        assert versions(op, sample, needs) == expected, (optimize, needs, sample)


PROGRAMS: dict[str, Callable[[Tensor], Any]] = {
    "clone, written": lambda x: [y := x.clone(), y.add_(1)],
    "a view shares the counter": lambda x: [y := x.clone(), v := y.view(-1), v.mul_(2), y],
    "a view of a product": lambda x: [y := x * 2, v := y[0], v.zero_(), y],
    "detached": lambda x: [y := x.clone(), d := y.detach(), d.add_(1), y],
    "contiguous is the tensor itself": lambda x: [y := x.clone(), y.add_(1), y.contiguous()],
    "to is the tensor itself": lambda x: [y := x.clone(), y.add_(1), y.to(torch.float64)],
    "written twice": lambda x: [y := x.exp(), y.add_(1).mul_(2)],
    "filled": lambda x: [y := torch.zeros(3), y.fill_(2), torch.full((2,), 1.0), torch.zeros_like(x)],
    "a split": lambda x: [*x.clone().split(1)],
    "the same value again": lambda x: [x.clone(), x.clone(), x.exp(), x.exp()],
    "an output": lambda x: [torch.add(x.detach(), 1, out=torch.empty(2, 2, dtype=x.dtype))],
    "data of a written tensor": lambda x: [y := x.clone(), y.add_(1), y.data],
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_versions_after_writes(name: str) -> None:
    seen = []
    for context in (nullcontext(), ao.AutogradGraph(optimize=False), ao.AutogradGraph()):
        with context:
            x = torch.arange(4.0, dtype=torch.float64).view(2, 2).requires_grad_()
            seen.append([t._version for t in PROGRAMS[name](x)])
    assert seen[1:] == [seen[0]] * 2
