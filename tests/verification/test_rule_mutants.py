"""Rules that are wrong in one branch: by sign, size, parity, rank, dtype, attribute."""

from __future__ import annotations

import pytest
from rule_mutants import BRANCHES, BY_SIGN, CHANGES, Mutant, campaign, judged

from autograd_opt.ops.table import OPS


@pytest.mark.parametrize("branch", [*BRANCHES, *BY_SIGN])
@pytest.mark.parametrize("name", ["mul", "leaky_relu"])
def test_a_branch_of_an_elementwise_rule_is_seen(name, branch):
    mutant = Mutant(OPS[name], 0, branch, "factor 2")
    assert not judged(mutant).proved or not mutant.reached
    if branch not in ("keepdim", "a negative axis", "an attribute that is no default"):
        assert mutant.reached


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", ["layer_norm", "group_norm", "nll_loss"])
def test_the_rule_that_calls_torchs_kernel_is_looked_at(name, change):
    mutant = Mutant(OPS[name], 0, "always", change)
    assert not judged(mutant).proved


@pytest.mark.parametrize(("name", "branch"), [
    ("sum", "keepdim"), ("mean", "a negative axis"), ("softmax", "rank 3"), ("sum", "rank 0"), ("var", "an even size"),
    ("matmul", "size 1"), ("leaky_relu", "an attribute that is no default"), ("logsumexp", "float32"),
])
def test_a_branch_of_another_rule_is_seen(name, branch):
    mutant = Mutant(OPS[name], 0, branch, "sign")
    assert not judged(mutant).proved
    assert mutant.reached


@pytest.mark.long
def test_of_five_hundred_wrong_rules_few_survive():
    counts, survivors = campaign(500, seed=1)
    assert counts["proved"] <= 25, survivors
