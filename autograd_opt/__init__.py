"""A define-by-run autograd on torch tensors that optimizes its own graph and proves it.

>>> import autograd_opt as ao
>>> t1, t2 = ao.tensor([1.0, 2.0]), ao.tensor([3.0, 4.0])
>>> with ao.AutogradGraph(optimize=True) as graph:
...     loss = ((t1 + t2) * (t1 + t2)).sum()
...     loss.backward()
>>> t1.grad
tensor([ 8., 12.])
"""

import importlib
from typing import TYPE_CHECKING

from autograd_opt._common import environment as _environment

if not TYPE_CHECKING and _environment.reads_command_line():
    from autograd_opt._common.environment import load_for as __getattr__  # PEP 562
else:
    _environment.check()
    from autograd_opt.api import wiring as _wiring
    from autograd_opt.api.checkpoint import checkpoint
    from autograd_opt.api.compiled import compile
    from autograd_opt.api.function import CustomFunction
    from autograd_opt.api.functional import grad, hessian, hvp, jacobian, jvp, value_and_grad, vhp, vjp
    from autograd_opt.api.fx import optimize_fx
    from autograd_opt.api.gradcheck import GradcheckError, gradcheck, gradgradcheck
    from autograd_opt.api.graph import AutogradGraph, autograd_graph
    from autograd_opt.api.optimize import optimize
    from autograd_opt.api.register import register_op, register_pass
    from autograd_opt.engine.task import GraphTask as GraphTask
    from autograd_opt.errors import (
        ArgumentError,
        ArgumentTypeError,
        AutogradOptError,
        FreedGraphError,
        GraphError,
        GraphMismatchError,
        InplaceError,
        OutsideGraphError,
        UnsupportedError,
        VerificationError,
    )
    from autograd_opt.explaining import explain
    from autograd_opt.graph.references import ReferenceManager as ReferenceManager
    from autograd_opt.graph.tensor import CustomTensor, tensor
    from autograd_opt.inspection.drawing import draw_comparison

    GraphExecutor = GraphTask
    """The name of the backward run in the first design."""
    _wiring.install()

    if TYPE_CHECKING:       # a checker that saw `__getattr__` would take every name for one of the package's
        from autograd_opt import verify as verify
    else:
        def __getattr__(name: str) -> object:
            """Import `autograd_opt.verify` when it is first asked for."""
            if name == "verify":
                return importlib.import_module("autograd_opt.verify")
            raise AttributeError(f"module 'autograd_opt' has no attribute {name!r}")

        def __dir__() -> list[str]:
            """List the public names: completion shows them alone."""
            return sorted([*__all__, "verify", "__all__", "__doc__", "__file__", "__name__", "__path__", "__version__"])

__version__ = "0.1.0"
__all__ = [
    "ArgumentError",
    "ArgumentTypeError",
    "AutogradGraph",
    "AutogradOptError",
    "CustomFunction",
    "CustomTensor",
    "FreedGraphError",
    "GradcheckError",
    "GraphError",
    "GraphMismatchError",
    "InplaceError",
    "OutsideGraphError",
    "UnsupportedError",
    "VerificationError",
    "autograd_graph",
    "checkpoint",
    "compile",
    "draw_comparison",
    "explain",
    "grad",
    "gradcheck",
    "gradgradcheck",
    "hessian",
    "hvp",
    "jacobian",
    "jvp",
    "optimize",
    "optimize_fx",
    "register_op",
    "register_pass",
    "tensor",
    "value_and_grad",
    "vhp",
    "vjp",
]
