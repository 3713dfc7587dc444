"""Hazards 5 and 7: neither a hash nor a counter decides."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from autograd_opt.passes import LEAF, NodeTable, cse

ROOT = Path(__file__).resolve().parents[2]
MERGES = """
import warnings; warnings.simplefilter("ignore")
import torch; torch.set_num_threads(1)
import autograd_opt as ao
from autograd_opt.record.context import forget_places
from tests.fuzz.oracle import make_inputs
from tests.programs import environment, from_seed
for seed in range(60):
    forget_places()             # what was learned about the line above all programs is no matter of hashes
    env = environment(make_inputs("custom"))
    torch.manual_seed(0)
    with ao.AutogradGraph(optimize=True) as graph:
        for code in from_seed(seed).code:
            if "backward(" in str(code.co_names): continue
            try: exec(code, env)
            except Exception: break
        nodes = graph.tape.snapshot()
        print(seed, [-1 if n.leader is None else n.leader.index for n in nodes], graph.tape.hits)
        graph.clear(); env.clear()
"""


def run(arguments: list[str], degenerate: bool) -> str:
    """The output of a Python process with real hashes, or with all of them equal."""
    environment = {k: v for k, v in os.environ.items() if k != "AUTOGRAD_OPT_DEGENERATE_HASH"}
    if degenerate:
        environment["AUTOGRAD_OPT_DEGENERATE_HASH"] = "1"
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
def test_equal_hashes_make_the_same_merges() -> None:
    real = run(["-c", MERGES], degenerate=False)
    assert real.count("\n") == 60
    assert run(["-c", MERGES], degenerate=True) == real


@pytest.mark.slow
def test_no_counter_wraps() -> None:
    """Nodes whose numbers agree in their low 13, 16 or 24 bits are different nodes."""
    n = (1 << 24) + 64
    far = [1 << 13, 1 << 16, 1 << 24]
    key = np.arange(n + 1 + len(far) + 1)
    key[n:] = key[n]  # one operation of different operands
    operands = np.array([5, *[5 + d for d in far], 5], np.int32)
    offsets = np.concatenate([np.zeros(n + 1, np.int64), np.arange(1, len(operands) + 1)])
    flags = np.zeros(len(key), np.uint8)
    flags[:n] = LEAF
    leader = cse(NodeTable(key, offsets, operands, flags))
    assert leader[n:].tolist() == [n, n + 1, n + 2, n + 3, n]


def test_large_value_numbers_are_distinct_operands() -> None:
    key = np.array([0] * 70000 + [1] * 3)
    operands = np.array([3, 65536 + 3, 3], np.int32)
    offsets = np.concatenate([np.zeros(70001, np.int64), [1, 2, 3]])
    flags = np.where(np.arange(70003) < 70000, LEAF, 0).astype(np.uint8)
    assert cse(NodeTable(key, offsets, operands, flags))[-3:].tolist() == [70000, 70001, 70000]
