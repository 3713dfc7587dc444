"""Section `cse`: nodes, kernels and the surplus over a trace."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch

from autograd_opt.benchmarks import counting, counts, cse
from autograd_opt.benchmarks.jobs import Settings


def test_every_way_of_a_workload() -> None:
    once = Settings(repeats=1)
    row = cse.joined(cse.measure_cse("gp", once), counts.measure_counts("gp", once))
    ways = row["ways"]
    assert ways["cse alone"]["kernels"] < ways["as written"]["kernels"]
    assert ways["as written"]["reused"] == ways["as written"]["merged"] == 0
    assert ways["cse alone"]["merged"] > 0
    assert ways["optimize=True"]["allocated"] < ways["as written"]["allocated"]
    assert row["traced"][1] < row["traced"][0]
    lines, surplus = cse.grids([row])
    assert len(lines.lines) == len(counts.WAYS) + 3
    assert all(int(line[2]) > int(line[3]) for line in surplus.lines)


def test_a_structure_seen_once_is_counted_at_first_sight() -> None:
    one, other = (counts.facts("population 1,000", "optimize=True") for _ in range(2))
    assert one == other
    assert one["reused"] > 0


def test_surplus_names_operator_count_and_place() -> None:
    x = torch.ones(3)
    with counting.SiteCounter() as sites:
        for _ in range(3):
            x.add_(1)
        torch.zeros_like(x)
    found = counts.surplus(sites, Counter(add=1, zeros=1))
    assert [(line["operator"], line["ours"], line["traced"]) for line in found] == [("add", 3, 1)]
    (place,) = found[0]["from"]
    assert place.startswith("benchmarks/test_cse.py:")


def test_places_are_shortened() -> None:
    assert cse.places({"a:1": 5, "b:2": 1}) == "a:1 ×5, b:2"
    assert cse.places(dict.fromkeys("abcdef", 1)).endswith(", …")


def test_the_plot_is_written(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="plots need the extra bench")
    row = {"name": "a", "traced": [4, 3], "surplus": [],
           "ways": {"torch eager": {"kernels": 4}, "optimize=True": {"kernels": 2}}}
    (picture,) = cse.plot([row, {"name": "b", "error": "x"}], tmp_path / "cse")
    assert picture.read_bytes().startswith(b"\x89PNG")
