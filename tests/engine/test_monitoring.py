"""Tools of `sys.monitoring` (Python 3.12 and later) see the functions of modules, as they do in torch."""

import sys
from typing import Any

import pytest
import torch

import autograd_opt as ao

pytestmark = pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is new in Python 3.12")


def seen(context: Any) -> set[str]:
    """The functions of torch's modules that a tool is told of."""
    monitoring: Any = sys.monitoring  # type: ignore[attr-defined, unused-ignore]
    found: set[str] = set()
    model, x = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Tanh()), torch.ones(1, 2)
    monitoring.use_tool_id(3, "test")
    monitoring.register_callback(3, monitoring.events.PY_START, lambda code, _: found.add(code.co_qualname))
    monitoring.set_events(3, monitoring.events.PY_START)
    try:
        with context:
            model(x)
    finally:
        monitoring.set_events(3, 0)
        monitoring.free_tool_id(3)
    return {name for name in found if name.split(".")[0] in ("Module", "Linear", "Sequential", "Tanh")}


def test_a_tool_sees_the_calls_of_modules() -> None:
    with ao.AutogradGraph():                    # compiled calls are in place from the first graph on
        torch.nn.Linear(2, 2)(torch.ones(1, 2))
    expected = seen(torch.enable_grad())
    assert {"Linear.forward", "Tanh.forward"} <= expected
    assert expected <= seen(ao.AutogradGraph())
