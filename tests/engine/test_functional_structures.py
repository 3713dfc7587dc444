"""The functional interface beside torch.autograd.functional, over many structures of inputs and outputs."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.autograd import functional as reference

import autograd_opt as ao
from tests.engine.behaviour import Caught, caught, frozen, same

Tensor = torch.Tensor
SHAPES = ((), (1,), (3,), (2, 3), (0,), (2, 1, 2))
PRODUCTS = ("vjp", "jvp", "hvp", "vhp")


class Case:
    """One function, its inputs, its vectors and its options, drawn from a seed."""

    def __init__(self, seed: int, name: str) -> None:
        draw = random.Random(f"{seed} {name}")
        self.name = name
        generator = torch.Generator().manual_seed(seed)

        def tensor(shape: tuple[int, ...]) -> Tensor:
            dtype = draw.choice((torch.float64, torch.float64, torch.float32))
            return torch.randn(shape, generator=generator, dtype=dtype)

        self.inputs = [tensor(draw.choice(SHAPES)) for _ in range(draw.randint(1, 3))]
        self.used = [draw.random() < 0.8 for _ in self.inputs]
        scalar = name in ("hvp", "vhp", "hessian")
        count = 1 if scalar and draw.random() < 0.9 else draw.randint(1, 3)
        self.outputs = [() if scalar else draw.choice(SHAPES) for _ in range(count)]
        kinds = ("cubic", "cubic", "linear", "constant", "detached", "repeated")
        self.kinds = [draw.choice(kinds) for _ in self.outputs]
        self.single_in = len(self.inputs) == 1 and draw.random() < 0.7
        self.single_out = len(self.outputs) == 1 and draw.random() < 0.7
        self.options: dict[str, Any] = {"strict": draw.random() < 0.3, "create_graph": draw.random() < 0.3}
        if name in ("jacobian", "hessian"):
            self.options["vectorize"] = draw.random() < 0.3
        else:
            shaped = self.outputs if name == "vjp" else [tuple(t.shape) for t in self.inputs]
            vectors = [tensor(s) for s in shaped]
            if draw.random() < 0.1:
                vectors = vectors[1:]
            if vectors and draw.random() < 0.1:
                vectors[0] = tensor((5,))
            self.v: Any = tuple(vectors)
            if draw.random() < 0.15:
                self.v = None
            elif len(vectors) == 1 and draw.random() < 0.8:
                self.v = vectors[0]
        self.bad = draw.choice((None,) * 12 + ("input", "output"))

    def function(self, *xs: Tensor) -> Any:
        total = torch.zeros((), dtype=torch.float64)
        for k, (x, used) in enumerate(zip(xs, self.used, strict=True)):
            if used:
                total = total + x.sum() * (k + 1.5)
        out = []
        for k, (shape, kind) in enumerate(zip(self.outputs, self.kinds, strict=True)):
            scale = torch.arange(1.0, 1.0 + max(1, torch.Size(shape).numel()), dtype=torch.float64)
            scale = scale[:torch.Size(shape).numel()].reshape(shape)
            if kind == "cubic":
                out.append((total * scale).sin() * total ** 2 + k)
            elif kind == "linear":
                out.append(total * scale)
            elif kind == "repeated":
                out.append((total * scale).exp() * 0.1 + (total * scale).exp() * 0.2)
            elif kind == "constant":
                out.append(scale * 2)
            else:
                out.append((total * scale).detach())
        if self.bad == "output":
            return 3 if self.single_out else (*out[:-1], 3)
        return out[0] if self.single_out else tuple(out)

    def run(self, module: Any, **more: Any) -> Any:
        xs = tuple(t.clone() for t in self.inputs)
        inputs: Any = xs[0] if self.single_in else xs
        if self.bad == "input":
            inputs = 3 if self.single_in else (*xs[:-1], 3)
        call: Callable[..., Any] = getattr(module, self.name)
        given = (inputs,) if self.name in ("jacobian", "hessian") else (inputs, self.v)
        return caught(lambda: values(call(self.function, *given, **self.options, **more)), 40)

    def __str__(self) -> str:
        return (f"{self.name}: inputs {[tuple(t.shape) for t in self.inputs]} used {self.used} outputs {self.outputs} "
                f"{self.kinds} {self.options} bad {self.bad} v {getattr(self, 'v', None)}")


def values(x: Any) -> Any:
    """Structure and values; a constant may or may not carry a history under create_graph."""
    if isinstance(x, Tensor):
        return x.detach().clone()
    return type(x)(values(e) for e in x)


def structure(x: Any) -> Any:
    return isinstance(x, Tensor) if not isinstance(x, (tuple, list)) else (type(x), *[structure(e) for e in x])


@pytest.mark.parametrize("place", ["alone", "optimized alone", "inside", "optimized inside"])
@pytest.mark.parametrize("name", [*PRODUCTS, "jacobian", "hessian"])
def test_structures(name: str, place: str) -> None:
    optimize, inside = "optimized" in place, "inside" in place
    errors = 0
    for seed in range(60):
        case = Case(seed, name)
        expected = case.run(reference)
        errors += isinstance(expected, Caught)
        if case.options["create_graph"] and not inside:
            continue                     # its result needs an open graph, which tests elsewhere say
        with ao.AutogradGraph(optimize=optimize) if inside else contextlib.nullcontext():
            mine = case.run(ao) if inside else case.run(ao, optimize=optimize)
        if not isinstance(expected, Caught):
            assert structure(mine) == structure(expected), str(case)
        same(frozen(mine), frozen(expected), str(case), 1e-5)
    assert 3 < errors < 55
