"""The classes of this library's errors; `graph/refusals.py` writes those that speak of recorded nodes.

All derive from `AutogradOptError`, and from the built-in type that torch raises for the
same mistake.  Those that passes raise as well are written in `passes/errors.py`, which knows
nothing of this package.
"""

from __future__ import annotations

from autograd_opt.passes.errors import ArgumentError as ArgumentError
from autograd_opt.passes.errors import ArgumentTypeError as ArgumentTypeError
from autograd_opt.passes.errors import AutogradOptError as AutogradOptError
from autograd_opt.passes.errors import at as at


class GraphError(AutogradOptError, RuntimeError):
    """The graph cannot do what was asked."""


class GraphMismatchError(GraphError):
    """A gradient would go from one graph on into another.

    >>> import autograd_opt as ao
    >>> x = ao.tensor([1.0])
    >>> with ao.AutogradGraph():
    ...     y = x * 2
    ...     with ao.AutogradGraph():
    ...         try:
    ...             (y * 3).backward()
    ...         except GraphMismatchError as error:
    ...             print("detach()" in str(error))
    True
    """


class OutsideGraphError(GraphError):
    """Something that needs a graph was called outside any context.

    >>> import autograd_opt as ao
    >>> with ao.AutogradGraph() as graph:
    ...     y = ao.tensor([1.0]) * 2
    >>> try:
    ...     y.backward()
    ... except OutsideGraphError as error:
    ...     print("inside" in str(error))
    True
    """


class FreedGraphError(GraphError):
    """A backward run reached values that an earlier run, or `graph.clear()`, has released.

    >>> import autograd_opt as ao
    >>> x = ao.tensor([1.0])
    >>> with ao.AutogradGraph():
    ...     y = (x * x).sum()
    ...     y.backward()
    ...     try:
    ...         y.backward()
    ...     except FreedGraphError as error:
    ...         print("retain_graph=True" in str(error))
    True
    """


class InplaceError(GraphError):
    """An in-place write that the gradient cannot follow.

    >>> import autograd_opt as ao
    >>> with ao.AutogradGraph():
    ...     y = ao.tensor([1.0]).exp()
    ...     z = y * y
    ...     try:
    ...         _ = y.add_(1)
    ...         z.backward()
    ...     except InplaceError as error:
    ...         print("clone()" in str(error))
    True
    """


class UnsupportedError(AutogradOptError, NotImplementedError, RuntimeError):
    """A layout, type or function that is not supported."""


WORDED: dict[type[Exception], type[AutogradOptError]] = {
    TypeError: ArgumentTypeError, ValueError: ArgumentError, RuntimeError: GraphError,
}


def worded(error: Exception) -> Exception:
    """Return an error of torch's checks in the class of this library, with the user's position."""
    cls = WORDED.get(type(error))
    return error if cls is None else cls(at(str(error)))


class EmptyError(AutogradOptError, IndexError):
    """Nothing where at least one is needed, or no node of a number."""


class VerificationError(AutogradOptError, RuntimeError):
    """`verify=True` refuted an optimization, or a required proof was not found."""
