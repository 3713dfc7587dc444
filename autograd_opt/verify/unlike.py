"""The user's rules are run several times: each has to give one trace, where gradients are recorded and where not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from autograd_opt.verify.calls import Untraceable
from autograd_opt.verify.ir import Head, Vocabulary
from autograd_opt.verify.rules import Template, trace_rule
from autograd_opt.verify.users import ran


def users_rule(
    vocabulary: Vocabulary, op: Any, head: Head, types: Sequence[int | None], needs: Sequence[bool],
    parts: Sequence[bool] | None,
) -> Template:
    """The trace of a rule of the user's.

    Raises
    ------
    Untraceable : as `trace_rule`, or the rule does different things in different runs.
    """
    made = once(False, vocabulary, op, head, types, needs, parts)        # as in most runs
    if once(True, vocabulary, op, head, types, needs, parts) != made:
        raise Untraceable(f"the rule of {op.name} is another one each time")
    return made


def once(
    recording: bool, vocabulary: Vocabulary, op: Any, head: Head, types: Sequence[int | None], needs: Sequence[bool],
    parts: Sequence[bool] | None,
) -> Template:
    """One trace; nothing that the rule did keeps it from being refused."""
    with torch.set_grad_enabled(recording):
        return ran(lambda tracer: trace_rule(vocabulary, op, head, types, needs, parts, tracer), op, "rule")
