"""Rules that are wrong in one branch: by sign, size, parity, rank, dtype, attribute."""

from __future__ import annotations

import pytest
from rule_mutants import BRANCHES, BY_OPERANDS, BY_SIGN, CHANGES, Mutant, campaign, judged

from autograd_opt.ops.table import OPS

MET = {"always", "size 1", "an even size", "an odd size", "rank 0", "rank 1", "rank 2", "rank 3", "rank 4", "float16",
       "float32", "bfloat16", "two equal sizes", "an even number of elements", *BY_SIGN}
"""Branches at which every elementwise operator has an instance."""


@pytest.mark.parametrize("branch", [*BRANCHES, *BY_SIGN, *BY_OPERANDS])
@pytest.mark.parametrize("name", ["mul", "leaky_relu"])
def test_a_branch_of_an_elementwise_rule_is_seen(name, branch):
    mutant = Mutant(OPS[name], 0, branch, "factor 2")
    assert not judged(mutant).proved or not mutant.reached
    if branch in MET:
        assert mutant.reached


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", ["layer_norm", "group_norm", "nll_loss"])
def test_the_rule_that_calls_torchs_kernel_is_looked_at(name, change):
    mutant = Mutant(OPS[name], 0, "always", change)
    assert not judged(mutant).proved


@pytest.mark.parametrize(("name", "branch"), [
    ("sum", "keepdim"), ("mean", "a negative axis"), ("softmax", "rank 3"), ("sum", "rank 0"), ("var", "an even size"),
    ("matmul", "size 1"), ("leaky_relu", "an attribute that is no default"), ("logsumexp", "float32"),
    ("matmul", "turned"), ("linear", "turned"), ("leaky_relu", "a number of 7"), ("softmax", "the default dtype"),
    ("elu", "a number above 2.5"), ("softplus", "a number of 7"), ("mse_loss", "float16"),
])
def test_a_branch_of_another_rule_is_seen(name, branch):
    mutant = Mutant(OPS[name], 0, branch, "sign")
    assert not judged(mutant).proved
    assert mutant.reached


@pytest.mark.parametrize("name", ["mul", "sum", "exp", "transpose"])
@pytest.mark.parametrize("branch", ["a size of 7", "many elements", "a size above 4", "a size divisible by 3"])
def test_a_branch_on_sizes_that_no_instance_has_is_none_for_all_sizes(name, branch):
    mutant = Mutant(OPS[name], 0, branch, "factor 2")
    found = judged(mutant)
    assert not (mutant.reached and found.proved)


def test_a_rule_that_counts_with_an_attribute_before_it_compares_is_not_proved():
    found = judged(Mutant(OPS["add"], 1, "twice a number is 9", "factor 2"))
    assert found.status == "undecided"
    assert "the rule compares what is computed of alpha" in found.detail


def test_a_rule_that_asks_whether_operands_are_one_tensor_is_not_proved():
    mutant = Mutant(OPS["lerp"], 2, "two operands are one tensor", "factor 2")
    assert judged(mutant).status == "undecided"
    assert mutant.reached


@pytest.mark.long
def test_of_five_hundred_wrong_rules_few_survive():
    counts, survivors = campaign(500, seed=1)
    assert counts["proved"] <= 25, survivors
