"""What can go wrong in a pass, said with the pass, the node and the remedy.

The errors that all others of the package derive from are here too, for nothing here imports from it.
"""

import difflib
from collections.abc import Callable, Iterable

__all__ = [
    "ArgumentError",
    "ArgumentTypeError",
    "AutogradOptError",
    "NodeTableError",
    "PassResultError",
    "UnknownPassError",
    "at",
]


def nowhere() -> str:
    """What stands for the user's position where nobody can tell it."""
    return ""


where: Callable[[], str] = nowhere
"""The user's position as text; set by the package, which knows the files that are its own."""


def at(message: str) -> str:
    """The message with the user's position behind it."""
    place = where()
    return f"{message} [at {place}]" if place else message


class AutogradOptError(Exception):
    """Base of all errors raised by this library."""

    __module__ = "autograd_opt.errors"


class ArgumentError(AutogradOptError, ValueError):
    """A wrong argument; names the nearest valid one where there is one.

    >>> import autograd_opt as ao
    >>> try:
    ...     ao.AutogradGraph(passes=["csee"])
    ... except ao.ArgumentError as error:
    ...     print("'cse'" in str(error))
    True
    """

    __module__ = "autograd_opt.errors"


class ArgumentTypeError(AutogradOptError, TypeError):
    """An argument of a wrong type."""

    __module__ = "autograd_opt.errors"


class NodeTableError(AutogradOptError, ValueError):
    """A graph cannot be written as a :class:`NodeTable`.

    Parameters
    ----------
    fact : str
        What is wrong, and at which node.
    remedy : str
        What the caller can do about it.

    Examples
    --------
    >>> raise NodeTableError("node 3 has operand 5", "list operands first")
    Traceback (most recent call last):
    autograd_opt.passes.errors.NodeTableError: node 3 has operand 5: list operands first
    """

    def __init__(self, fact: str, remedy: str) -> None:
        super().__init__(fact, remedy)
        self.fact = fact
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.fact}: {self.remedy}"


class PassResultError(AutogradOptError, ValueError):
    """The result of a pass breaks a rule of the graph and was refused.

    Parameters
    ----------
    pass_name : str
        The pass that made the result.
    node : int or None
        The first node at which the rule is broken, None if it is not one node.
    fact : str
        What is wrong.
    remedy : str
        What the author of the pass can do about it.

    Examples
    --------
    >>> print(PassResultError("cse", 7, "a leaf was merged", "leave leaves alone"))
    pass 'cse', node 7: a leaf was merged. Remedy: leave leaves alone.
    """

    def __init__(self, pass_name: str, node: int | None, fact: str, remedy: str) -> None:
        super().__init__(pass_name, node, fact, remedy)
        self.pass_name = pass_name
        self.node = node
        self.fact = fact
        self.remedy = remedy
        self.place = ""
        """Where in the user's code the pass was run, for a pipeline."""

    def __str__(self) -> str:
        node = "" if self.node is None else f", node {self.node}"
        place = f" [at {self.place}]" if self.place else ""
        return f"pass {self.pass_name!r}{node}: {self.fact}. Remedy: {self.remedy}.{place}"


class UnknownPassError(ArgumentError):
    """No pass is registered under this name.

    Parameters
    ----------
    name : str
        The name that was asked for.
    known : iterable of str
        The names that are registered.

    Examples
    --------
    >>> print(UnknownPassError("csee", ["cse", "prune"]))
    no pass named 'csee', did you mean 'cse'? Registered: cse, prune
    """

    def __init__(self, name: str, known: Iterable[str]) -> None:
        known = sorted(known)
        super().__init__(name, known)
        self.name = name
        self.known = known
        self.place = ""
        """Where in the user's code it was asked for."""

    def __str__(self) -> str:
        place = f" [at {self.place}]" if self.place else ""
        nearest = difflib.get_close_matches(str(self.name).lower(), self.known, n=1)
        hint = f", did you mean {nearest[0]!r}?" if nearest else "."
        return f"no pass named {self.name!r}{hint} Registered: {', '.join(self.known)}{place}"
