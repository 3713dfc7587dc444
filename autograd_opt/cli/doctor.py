"""`autograd-opt doctor`: versions, accelerations that are on or why they are off, checks of operators and a proof."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import sys
import sysconfig
from collections.abc import Callable
from typing import Any

import click
import torch
import torch.nn.functional as F

import autograd_opt as ao
from autograd_opt._common.environment import COMPILED, tested_pythons, tested_torches
from autograd_opt.abi import symbols
from autograd_opt.abi.switches import OFF, PARTS
from autograd_opt.cli.main import FAILED

Tensor = torch.Tensor
UNARY = """
    abs acos acosh asin asinh atan atanh ceil cos cosh deg2rad digamma erf erfc erfinv exp exp2 expm1 floor frac lgamma
    log log10 log1p log2 logit nan_to_num neg positive rad2deg reciprocal round rsqrt sigmoid sign sin sinc sinh sqrt
    square tan tanh trunc relu selu celu clone logsumexp softmax log_softmax cumsum cumprod flip
""".split()
LOSSES = "mse_loss l1_loss smooth_l1_loss huber_loss soft_margin_loss binary_cross_entropy".split()
ACTIVATIONS = """
    elu gelu hardsigmoid hardswish hardtanh leaky_relu logsigmoid mish relu6 silu softplus softshrink softsign
""".split()
BINARY = """
    add sub mul div pow atan2 hypot maximum minimum fmax fmin copysign logaddexp logaddexp2 lerp xlogy matmul mm dot
    outer kron where addcmul addmm bmm cat stack
""".split()
PLAIN: dict[str, Callable[..., Any]] = {
    "sum": lambda x: x.sum(0), "mean": lambda x: x.mean(1, keepdim=True), "prod": lambda x: x.prod(),
    "var": lambda x: x.var(1), "std": lambda x: x.std(), "amax": lambda x: x.amax(1), "norm": lambda x: x.norm(),
    "max": lambda x: x.max(1).values,
    "median": lambda x: x.median(1).values, "sort": lambda x: x.sort(1).values, "clamp": lambda x: x.clamp(0.3, 0.7),
    "transpose": lambda x: x.t(), "reshape": lambda x: x.reshape(-1), "expand": lambda x: x[None].expand(2, 3, 3),
    "index": lambda x: x[[0, 2, 0]], "slice": lambda x: x[1:, ::2],
    "gather": lambda x: x.gather(1, torch.zeros(3, 2, dtype=torch.int64)), "diagonal": lambda x: x.diagonal(),
    "tril": lambda x: x.tril(), "roll": lambda x: x.roll(1, 0), "repeat": lambda x: x.repeat(2, 1),
    "pad": lambda x: F.pad(x, (1, 1)), "inv": torch.linalg.inv, "det": torch.linalg.det,
    "layer_norm": lambda x: F.layer_norm(x, (3,)), "in place": lambda x: x.clone().mul_(2).add_(x),
    "write through a view": lambda x: written(x.clone()), "dtype": lambda x: x.float().double() * x.dim(),
    "module": lambda x: torch.nn.Sequential(torch.nn.Tanh(), torch.nn.Sigmoid())(x),
}


def written(t: Tensor) -> Tensor:
    """`t` after a write to a view of it."""
    t[0].mul_(3)
    return t


def calls() -> dict[str, Callable[[Tensor, Tensor], Any]]:
    """Name of an operator -> a call of it with two square matrices of numbers between 0 and 1."""
    special: dict[str, Callable[[Tensor, Tensor], Any]] = {
        "acosh": lambda x, y: torch.acosh(x + 1.5), "lerp": lambda x, y: torch.lerp(x, y, 0.3),
        "dot": lambda x, y: x[0].dot(y[0]), "outer": lambda x, y: x[0].outer(y[1]),
        "where": lambda x, y: torch.where(x > y, x, y),
        "addcmul": lambda x, y: torch.addcmul(x, x, y), "addmm": lambda x, y: torch.addmm(x, x, y),
        "bmm": lambda x, y: x[None].bmm(y[None]), "cat": lambda x, y: torch.cat([x, y]),
        "stack": lambda x, y: torch.stack([x, y]),
        "flip": lambda x, y: x.flip(0),
        **{name: first(getattr(torch, name), 1)
           for name in ("logsumexp", "softmax", "log_softmax", "cumsum", "cumprod")},
    }
    found: dict[str, Callable[[Tensor, Tensor], Any]] = {}
    for name in UNARY:
        found[name] = special.get(name) or first(getattr(torch, name))
    for name in BINARY:
        found[name] = special.get(name) or getattr(torch, name)
    for name in ACTIVATIONS:
        found[name] = difference(getattr(F, name))
    for name in LOSSES:
        found[name] = constant_target(getattr(F, name))
    return {**found, **{name: first(f) for name, f in PLAIN.items()}}


def first(call: Callable[..., Any], *args: Any) -> Callable[[Tensor, Tensor], Any]:
    """`call` of the first matrix alone."""
    return lambda x, y: call(x, *args)


def difference(call: Callable[..., Any]) -> Callable[[Tensor, Tensor], Any]:
    """`call` of the difference of the matrices."""
    return lambda x, y: call(x - y)


def constant_target(call: Callable[..., Any]) -> Callable[[Tensor, Tensor], Any]:
    """`call` of the first matrix, with the second as a constant."""
    return lambda x, y: call(x, y.detach())


def answers(call: Callable[[Tensor, Tensor], Any], graph: Any) -> list[Tensor]:
    """Value and gradients of a call made twice."""
    generator = torch.Generator().manual_seed(0)
    x, y = ((torch.rand(3, 3, dtype=torch.float64, generator=generator) * 0.8 + 0.1).requires_grad_() for _ in range(2))
    with graph:
        value = call(x, y)
        again = call(x, y)
        weights = torch.linspace(0.5, 1.5, value.numel(), dtype=torch.float64).reshape(value.shape)
        ((value + again) * weights).sum().backward()
        kept = value.detach().clone()
    return [kept, *(torch.zeros(()) if t.grad is None else t.grad for t in (x, y))]


def wrong_operators(operators: dict[str, Callable[[Tensor, Tensor], Any]]) -> dict[str, str]:
    """The operators whose value or gradient is not torch's -> what is wrong."""
    wrong: dict[str, str] = {}
    for name, call in operators.items():
        try:
            expected, found = answers(call, torch.enable_grad()), answers(call, ao.AutogradGraph(optimize=True))
            gap = max(float((a - b).abs().max()) if a.shape == b.shape else float("inf")
                      for a, b in zip(expected, found, strict=True))
            if not gap < 1e-7:      # torch rounds a constant of `hardsigmoid` to single precision
                wrong[name] = f"differs from torch by {gap:.1e}"
        except Exception as error:
            wrong[name] = f"{type(error).__name__}: {error}"
    return wrong


def proof() -> str:
    """The verdict on a small graph with work done twice."""
    x, y = (torch.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
    with ao.AutogradGraph(optimize=True) as graph:
        loss = (torch.tanh(x * y) + torch.tanh(x * y)).sum()
        loss.backward(retain_graph=True)
        return str(graph.verify(loss).status)


def version_of(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def versions() -> dict[str, str]:
    """What a bug report should name."""
    import importlib.util
    missing = [name for name in (*COMPILED, "autograd_opt.abi.kernels") if importlib.util.find_spec(name) is None]
    variables = {k: v for k, v in sorted(os.environ.items()) if k.startswith("AUTOGRAD_OPT_")}
    return {
        "autograd_opt": ao.__version__,
        "Python": f"{platform.python_version()} ({platform.python_implementation()}), "
                  f"tested with {tested_pythons()}",
        "torch": f"{torch.__version__}, tested with {tested_torches()}",
        **{package: version_of(package) for package in ("numpy", "sympy", "rustworkx")},
        "machine": f"{sysconfig.get_platform()}, threads: {torch.get_num_threads()}",
        "built for it": "all compiled modules" if not missing else f"without {', '.join(missing)}",
        "variables": ", ".join(f"{k}={v}" for k, v in variables.items()) or "none",
    }


def parts() -> dict[str, str]:
    """Name of an acceleration -> on, or why it is off."""
    said = {}
    for name in PARTS:
        if name in OFF:
            said[name] = f"off: {OFF[name]}"
        elif symbols.IN_USE.get(name) == 0:
            said[name] = "off: what it needs is not in this torch, or answers otherwise than torch's public interface"
        else:
            said[name] = "on"
    return said


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def doctor(as_json: bool) -> None:
    """Say what is installed and which accelerations are on, and check about a hundred operators and one proof.

    The text belongs in a bug report.  Exit code 1 when a check fails.
    """
    operators = calls()
    wrong, verdict = wrong_operators(operators), proof()
    right = not wrong and verdict == "proved"
    tables = {"versions": versions(), "accelerations": parts()}
    found = {**tables, "operators": {"checked": len(operators), "wrong": wrong}, "proof": verdict, "right": right}
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        for title, rows in tables.items():
            click.echo(title)
            for name, text in rows.items():
                click.echo(f"  {name:<16}{text}{'  (' + PARTS[name] + ')' if name in PARTS else ''}")
        right_ones = len(operators) - len(wrong)
        click.echo(f"checks\n  {right_ones} of {len(operators)} operators as in torch\n  proof: {verdict}")
        for name, text in wrong.items():
            click.echo(f"  WRONG {name}: {text}")
        click.echo("Send all of this with a bug report, and the shortest program that shows the problem." if right else
                   "Something is wrong: please report all of the above.")
    if not right:
        sys.exit(FAILED)
