"""Find the merge that breaks a program, by halving."""

from collections.abc import Callable

from autograd_opt.passes.pipeline import Certificate, Merge

__all__ = ["first_bad_merge"]


def first_bad_merge(is_good: Callable[[int], bool], certificate: Certificate) -> Merge | None:
    """Return the first merge, in node order, with which a program goes wrong.

    Parameters
    ----------
    is_good : callable
        Whether the program gives the right result under ``limit=k``. It is
        asked O(log(number of merges)) times.
    certificate : Certificate
        Of one merging pass, run without a limit.

    Returns
    -------
    Merge or None
        None if the program is right with all merges made.

    Raises
    ------
    ValueError
        If the program is wrong with no merge made: the optimizer is innocent.

    Examples
    --------
    >>> from autograd_opt.passes import NodeTable, Pipeline
    >>> table = NodeTable.from_operands([0, 7, 7, 7], [(), (0,), (0,), (0,)])
    >>> certificate = Pipeline(["cse"]).run(table, [3]).certificate()
    >>> first_bad_merge(lambda limit: limit < 2, certificate)
    Merge(node=3, leader=1, reason='cse')
    """
    good, bad = 0, len(certificate)
    if not is_good(good):
        raise ValueError("the program is wrong without any merge: look elsewhere")
    if is_good(bad):
        return None
    while bad - good > 1:
        middle = (good + bad) // 2
        if is_good(middle):
            good = middle
        else:
            bad = middle
    merge: Merge = certificate[bad - 1]
    return merge
