"""print(graph): exact text, stable from run to run."""

import inspect
import json
import re
import sys
from types import SimpleNamespace

import pytest
import torch

import autograd_opt as ao
from autograd_opt.graph import program_text
from tests.inspection.programs import many, mixed

GOLDEN = """\
%0 = leaf()  # f32[2]
%1 = leaf()  # f32[2]
%2 = add(%0, %1)  # f32[2]
%3 = add(%0, %1)  # f32[2], same as %2
%4 = constant()  # f32[2]
%5 = mul(%3, %4)  # f32[2]
%6 = unbind(%5)  # (f32[], f32[])
%7 = %6[0]  # f32[]
%8 = %6[1]  # f32[]
%9 = mul(%5, 2)  # f32[2]"""


def test_the_program_is_the_same_at_every_run() -> None:
    texts = []
    for _ in range(2):
        with mixed() as (graph, _):
            texts.append(str(graph))
    assert texts[0] == texts[1]
    assert texts[0].startswith(GOLDEN)


def test_lines_say_where_and_of_what_type() -> None:
    x = ao.tensor([[1.0, 2.0]], dtype=torch.float64)
    with ao.AutogradGraph() as graph:
        _y = torch.special.i0e(x.to(torch.float32)).sum(1, keepdim=True)
        text = str(graph)
    assert "sum(%2, dim=1, keepdim=True)  # f32[1, 1] test_printing.py:" in text
    assert "f64[1, 2]" in text
    assert "/" not in text


def test_opaque_calls_are_named_by_their_torch_function() -> None:
    with mixed() as (graph, _):
        assert any("torch.cdist(" in line and line.endswith("opaque") for line in str(graph).splitlines())


def test_an_empty_graph_prints_nothing() -> None:
    with ao.AutogradGraph() as graph:
        assert str(graph) == ""


def test_a_graph_that_has_been_left_says_so() -> None:
    with ao.AutogradGraph(name="gone") as graph:
        loss = ao.tensor([1.0]).exp().sum()
    assert "graph 'gone' has been left" in str(graph)
    for look in (lambda: graph.verify(loss), graph.optimized, graph.draw, graph.to_dot, graph.to_mermaid, graph.to_dict,
                 graph.to_html, lambda: ao.draw_comparison(graph)):
        with pytest.raises(ao.OutsideGraphError, match=r"'gone' has been left.* inside its context.*test_printing"):
            look()
    with pytest.raises(ao.OutsideGraphError, match="not been entered"):
        ao.AutogradGraph().draw()


@pytest.mark.parametrize("optimize", [False, True])
def test_writes_outside_the_record_have_the_line_of_the_write(optimize: bool) -> None:
    w = torch.ones(3, requires_grad=True)
    optimizer = torch.optim.SGD([w], 0.1)
    w.grad = torch.ones(3)
    with ao.AutogradGraph(optimize=optimize) as graph:
        y = w * 2
        optimizer.step()
        z = w * y
        y.detach().zero_()
        _u = y * z
        written = [line for line in str(graph).splitlines() if "written(" in line]
    first = inspect.currentframe().f_lineno  # type: ignore[union-attr]
    assert written[0].endswith(f"test_printing.py:{first - 5}")
    if optimize:                         # without value numbers such a write of an intermediate is not looked for
        assert written[1].endswith(f"test_printing.py:{first - 3}")


def test_lines_of_notebooks_are_named_by_their_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = SimpleNamespace(compile=SimpleNamespace(_filename_map={"/tmp/ipykernel_7/1234.py": 3}))
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    with ao.AutogradGraph() as graph:
        code = compile("y = x.exp()\n\nz = x @ y[:, None]", "/tmp/ipykernel_7/1234.py", "exec")
        exec(code, {"x": ao.tensor([1.0, 2.0])})
        assert "# f32[2] In[3]:1" in str(graph)
        assert graph.to_dict()["nodes"][1]["source"] == "In[3]:1"
    assert program_text.source_text("folder/train.py:3") == "train.py:3"
    with pytest.raises(RuntimeError, match=r"\[at In\[3\]:1\]"):
        exec(compile("x.backward()", "/tmp/ipykernel_7/1234.py", "exec"), {"x": ao.tensor([1.0])})


def test_a_pinned_node_has_a_value_of_another_but_is_not_the_same() -> None:
    x = ao.tensor([1.0, 2.0])
    with ao.AutogradGraph(optimize=True, sources=False) as graph:
        a, b, c = x.exp(), x.exp(), x.exp()
        b.retain_grad()
        assert str(graph).splitlines()[2:] == [
            "%2 = exp(%0)  # f32[2], value of %1",
            "%3 = exp(%0)  # f32[2], same as %1",
        ]
        assert graph.report().merged == 1
    del a, c


def test_expressions_of_the_optimized_graph_name_its_own_nodes() -> None:
    with mixed() as (graph, _):
        nodes = graph.to_dict(optimized=True)["nodes"]
    kept = {n["index"] for n in nodes}
    for n in nodes:
        operands = {o for o in n["operands"] if o is not None}
        assert {int(k) for k in re.findall(r"%(\d+)", n["expression"])} == operands <= kept


def test_a_report_is_plain_text_also_in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    with mixed() as (graph, _):
        assert "merged" in str(graph.report())
    with ao.explain() as e:
        torch.ones(3)
    assert "operation" in str(e)


def test_the_program_is_readable_after_backward() -> None:
    with mixed() as (graph, loss):
        before = [line.partition(",")[0] for line in str(graph).splitlines()]
        loss.sum().backward()
        after = [line.partition(",")[0] for line in str(graph).splitlines()]
    assert after[:len(before)] == before


def test_an_excerpt_marks_the_fault() -> None:
    with many(20) as graph:
        nodes = graph.tape.snapshot()
        text = program_text.excerpt(nodes, nodes[40]).splitlines()
    assert [line for line in text if line.startswith(">")] == [f"> {program_text.line(nodes[40])}"] or len(text) == 12
    assert text[0].strip() == text[-1].strip() == "…"


def test_values_are_told_apart_by_type() -> None:
    assert program_text.same(1, 1)
    assert not program_text.same(1, 1.0)
    assert not program_text.same(1, True)


def test_to_dict_is_json_and_follows_leaders() -> None:
    with mixed() as (graph, loss):
        written, optimized = graph.to_dict(), graph.to_dict(optimized=True)
        assert len(optimized["nodes"]) == graph.optimized().num_nodes()
        assert len(written["nodes"]) == graph.dag.num_nodes()
        assert written["outputs"] == [graph.root_numbers(loss)[0]]
    json.dumps(written)
    kept = {n["index"] for n in optimized["nodes"]}
    assert all(o in kept for n in optimized["nodes"] for o in n["operands"] if o is not None)
    assert {n["kind"] for n in written["nodes"]} == {"leaf", "constant", "operation", "opaque"}
    assert next(n["merged"] for n in optimized["nodes"] if n["merged"])[0] == 2


FORMATTED = {
    "two places": lambda w: f"{(w * 2).sum():.2f}",
    "plain": lambda w: f"{(w * 2).sum()}",
    "a leaf": lambda w: f"{w.sum().detach():>8.1e}",
    "an element": lambda w: f"{(w * 3)[1]:+.3f}",
    "a parameter's element": lambda w: f"{w[0]:.1f}",
    "an integer": lambda w: f"{(w * 2).argmax():03d}",
    "a comparison": lambda w: f"{(w * 2).sum() > 1}",
    "format": lambda w: f"{(w * 2).mean():.3g} {w.max()}",
}


@pytest.mark.parametrize("name", FORMATTED)
def test_a_number_is_formatted_as_by_torch(name: str) -> None:
    """Inside the context and after it: `f"{loss:.3f}"` is in every training loop."""
    expected = FORMATTED[name](torch.tensor([1.5, 2.25], requires_grad=True))
    with ao.AutogradGraph():
        assert FORMATTED[name](torch.tensor([1.5, 2.25], requires_grad=True)) == expected
        assert FORMATTED[name](ao.tensor([1.5, 2.25])) == expected
    assert FORMATTED[name](ao.tensor([1.5, 2.25])) == expected


def test_vectors_are_formatted_as_they_are_printed() -> None:
    with ao.AutogradGraph():
        y = torch.ones(2, requires_grad=True) * 2
        assert f"{y}" == str(y)
        loss = y.sum()
        with pytest.raises(TypeError, match="unsupported format string"):
            f"{y:.2f}"
    assert f"{y}" == str(y)
    assert f"{loss:.1f}" == "4.0"


def test_a_graph_that_is_not_open_says_so() -> None:
    graph = ao.AutogradGraph(name="mine")
    assert "'mine' has not been entered yet" in str(graph)
    with graph:
        pass
    assert "'mine' has been left" in str(graph)
