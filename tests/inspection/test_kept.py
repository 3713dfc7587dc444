"""A graph after its context: snapshots, `keep=True`, iteration and indexing."""

from __future__ import annotations

import gc
import json
import pickle
import weakref
from pathlib import Path

import pytest
import torch

import autograd_opt as ao
from autograd_opt.inspection.drawing import dot


def recorded(keep: bool = True) -> ao.AutogradGraph:
    x = ao.tensor([1.0, 2.0])
    with ao.AutogradGraph(optimize=True, keep=keep, name="g") as graph:
        y = (x.exp() * x.exp()).sum()
        y.backward()
    return graph


def test_a_kept_graph_prints_reports_and_writes_after_its_context(tmp_path: Path) -> None:
    graph = recorded()
    assert "%2 = exp(%0)" in str(graph)
    assert graph.report().nodes == (5, 4)
    assert [node["op"] for node in graph.to_dict()["nodes"]][:2] == ["leaf", "exp"]
    assert "flowchart" in graph.to_mermaid()
    assert "digraph" in graph.to_dot()
    assert graph.to_html(tmp_path / "g.html") == tmp_path / "g.html"
    assert [item.op for item in graph] == ["leaf", "exp", "exp", "mul", "sum"]
    assert graph[-1].op == "sum"
    assert [item.index for item in graph[1:3]] == [1, 2]
    assert len(graph) == 5
    assert "exp" in graph._repr_html_()
    if dot.installed():
        assert str(graph.draw()).startswith("<svg")


def test_without_keep_a_left_graph_says_how_to_keep_it() -> None:
    graph = recorded(keep=False)
    with pytest.raises(ao.OutsideGraphError, match="keep=True"):
        graph.to_dict()
    with pytest.raises(ao.OutsideGraphError, match="keep=True"):
        iter(graph)
    with pytest.raises(ao.OutsideGraphError, match="keep=True"):
        graph.snapshot()


def test_an_open_graph_is_iterated_over_and_indexed() -> None:
    x = ao.tensor([1.0])
    with ao.AutogradGraph() as graph:
        _ = x * 2
        assert [node.op.name for node in graph] == ["leaf", "mul"]
        assert graph[1].op.name == "mul"
        assert graph[0] in list(graph)


def test_a_snapshot_holds_no_tensor() -> None:
    x = ao.tensor(torch.ones(3))
    with ao.AutogradGraph(optimize=True) as graph:
        y = x.exp()
        watched = weakref.ref(y)
        kept = graph.snapshot()
        del y
    del graph
    gc.collect()
    assert watched() is None
    again = pickle.loads(pickle.dumps(kept))
    assert str(again) == str(kept)
    assert json.dumps(again.to_dict()) == json.dumps(kept.to_dict())


def test_a_snapshot_holds_its_verification() -> None:
    x = ao.tensor([1.0])
    with ao.AutogradGraph(optimize=True) as graph:
        y = (x * 2) * (x * 2)
        kept, plain = graph.snapshot(verify=True), graph.snapshot()
        assert y is not None
    assert kept.verify().status == "proved"
    with pytest.raises(ao.GraphError, match="verify=True"):
        plain.verify()


def test_the_snapshot_of_a_graph_kept_with_verify_holds_the_verdict() -> None:
    x = ao.tensor([1.0])
    with ao.AutogradGraph(optimize=True, verify=True, keep=True) as graph:
        ((x * 2) * (x * 2)).backward()
    assert graph.verify().status == "proved"


def test_a_graph_for_networkx() -> None:
    networkx = pytest.importorskip("networkx", reason="to_networkx needs networkx")
    made = recorded().to_networkx()
    assert isinstance(made, networkx.MultiDiGraph)
    assert made.nodes[3]["op"] == "mul"
    assert sorted(data["position"] for _, _, data in made.in_edges(3, data=True)) == [0, 1]
    assert networkx.is_directed_acyclic_graph(made)
    assert recorded().to_networkx(optimized=True).number_of_nodes() == 4


def test_an_empty_graph_is_kept() -> None:
    with ao.AutogradGraph(keep=True) as graph:
        pass
    assert str(graph) == ""
    assert list(graph) == []


def test_the_names_at_the_top_level() -> None:
    from autograd_opt import GraphExecutor, GraphTask, ReferenceManager
    assert GraphExecutor is GraphTask
    assert ReferenceManager.__name__ == "ReferenceManager"
    shown = [name for name in dir(ao) if not name.startswith("_")]
    assert sorted(shown) == sorted([*ao.__all__, "verify"])


def test_a_custom_tensor_is_made_as_a_leaf() -> None:
    x = ao.CustomTensor([1.0, 2.0])
    assert x.requires_grad
    assert ao.CustomTensor([1], requires_grad=False).dtype == torch.int64
    with ao.AutogradGraph():
        (x * x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2.0, 4.0]


def test_a_kept_graph_is_compared_in_one_picture(tmp_path: Path) -> None:
    graph, path = recorded(), tmp_path / "g.dot"
    ao.draw_comparison(graph, path)
    assert "optimized: 4 nodes" in path.read_text()
    assert "optimized: 4 nodes" in ao.draw_comparison(graph.kept, path).read_text()


def test_the_snapshot_of_a_left_graph_is_what_it_kept() -> None:
    graph = recorded()
    assert graph.snapshot() is graph.kept
    assert graph.snapshot().report().nodes == (5, 4)
    with pytest.raises(ao.GraphError, match="verify=True"):
        graph.snapshot(verify=True)
    with pytest.raises(ao.OutsideGraphError, match="outputs="):
        graph.snapshot(ao.tensor([1.0]))


def test_nodes_that_are_not_there_are_refused() -> None:
    for graph in (recorded(), recorded().snapshot()):
        with pytest.raises(IndexError, match="has no node 99: its 5 nodes are numbered from 0 on"):
            graph[99]
        with pytest.raises(TypeError, match=r"is indexed by record numbers, .* it got 'a'"):
            graph["a"]  # type: ignore[call-overload]
    with ao.AutogradGraph() as graph:
        y = ao.tensor([1.0]) * 2
        with pytest.raises(IndexError, match="has no node -3: its 2 nodes"):
            graph[-3]
        with pytest.raises(TypeError, match="leaf='y' is of type str: choose the tensor itself"):
            graph.gradient_expression("y")  # type: ignore[arg-type]
        assert y is not None
