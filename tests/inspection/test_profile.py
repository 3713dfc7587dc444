"""Traces with a time axis: every kernel, in order, below the source line that asked for it."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import autograd_opt as ao
from autograd_opt import errors


def step(x: torch.Tensor, graph: ao.AutogradGraph) -> torch.Tensor:
    y = (x @ x).sin() + (x @ x).cos()
    loss = y.sum()
    loss.backward()
    return loss.detach().clone()


def events_of(file: Path, kind: str) -> list[dict[str, Any]]:
    return [event for event in json.loads(file.read_text(encoding="utf-8"))["traceEvents"] if event["cat"] == kind]


def test_kernels_lie_in_order_within_the_events_of_their_lines(tmp_path: Path) -> None:
    x = ao.tensor(torch.rand(9, 9))
    with ao.AutogradGraph(optimize=True) as graph:
        plain = step(x, graph)
        expected, x.grad = x.grad, None
    with ao.AutogradGraph(optimize=True) as graph, graph.profile(tmp_path / "t.json"):
        assert torch.equal(step(x, graph), plain)
    assert torch.equal(x.grad, expected)
    kernels, lines = events_of(tmp_path / "t.json", "kernel"), events_of(tmp_path / "t.json", "line")
    names = [event["name"] for event in kernels]
    assert names.count("matmul") == 1            # the second product is the first one
    assert [event["ts"] for event in kernels] == sorted(event["ts"] for event in kernels)
    assert any(event["name"].endswith("loss.backward()") for event in lines)
    assert kernels[0]["ts"] == 0
    for event in kernels:
        around = [line for line in lines if line["ts"] <= event["ts"]
                  and event["ts"] + event["dur"] <= line["ts"] + line["dur"] + 1e-3]
        assert len(around) == 1
        place = around[0]["name"].split("  ")[0].split("/")[-1]
        assert event["args"]["source"].endswith(place)


def test_a_graph_that_is_not_open_is_refused(tmp_path: Path) -> None:
    with ao.AutogradGraph() as graph:
        pass
    with pytest.raises(errors.OutsideGraphError):
        graph.profile(tmp_path / "t.json")


def test_a_block_that_fails_leaves_no_file(tmp_path: Path) -> None:
    with ao.AutogradGraph() as graph, pytest.raises(ZeroDivisionError), graph.profile(tmp_path / "t.json"):
        _ = 1 / 0
    assert list(tmp_path.iterdir()) == []
