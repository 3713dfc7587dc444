"""A define-by-run autograd on torch tensors that optimizes its own graph and proves it.

>>> import autograd_opt as ao
>>> t1, t2 = ao.tensor([1.0, 2.0]), ao.tensor([3.0, 4.0])
>>> with ao.AutogradGraph(optimize=True) as graph:
...     loss = ((t1 + t2) * (t1 + t2)).sum()
...     loss.backward()
>>> t1.grad
tensor([ 8., 12.])
"""

from autograd_opt._environment import check as _check_environment

_check_environment()

from autograd_opt import wiring as _wiring  # noqa: E402  (after the environment is known to be right)
from autograd_opt.checkpoint import checkpoint  # noqa: E402
from autograd_opt.draw import draw_comparison  # noqa: E402
from autograd_opt.errors import (  # noqa: E402
    ArgumentError,
    AutogradOptError,
    FreedGraphError,
    GraphError,
    GraphMismatchError,
    InplaceError,
    OutsideGraphError,
    UnsupportedError,
    VerificationError,
)
from autograd_opt.explain import explain  # noqa: E402
from autograd_opt.extend import register_op  # noqa: E402
from autograd_opt.function import CustomFunction  # noqa: E402
from autograd_opt.functional import (  # noqa: E402
    grad,
    hessian,
    hvp,
    jacobian,
    jvp,
    value_and_grad,
    vhp,
    vjp,
)
from autograd_opt.gradcheck import GradcheckError, gradcheck, gradgradcheck  # noqa: E402
from autograd_opt.graph import AutogradGraph, autograd_graph  # noqa: E402
from autograd_opt.passes import register_pass  # noqa: E402
from autograd_opt.tensor import CustomTensor, tensor  # noqa: E402

_wiring.install()

__version__ = "0.1.0"
__all__ = [
    "ArgumentError",
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
    "draw_comparison",
    "explain",
    "grad",
    "gradcheck",
    "gradgradcheck",
    "hessian",
    "hvp",
    "jacobian",
    "jvp",
    "register_op",
    "register_pass",
    "tensor",
    "value_and_grad",
    "vhp",
    "vjp",
]
