"""`autograd-opt doctor`: versions, accelerations that are on or why they are off, checks of operators and a proof."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import sys
import sysconfig
import warnings
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
from autograd_opt.ops.table import OPS

Tensor = torch.Tensor
Call = Callable[[Tensor, Tensor], Any]
PLAIN: dict[str, Call] = {
    "sum of an axis": lambda x, y: x.sum(0), "mean of an axis": lambda x, y: x.mean(1, keepdim=True),
    "norm": lambda x, y: x.norm(), "softmax": lambda x, y: x.softmax(1), "log_softmax": lambda x, y: x.log_softmax(1),
    "logsumexp": lambda x, y: x.logsumexp(1), "cumsum": lambda x, y: x.cumsum(1), "cumprod": lambda x, y: x.cumprod(1),
    "sort": lambda x, y: x.sort(1).values, "bounds of clamp": lambda x, y: x.clamp(0.3, 0.7),
    "reshape": lambda x, y: x.reshape(-1), "expand": lambda x, y: x[None].expand(2, 3, 3),
    "index": lambda x, y: x[[0, 2, 0]], "slice": lambda x, y: x[1:, ::2],
    "gather": lambda x, y: x.gather(1, torch.zeros(3, 2, dtype=torch.int64)), "flip": lambda x, y: x.flip(0),
    "roll": lambda x, y: x.roll(1, 0), "repeat": lambda x, y: x.repeat(2, 1), "pad": lambda x, y: F.pad(x, (1, 1)),
    "layer_norm": lambda x, y: F.layer_norm(x, (3,)), "in place": lambda x, y: x.clone().mul_(2).add_(x),
    "binary_cross_entropy": lambda x, y: F.binary_cross_entropy(x, y.detach()),
    "where": lambda x, y: torch.where(x > y, x, y), "cat": lambda x, y: torch.cat([x, y]),
    "stack": lambda x, y: torch.stack([x, y]), "bmm": lambda x, y: x[None].bmm(y[None]),
    "dot": lambda x, y: x[0].dot(y[0]), "outer": lambda x, y: x[0].outer(y[1]), "kron": lambda x, y: torch.kron(x, y),
    "inv": lambda x, y: torch.linalg.inv(x), "det": lambda x, y: torch.linalg.det(x),
    "write through a view": lambda x, y: written(x.clone()), "dtype": lambda x, y: x.float().double() * x.dim(),
    "module": lambda x, y: torch.nn.Sequential(torch.nn.Tanh(), torch.nn.Sigmoid())(x),
}
"""Name of what needs more than matrices, or goes by another name in torch, -> a call of it."""


def written(t: Tensor) -> Tensor:
    """`t` after a write to a view of it."""
    t[0].mul_(3)
    return t


def calls() -> dict[str, Call]:
    """Name of an operator -> a call of it with two square matrices of numbers between 0 and 1."""
    found: dict[str, Call] = {}
    for name, op in OPS.items():
        function = getattr(torch, name, None) or getattr(F, name, None)
        if function is not None:
            call = of_operands(function, len(op.operands))
            if computes(call):
                found[name] = call
    return {**found, **PLAIN}


def of_operands(function: Callable[..., Any], n: int) -> Call:
    """`function` of so many of the matrices, in turns."""
    return lambda x, y: function(*((x, y) * n)[:n])


def computes(call: Call) -> bool:
    """True if torch itself takes the matrices, and differentiates the result."""
    try:
        with warnings.catch_warnings(action="ignore"):
            answers(call, torch.enable_grad())
    except Exception:
        return False
    return True


def answers(call: Call, graph: Any) -> list[Tensor]:
    """Value and gradients of a call made twice."""
    generator = torch.Generator().manual_seed(0)
    x, y = ((torch.rand(3, 3, dtype=torch.float64, generator=generator) * 0.8 + 0.1).requires_grad_() for _ in range(2))
    with graph:
        value = call(x, y)
        again = call(x, y)
        weights = torch.linspace(0.5, 1.5, value.numel(), dtype=torch.float64).reshape(value.shape)
        ((value + again) * weights).sum().backward()
        kept = value.detach().clone()
    return [kept.nan_to_num(), *(torch.zeros(()) if t.grad is None else t.grad.nan_to_num() for t in (x, y))]


def wrong_operators(operators: dict[str, Call]) -> dict[str, str]:
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
    """Say what is installed and which accelerations are on, and check more than a hundred operators and one proof.

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
