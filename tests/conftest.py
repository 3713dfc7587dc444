"""What every test sees: one thread, torch's random state its own, and nothing learned from earlier tests or runs."""

import os
from collections.abc import Iterator

import hypothesis
import pytest
import torch

from autograd_opt.abi import switches
from autograd_opt.graph import tape as tapes
from autograd_opt.record import context, resting
from tests.late_base import late_base

FOUND_AGAIN = frozenset("""
    test_profilers_and_modes_see_the_calls test_other_graphs_do_not test_described_as_they_are
    test_work_shared_by_forward_and_backward_is_found test_no_more_kernels_than_eager
    test_one_changed_attribute_is_another_value test_the_mutant_is_killed test_graphs_have_nothing_in_common
""".split())
"""Tests that count records, or values found again: when dead records are dropped, known values are forgotten."""


THEMSELVES = {
    "module_call": """test_torchs_modules_are_called_without_frames test_calls_are_short_again_when_torchs_call_is_back
        test_while_a_trace_maps_modules_torch_calls_them""".split(),
    "getset": ["test_a_part_of_a_plain_tensor_is_assigned_as_in_torch"],
    "torch_functions": """test_the_weight_of_an_absolute_loss test_layers_that_torch_computes_in_one_kernel
        test_its_warning_names_the_line_of_the_call
        test_torch_answers_its_own_questions_outside_a_graph_and_hands_functions_to_its_own_handler""".split(),
    "tensor_info": """test_a_function_that_says_something_else_is_not_used
        test_each_function_is_compared_with_its_property
        test_the_memory_of_an_operand_that_a_call_without_a_rule_does_not_need_is_freed""".split(),
}
"""An acceleration -> the tests of it, which are left out where it is switched off."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    names = {name for part in switches.OFF for name in THEMSELVES.get(part, ())}
    if os.environ.get("AUTOGRAD_OPT_COMPACT"):
        names |= FOUND_AGAIN
    left_out = [item for item in items if item.name.partition("[")[0] in names]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item.name.partition("[")[0] not in names]


def pytest_configure() -> None:
    torch.set_num_threads(1)
    resting.set_patience(0)              # each graph finds what it repeats, whatever was opened at its line before
    tapes.compact_always(bool(os.environ.get("AUTOGRAD_OPT_COMPACT")))        # `make compact`
    # the same examples in each run, however slow the machine: `python -m tests.fuzz` looks for new ones
    hypothesis.settings.register_profile("repeatable", deadline=None, derandomize=True,
                                         suppress_health_check=[hypothesis.HealthCheck.too_slow])
    hypothesis.settings.load_profile("repeatable")


@pytest.fixture(scope="session", autouse=True)
def _late_base() -> tuple[torch.Tensor, torch.Tensor] | None:
    """In `make late`, a tensor with views that are older than its history is alive in every test."""
    return late_base() if os.environ.get("AUTOGRAD_OPT_LATE") else None


@pytest.fixture(autouse=True)
def _random_state() -> Iterator[None]:
    """A test starts with a fixed seed, no place known, and leaves torch's generator and default dtype as they were."""
    dtype = torch.get_default_dtype()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        context.forget_places()
        yield
    torch.set_default_dtype(dtype)
