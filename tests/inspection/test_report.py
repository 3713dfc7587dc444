"""graph.report(): counts agree with the graph, groups name their lines, the object outlives the graph."""

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

import autograd_opt as ao
from tests.inspection.programs import mixed


def test_counts_agree_with_the_graphs() -> None:
    with mixed() as (graph, _):
        report = graph.report()
        assert report.nodes == (graph.dag.num_nodes(), graph.optimized().num_nodes())
        assert report.edges == (graph.dag.num_edges(), graph.optimized().num_edges())
        assert report.nodes[0] - report.nodes[1] == report.merged + report.pruned
        assert report.reused == graph.tape.hits
    assert report.opaque == {"torch.cdist": 1}
    assert report.with_rule["add"] >= 4


def test_groups_name_every_line() -> None:
    x = ao.tensor([1.0, 2.0])
    with ao.AutogradGraph(optimize=True) as graph:
        _a = x.exp()
        _b = x.exp() + 1
        report = graph.report()
    (group,) = report.groups
    assert group.expression == "exp(%0)"
    assert group.bytes == 8
    first, second = (int(s.rpartition(":")[2]) for s in group.sources)
    assert second == first + 1


def test_near_misses_say_what_blocked() -> None:
    x = ao.tensor([1.0, 2.0])
    with ao.AutogradGraph(optimize=True, sources=False) as graph:
        _a, b = x.exp(), x.exp()
        b.retain_grad()
        k = x * 1
        _s0 = k.sin()
        k.add_(1)
        _s1 = k.sin()
        reasons = [m.reason for m in graph.report().near_misses]
    assert reasons == [
        "%2 is pinned by a hook or retain_grad: it keeps its own cotangent",
        "operand 0 (x) was written between them by add_",
    ]


def test_a_constant_made_anew_is_a_near_miss() -> None:
    x = ao.tensor([1.0, 2.0])
    with ao.AutogradGraph(optimize=True, sources=False) as graph:
        _s = [x * torch.tensor([k, 5.0]) for k in (3.0, 4.0, 3.0)]
        (miss,) = graph.report().near_misses
    assert (miss.first, miss.second) == (2, 6)
    assert miss.reason == "%1 and %5 are two tensors that came from outside the graph, with equal values now: " \
                          "use one tensor for both"


def test_it_prints_and_serializes_and_outlives_the_graph() -> None:
    with mixed() as (graph, loss):
        loss.sum().backward()
        report = graph.report()
    text = str(report)
    assert "nodes" in text
    assert "add(%0, %1)" in text
    assert "<table>" in report._repr_html_()
    json.dumps(report.to_dict())
    left = graph.report()
    assert left.released
    assert left.reused == report.reused
    assert "left" in str(left)


def test_a_graph_never_entered_has_an_empty_report() -> None:
    assert ao.AutogradGraph().report().nodes == (0, 0)


def test_an_unoptimized_graph_shows_what_could_be_merged() -> None:
    x = torch.ones(3, requires_grad=True)
    with ao.AutogradGraph() as graph:
        y = x.exp() + x.exp()
        report = graph.report(y)
    assert report.merged == 1
    assert report.reused == 0


@pytest.mark.parametrize("entered", [False, True])
def test_a_graph_that_is_not_open_says_so(entered: bool) -> None:
    x = ao.tensor([1.0])
    graph = ao.AutogradGraph(optimize=True)
    if entered:
        with graph:
            _ = x * 2
    asked = [lambda: graph.dag, graph.topological_order, graph.is_acyclic, graph.optimized, graph.draw, graph.to_html,
             graph.to_dict, graph.verify, lambda: graph.gradient_expression(x), lambda: graph.follow(torch.nn.Tanh()),
             lambda: graph.root_numbers(), lambda: ao.draw_comparison(graph)]
    for ask in asked:
        with pytest.raises(ao.OutsideGraphError, match="has been left" if entered else "not been entered") as caught:
            ask()
        assert "[at " in str(caught.value)
        assert "test_report.py:" in str(caught.value)
    with pytest.raises(ao.OutsideGraphError, match=r"test_report\.py:"):
        graph.explain(x, x)
    assert ("has been left" if entered else "not been entered") in str(graph)


BAD: dict[str, tuple[type[Exception], str, Callable[[ao.AutogradGraph, Any, Any], Any]]] = {
    "draw to a number": (TypeError, "path=3 is of type int", lambda g, x, y: g.draw(3)),
    "draw to bytes": (TypeError, "is of type bytes", lambda g, x, y: g.draw(b"o.svg")),
    "a page in a number": (TypeError, "path=3 is of type int", lambda g, x, y: g.to_html(3)),
    "a page in a folder": (ValueError, "is a folder", lambda g, x, y: g.to_html("/")),
    "a comparison in a number": (TypeError, "path=3 is of type int", lambda g, x, y: ao.draw_comparison(g, 3)),
    "a comparison of nothing": (TypeError, "expected an AutogradGraph", lambda g, x, y: ao.draw_comparison(None)),
    "no boxes": (ValueError, "limit=0: choose", lambda g, x, y: g.to_dot(limit=0)),
    "no model": (TypeError, "expected a torch.nn.Module to follow, got int", lambda g, x, y: g.follow(3)),
    "names without leaves": (TypeError, "names=3 is of type int",
                             lambda g, x, y: g.gradient_expression(x, outputs=y, names=3)),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("optimize", [False, True])
def test_wrong_arguments_are_refused_with_the_line(case: str, optimize: bool) -> None:
    x = ao.tensor([1.0])
    kind, text, ask = BAD[case]
    with ao.AutogradGraph(optimize=optimize) as graph:
        y = x * 2
        with pytest.raises(kind, match=text) as caught:
            ask(graph, x, y)
        assert isinstance(caught.value, ao.AutogradOptError)
        assert "[at " in str(caught.value)
        assert "test_report.py:" in str(caught.value)
        assert len(graph) == 2


def test_another_thread_does_not_read_an_open_graph() -> None:
    x = ao.tensor([1.0])
    said: list[str] = []

    def other() -> None:
        for ask in (lambda: graph.dag, graph.topological_order, graph.is_acyclic, lambda: graph.explain(y, y),
                    lambda: graph.gradient_expression(x, outputs=y)):
            try:
                ask()
            except ao.GraphError as error:
                said.append(str(error))

    with ao.AutogradGraph(optimize=True) as graph:
        y = x * 2
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert len(said) == 5
    assert all("another thread" in text and "test_report.py:" in text for text in said)


def test_changing_the_dag_that_was_given_out_changes_no_other_answer() -> None:
    x = ao.tensor([1.0])
    with ao.AutogradGraph() as graph:
        _ = x.exp().sin()
        assert graph.dag is graph.dag
        graph.dag.remove_node(1)
        assert [node.op.name for node in graph.topological_order()] == ["leaf", "exp", "sin"]
        assert graph.is_acyclic()
