"""Pictures: what is shown, in every format, with and without graphviz."""

import itertools
import shutil
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import torch

import autograd_opt as ao
from autograd_opt import errors
from autograd_opt.draw import draw_comparison, layout
from autograd_opt.draw.pictures import LIMIT, picture_of
from autograd_opt.modules import follow
from autograd_opt.scene import scene_of
from tests.seeing.programs import many, mixed

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(params=["own layout", "graphviz"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "own layout":
        monkeypatch.setenv("AUTOGRAD_OPT_NO_GRAPHVIZ", "1")
    elif shutil.which("dot") is None:
        pytest.skip("graphviz is not installed")
    return str(request.param)


def nodes_of(svg: str) -> dict[str, ET.Element]:
    return {g.get("id", ""): g for g in ET.fromstring(svg).iter(f"{SVG}g") if "node" in (g.get("class") or "")}


def test_svg_shows_every_node_with_hover_and_state(engine: str) -> None:
    with mixed() as (graph, _):
        shown = nodes_of(graph.draw())
        assert len(shown) == len(graph)
    assert "one value, written 3 times" in shown["n2"][0].text
    states = {g.get("class") for g in shown.values()}
    assert {"node leaf kept", "node constant kept", "node operation merged", "node operation pruned",
            "node opaque kept"} <= states
    struck = [g for g in shown.values() if "pruned" in (g.get("class") or "")]
    assert all(any(t.get("text-decoration") == "line-through" for t in g.iter(f"{SVG}text")) for g in struck)


def test_kinds_are_told_apart_by_shape() -> None:
    with mixed() as (graph, _):
        picture = picture_of(scene_of(graph), False)
        svg = graph.draw()
    pinned = next(b for b in picture.boxes if b.pinned)
    assert nodes_of(svg)[pinned.id].find(f"{SVG}polygon") is not None
    output = next(b for b in picture.boxes if b.is_output)
    assert len(nodes_of(svg)[output.id].findall(f"{SVG}rect")) == 2


def test_merged_nodes_have_one_colour() -> None:
    with mixed() as (graph, _):
        picture = picture_of(scene_of(graph), False)
    groups = {b.group for b in picture.boxes if b.state == "merged" or b.id == "n2"}
    assert len(groups) == 1


def test_boxes_of_a_row_do_not_overlap(engine: str) -> None:
    with mixed() as (graph, _):
        placed = layout.arrange(picture_of(scene_of(graph), False))
    rows: dict[int, list[tuple[float, float]]] = {}
    for i, (x, y) in placed.centres.items():
        rows.setdefault(round(y), []).append((x, placed.sizes[i][0]))
    for row in rows.values():
        row.sort()
        for (a, wa), (b, wb) in itertools.pairwise(row):
            assert a + wa / 2 <= b - wb / 2 + 1


def test_files_by_ending(tmp_path: Path, engine: str) -> None:
    with mixed() as (graph, _):
        for ending in (".svg", ".png", ".dot", ".mmd"):
            path = graph.draw(tmp_path / f"g{ending}")
            assert path.stat().st_size > 500
        draw_comparison(graph, tmp_path / "both.png")
        text = draw_comparison(graph)
        with pytest.raises(errors.ArgumentError, match=r"\.svg, \.png, \.dot, \.mmd"):
            graph.draw(tmp_path / "g.gif")
    assert (tmp_path / "g.png").read_bytes().startswith(b"\x89PNG")
    ET.fromstring(text)
    assert "as written" in text
    assert "optimized" in text


@pytest.mark.skipif(shutil.which("dot") is None, reason="graphviz is not installed")
def test_dot_text_is_valid(tmp_path: Path) -> None:
    import subprocess
    with mixed() as (graph, _):
        text = graph.to_dot()
    run = subprocess.run(["dot", "-Tsvg"], input=text, capture_output=True, text=True, check=True)
    assert run.stderr == ""
    assert "text-decoration=\"line-through\"" in run.stdout or "<s>" in run.stdout.lower()


def test_mermaid_text() -> None:
    with mixed() as (graph, _):
        lines = graph.to_mermaid(optimized=True).splitlines()
    assert lines[0] == "flowchart TD"
    assert "  n0 --> n2" in lines
    assert not any("n3" in line for line in lines)


def test_large_graphs_are_drawn_in_blocks_without_cycles() -> None:
    import rustworkx as rx
    with many(200) as graph:
        picture = picture_of(scene_of(graph), False)
        ET.fromstring(graph.draw())
    assert len(picture.boxes) <= LIMIT
    dag: rx.PyDiGraph[str, None] = rx.PyDiGraph()
    index = {b.id: dag.add_node(b.id) for b in picture.boxes}
    dag.add_edges_from([(index[a], index[b], None) for a, b, _, _ in picture.edges])
    assert rx.is_directed_acyclic_graph(dag)


def transformer(layers: int) -> torch.nn.Module:
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
    return torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)


def test_a_followed_transformer_is_drawn_by_module(engine: str) -> None:
    model = transformer(3)
    with ao.AutogradGraph(optimize=True) as graph:
        follow(graph, model)
        _y = model(torch.randn(2, 5, 8))
        picture = picture_of(scene_of(graph), False)
        text = graph.draw()
    assert [f.title for f in picture.frames] == [f"TransformerEncoder.layers.{k}" for k in range(3)]
    titles = {b.id: b.title for b in picture.boxes}
    assert [titles[i] for i in picture.frames[2].boxes if titles[i] != "add"][:4] == \
        ["self_attn", "norm1", "linear1", "relu"]
    assert [titles[i] for f in picture.frames for i in f.boxes].count("add") == 6
    frames = [g for g in ET.fromstring(text).iter(f"{SVG}g") if g.get("class") == "frame"]
    assert [g.findtext(f"{SVG}text") for g in frames] == [f.title for f in picture.frames]
    model(torch.randn(2, 5, 8))
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


@pytest.mark.parametrize("calls", [1, 2])
def test_a_frame_holds_its_blocks_and_no_other(engine: str, calls: int) -> None:
    model = transformer(2)
    x = torch.randn(2, 5, 8)
    with ao.AutogradGraph(optimize=True) as graph:
        follow(graph, model)
        _y = [model(x * k) for k in range(1, calls + 1)]
        picture = picture_of(scene_of(graph), False)
    placed = layout.arrange(picture)
    assert placed.frames or calls > 1
    for title, (left, top), (right, bottom) in placed.frames:
        inside = {i for i, (x, y) in placed.centres.items() if left < x < right and top < y < bottom}
        assert any(frame.title == title and inside == set(frame.boxes) for frame in picture.frames)
        assert left >= 0
        assert top >= 0
        assert right <= placed.width
        assert bottom <= placed.height
    framed = {i for frame in picture.frames for i in frame.boxes}
    assert all(b.title == b.full for b in picture.boxes if b.id not in framed)


def test_layers_like_an_earlier_one_stay_whole_where_there_are_many() -> None:
    model = transformer(12)
    with ao.AutogradGraph(optimize=True) as graph:
        follow(graph, model)
        _y = model(torch.randn(2, 5, 8))
        picture = picture_of(scene_of(graph), False)
    assert [f.title for f in picture.frames] == ["TransformerEncoder.layers.0"]
    whole = [b.title for b in picture.boxes if "like TransformerEncoder.layers.0" in b.detail]
    assert whole == [f"TransformerEncoder.layers.{k}" for k in range(1, 12)]


def test_a_model_that_nobody_follows_is_divided_where_parameters_are_read() -> None:
    model = transformer(2)
    with ao.AutogradGraph(optimize=True) as graph:
        _y = model(torch.randn(2, 5, 8))
        picture = picture_of(scene_of(graph), False)
    assert "graph.follow(model) names modules" in picture.caption
    assert "4 nodes: linear, relu" in [b.detail for b in picture.boxes]


def test_boxes_tell_numbers_and_names_of_parameters() -> None:
    model = torch.nn.Linear(2, 1)
    with ao.AutogradGraph() as graph:
        graph.follow(model)
        _y = (2 - model(torch.ones(3, 2)) ** 3).sum(0)
        titles = [b.title for b in picture_of(scene_of(graph), False).boxes]
        names = [node["name"] for node in graph.to_dict()["nodes"]]
    assert titles == ["%0 constant", "%1 weight", "%2 bias", "%3 linear", "%4 pow 3", "%5 rsub 2", "%6 sum 0"]
    assert names[:4] == ["", "weight", "bias", ""]


def test_a_picture_that_fails_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("autograd_opt.draw.svg.node", stopped)
    with mixed() as (graph, _), pytest.raises(KeyboardInterrupt):
        graph.draw(tmp_path / "g.svg")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_of_no_blocks_is_refused(limit: int, optimize: bool) -> None:
    x = ao.tensor([1.0, 2.0])
    with ao.AutogradGraph(optimize=optimize) as graph:
        y = x
        for _ in range(LIMIT + 10):
            y = y.sin()
        for draw in (graph.draw, graph.to_dot, graph.to_mermaid, lambda limit: draw_comparison(graph, limit=limit)):
            with pytest.raises(errors.ArgumentError, match=rf"limit={limit}: choose a whole number from 1 .*test_draw"):
                draw(limit=limit)
            assert draw(limit=1)


def test_a_hundred_thousand_levels_need_no_recursion() -> None:
    n = 100_000
    level = layout.levels([str(i) for i in range(n)], [(str(i), str(i + 1)) for i in range(n - 1)])
    assert level[str(n - 1)] == n - 1
