"""What can go wrong in a pass, said with the pass, the node and the remedy."""

import difflib
from collections.abc import Iterable

__all__ = ["NodeTableError", "PassResultError", "UnknownPassError"]


class NodeTableError(ValueError):
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


class PassResultError(ValueError):
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

    def __str__(self) -> str:
        where = "" if self.node is None else f", node {self.node}"
        return f"pass {self.pass_name!r}{where}: {self.fact}. Remedy: {self.remedy}."


class UnknownPassError(ValueError):
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

    def __str__(self) -> str:
        nearest = difflib.get_close_matches(str(self.name).lower(), self.known, n=1)
        hint = f", did you mean {nearest[0]!r}?" if nearest else "."
        return f"no pass named {self.name!r}{hint} Registered: {', '.join(self.known)}"
