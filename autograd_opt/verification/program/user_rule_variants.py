"""The user's rules are run several times: each way that a run may ask them has to give one trace.

Gradients are recorded in some runs and not in others; a rule for all operands at once is told which ones are needed,
and a proof is of every run, whichever inputs it names.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Sequence
from typing import Any

import torch

from autograd_opt.verification.program.calls import Untraceable
from autograd_opt.verification.program.instructions import Head, Vocabulary
from autograd_opt.verification.program.rule_traces import Template, trace_rule
from autograd_opt.verification.program.user_rules import ran

MOST_OPERANDS = 4
"""A rule that is told which of more are needed is not traced: each choice is a trace."""


def users_rule(
    vocabulary: Vocabulary, op: Any, head: Head, types: Sequence[int | None], needs: Sequence[bool],
    parts: Sequence[bool] | None,
) -> Template:
    """The trace of a rule of the user's.

    Raises
    ------
    Untraceable : as `trace_rule`, or the rule does different things in different runs.
    """
    made = traced(vocabulary, op, head, types, needs, parts)
    if op.joint is None or not told(op.joint.fn):
        return made
    wanted = [k for k, need in enumerate(needs) if need]
    if len(wanted) > MOST_OPERANDS:
        raise Untraceable(f"the rule of {op.name} is told which of {len(wanted)} operands are needed")
    given = range(-((1 if parts is None else len(parts)) + 1 + len(types)), 0)
    table: dict[Any, int] = {}
    whole = made.numbered(given, table)
    for count in range(1, len(wanted)):
        for some in itertools.combinations(wanted, count):
            other = traced(vocabulary, op, head, types, [k in some for k in range(len(needs))], parts)
            found = other.numbered(given, table)
            if any(found.get(k) != whole.get(k) for k in some):
                raise Untraceable(f"the rule of {op.name} gives an operand another cotangent where others are needed")
    return made


def told(rule: Any) -> bool:
    """Is the user's own function told which operands are needed?"""
    return "needs" in inspect.signature(getattr(rule, "__wrapped__", rule)).parameters


def traced(vocabulary: Vocabulary, op: Any, head: Head, *signature: Any) -> Template:
    """The trace, the same where gradients are recorded and where they are not, as in most runs."""
    made = once(False, vocabulary, op, head, *signature)
    if once(True, vocabulary, op, head, *signature) != made:
        raise Untraceable(f"the rule of {op.name} is another one each time")
    return made


def once(
    recording: bool, vocabulary: Vocabulary, op: Any, head: Head, types: Sequence[int | None], needs: Sequence[bool],
    parts: Sequence[bool] | None,
) -> Template:
    """One trace; nothing that the rule did keeps it from being refused."""
    with torch.set_grad_enabled(recording):
        return ran(lambda tracer: trace_rule(vocabulary, op, head, types, needs, parts, tracer), op, "rule")
