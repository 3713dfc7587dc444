"""Wiring done once at import: the tensor class, its operators, and torch's entry points."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from autograd_opt import (
    composed,
    dispatch,
    distributed,
    function,
    graph,
    identities,
    inplace,
    modes,
    names,
    node,
    ops,
    options,
    recorder,
    references,
    runs,
    shortcut,
    symbols,
    tensor_api,
    transforms,
    views,
)
from autograd_opt.abi import switches
from autograd_opt.ops.table import OPS, define
from autograd_opt.tensor import CustomTensor

LEAF = define("leaf", "", 0)
OUTPUT = define("output", "x, *, i=0", 0, x=lambda g: g)
ELSEWHERE = define("elsewhere", "", 0)


def general(name: str) -> Callable[..., Any]:
    """The route of a hot operator when its fast path does not apply."""
    method = getattr(torch.Tensor, name)
    return lambda *args: dispatch.call(method, args, {})


def install() -> None:
    """Bind everything; importing the package calls this."""
    node.install(CustomTensor, LEAF, OUTPUT, views.WRITTEN, ELSEWHERE)
    names.install()
    recorder.leave_out(switches.OFF)
    recorder.install(CustomTensor, OUTPUT, OPS, general)
    recorder.install_context(transforms.refuse_opening, references.ReferenceManager, shortcut.MODULES,
                             shortcut.functions, graph.pipeline_of, options.checked)
    recorder.name_options(graph.AutogradGraph, options.refuse_options)
    symbols.install()
    identities.install()
    function.install()
    modes.install()
    runs.install()
    transforms.install()
    tensor_api.install()
    dispatch.note_places()
    distributed.install()


__all__ = ["composed", "inplace", "install", "ops", "tensor_api", "views"]
