"""Wiring done once at import: the tensor class, its operators, and torch's entry points."""

from __future__ import annotations

from autograd_opt import ops
from autograd_opt._common import arguments
from autograd_opt.abi import switches, symbols
from autograd_opt.api import function, graph, tensor, tensor_methods, torch_functions
from autograd_opt.engine import runs
from autograd_opt.graph import handles, node, references, torch_names
from autograd_opt.graph.tensor import CustomTensor
from autograd_opt.ops.table import OPS, define
from autograd_opt.record import (
    composed,
    context,
    dispatch,
    distributed,
    hot_operators,
    identities,
    inplace,
    items,
    modes,
    module_routes,
    operator_methods,
    option_names,
    tasks,
    transforms,
    views,
)

LEAF = define("leaf", "", 0)
OUTPUT = define("output", "x, *, i=0", 0, x=lambda g: g)
ELSEWHERE = define("elsewhere", "", 0)


def install() -> None:
    """Bind everything; importing the package calls this."""
    node.install(CustomTensor, LEAF, OUTPUT, views.WRITTEN, ELSEWHERE)
    handles.install()
    for name in torch_names.NAMED_EARLY:
        OPS[name].named = True
    context.leave_out(switches.OFF)
    hot_operators.install(OPS)
    items.install(OPS)
    operator_methods.install(CustomTensor)
    context.install_context(transforms.refuse_opening, references.ReferenceManager, module_routes.functions,
                            graph.pipeline_of, arguments.checked)
    option_names.name_options(graph.AutogradGraph, arguments.refuse_options)
    symbols.install()
    identities.install()
    function.install()
    torch_functions.install()
    modes.install()
    runs.install()
    transforms.install()
    tensor_methods.install()
    tensor.install()
    dispatch.note_places()
    distributed.install()
    tasks.install()


__all__ = ["composed", "inplace", "install", "ops", "tensor_methods", "views"]
