"""Pictures: what is shown, in every format."""

import random
import re
import shutil
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch

import autograd_opt as ao
from autograd_opt import errors
from autograd_opt.inspection.drawing import draw_comparison
from autograd_opt.inspection.drawing.pictures import LIMIT, picture_of
from autograd_opt.inspection.groups import LINES, MODULES, TREES, division_of
from autograd_opt.inspection.module_names import follow
from autograd_opt.inspection.snapshot import scene_of
from tests.inspection.programs import many, mixed, program, transformer

SVG = "{http://www.w3.org/2000/svg}"


graphviz = pytest.mark.skipif(shutil.which("dot") is None, reason="graphviz is not installed")


def nodes_of(svg: str) -> dict[str, ET.Element]:
    return {g.get("id", ""): g for g in ET.fromstring(svg).iter(f"{SVG}g") if "node" in (g.get("class") or "")}


@graphviz
def test_svg_shows_every_node_with_hover_and_state() -> None:
    with mixed() as (graph, _):
        text = graph.draw()
        shown = nodes_of(text)
        assert len(shown) == len(graph)
    assert text.startswith("<svg")
    assert "one value, written 3 times" in ET.tostring(shown["n2"], encoding="unicode")
    states = {g.get("class") for g in shown.values()}
    assert {"node leaf kept", "node constant kept", "node operation merged", "node operation pruned",
            "node opaque kept"} <= states
    struck = [g for g in shown.values() if "pruned" in (g.get("class") or "")]
    assert all(any(t.get("text-decoration") == "line-through" for t in g.iter(f"{SVG}text")) for g in struck)


def test_kinds_are_told_apart_by_shape() -> None:
    with mixed() as (graph, _):
        picture = picture_of(scene_of(graph), False)
        lines = {line.split()[0]: line for line in graph.to_dot().splitlines() if " [label=" in line}
    shapes = {b.kind: lines[b.id] for b in picture.boxes if not b.pinned}
    assert "shape=hexagon" in lines[next(b.id for b in picture.boxes if b.pinned)]
    assert "peripheries=2" in lines[next(b.id for b in picture.boxes if b.is_output)]
    assert "shape=parallelogram" in shapes["opaque"]
    assert "bold" in shapes["leaf"]
    assert "dashed" in shapes["constant"]
    assert "rounded" in shapes["operation"]


def test_merged_nodes_have_one_colour() -> None:
    with mixed() as (graph, _):
        picture = picture_of(scene_of(graph), False)
    groups = {b.group for b in picture.boxes if b.state == "merged" or b.id == "n2"}
    assert len(groups) == 1


@graphviz
def test_files_by_ending(tmp_path: Path) -> None:
    with mixed() as (graph, _):
        for ending in (".svg", ".png", ".dot", ".mmd"):
            path = graph.draw(tmp_path / f"g{ending}")
            assert path.stat().st_size > 500
            assert draw_comparison(graph, tmp_path / f"both{ending}").stat().st_size > path.stat().st_size
        text = draw_comparison(graph)
        with pytest.raises(errors.ArgumentError, match=r"\.svg, \.png, \.dot, \.mmd"):
            graph.draw(tmp_path / "g.gif")
    assert (tmp_path / "g.png").read_bytes().startswith(b"\x89PNG")
    ET.fromstring(text)
    assert "as written" in text
    assert "optimized" in text
    assert {"an2", "bn2"} <= nodes_of(text).keys()


def test_without_graphviz_there_is_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SVG and PNG are refused with where to get the program; Mermaid, DOT and the page need none."""
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with mixed() as (graph, _):
        for draw in (graph.draw, lambda: graph.draw(tmp_path / "g.png"), lambda: draw_comparison(graph)):
            with pytest.raises(errors.UnsupportedError, match=r"install graphviz.*Mermaid.*to_html.*test_draw"):
                draw()
        assert not list(tmp_path.iterdir())
        for ending in (".dot", ".mmd"):
            assert graph.draw(tmp_path / f"g{ending}").stat().st_size > 500
        assert graph._repr_svg_() is None


def test_mermaid_text() -> None:
    with mixed() as (graph, _):
        lines = graph.to_mermaid(optimized=True).splitlines()
    assert lines[0] == "flowchart TD"
    assert "  n0 --> n2" in lines
    assert not any("n3" in line for line in lines)


def acyclic(boxes: Iterable[object], edges: Iterable[tuple[object, object]]) -> bool:
    import rustworkx as rx
    dag: rx.PyDiGraph[object, None] = rx.PyDiGraph()
    index = {b: dag.add_node(b) for b in boxes}
    dag.add_edges_from([(index[a], index[b], None) for a, b in edges])
    return rx.is_directed_acyclic_graph(dag)


def test_large_graphs_are_folded_without_cycles() -> None:
    with many(200) as graph:
        picture = picture_of(scene_of(graph), False)
    assert 1 < len(picture.boxes) <= LIMIT
    assert acyclic((b.id for b in picture.boxes), ((a, b) for a, b, _ in picture.edges))


@pytest.mark.parametrize("kind", ["modules", "lines", "trees"])
def test_whatever_is_folded_the_boxes_form_no_cycle(kind: str) -> None:
    scene = scene_of(program(kind).kept)
    division = division_of(scene)
    assert division.words == {"modules": MODULES, "lines": LINES, "trees": TREES}[kind]
    rng = random.Random(0)
    for items, home in ((scene.items, division.written), (scene.optimized_items(), division.optimized)):
        for share in (0.0, 0.3, 0.7, 1.0):
            opened = {g for g in range(len(division.groups)) if rng.random() < share}
            box = {item.index: next((f"g{g}" for g in division.around(home[item.index]) if g not in opened),
                                    f"n{item.index}") for item in items}
            edges = {(box[o], box[item.index]) for item in items for o in item.operands
                     if o is not None and scene.items[o].kind not in ("leaf", "constant")}
            assert acyclic(set(box.values()), {(a, b) for a, b in edges if a != b})


def test_a_population_shows_what_its_trees_share() -> None:
    graph = program("trees")
    scene = scene_of(graph.kept)
    before, after = (picture_of(scene, optimized) for optimized in (False, True))
    titles = [b.title for b in before.boxes]
    assert [b.id for b in before.boxes] == [b.id for b in after.boxes]
    assert any(re.match(r"[A-L] = \(%\d+ \+ %\d+\) · %\d+$", t) for t in titles)
    assert any(t.startswith("trees 1 to ") for t in titles)
    assert not before.edges
    named = {t[0] for t in titles if t[1:4] == " = "}
    assert {text[0] for b in before.boxes for text, _ in b.tags} == named


def test_the_rounds_of_a_loop_are_one_group_each() -> None:
    x = ao.tensor([1.0])
    with ao.AutogradGraph(keep=True) as graph:
        for _ in range(40):
            x = x * 2 + 1
            x = x.sin()
            x = x.exp()
    division = division_of(scene_of(graph.kept))
    assert [g.kind for g in division.groups if g.parent < 0] == ["part"] * 40


def test_before_and_after_have_their_boxes_in_one_place() -> None:
    if shutil.which("dot") is None:
        pytest.skip("graphviz is not installed")
    with mixed() as (graph, _):
        shown = nodes_of(draw_comparison(graph))

    def middle(id: str) -> tuple[float, float]:
        shape = next(e for e in shown[id].iter() if e.tag.split("}")[1] in ("polygon", "path"))
        numbers = [float(v) for v in re.findall(r"-?\d+\.?\d*", shape.get("points") or shape.get("d") or "")]
        return min(numbers[::2]), min(numbers[1::2])
    places = {p: {i: middle(f"{p}n{i}") for i in range(25)} for p in "ab"}
    assert all(abs(places["a"][i][1] - places["b"][i][1]) < 1 for i in range(25))
    beside = {p: sorted(range(25), key=lambda i, p=p: (round(places[p][i][1]), places[p][i][0])) for p in "ab"}
    assert beside["a"] == beside["b"]


def test_a_followed_transformer_is_drawn_by_module() -> None:
    model = transformer(3)
    with ao.AutogradGraph(optimize=True) as graph:
        follow(graph, model)
        _y = model(torch.randn(2, 5, 8))
        picture = picture_of(scene_of(graph), False)
        text = graph.to_dot()
    assert [f.title for f in picture.frames] == ["TransformerEncoder.layers", "0", "1", "2"]
    titles = {b.id: re.sub(r"%\d+ ", "", b.title) for b in picture.boxes}
    assert [titles[i] for i in picture.frames[3].boxes if titles[i] != "add"][:4] == \
        ["self_attn", "norm1", "linear1", "relu"]
    assert [titles[i] for f in picture.frames for i in f.boxes].count("add") == 6
    labels = re.findall(r'subgraph cluster\d { label="(.*?)"', text)
    assert [label.rstrip("\N{NO-BREAK SPACE}") for label in labels] == [f.title for f in picture.frames]
    # half of a narrow frame is left to the line that enters it
    assert all(len(label) == 3 * len(f.title) for label, f in zip(labels, picture.frames, strict=True)
               if len(f.title) < 20)
    model(torch.randn(2, 5, 8))
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_layers_like_an_earlier_one_stay_whole_where_there_are_many() -> None:
    model = transformer(12)
    with ao.AutogradGraph(optimize=True) as graph:
        follow(graph, model)
        _y = model(torch.randn(2, 5, 8))
        picture = picture_of(scene_of(graph), False)
    assert [f.title for f in picture.frames] == ["TransformerEncoder.layers", "0"]
    whole = [b.title for b in picture.boxes if "like TransformerEncoder.layers.0" in b.detail]
    assert whole == [f"{k}" for k in range(1, 12)]


def test_a_model_that_nobody_follows_is_divided_where_it_repeats() -> None:
    model = transformer(5)
    with ao.AutogradGraph(optimize=True) as graph:
        _y = model(torch.randn(2, 5, 8))
        picture = picture_of(scene_of(graph), False)
    assert "graph.follow(model) names modules" in picture.caption
    assert len([b for b in picture.boxes if ", like %" in b.detail]) == 4


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

    monkeypatch.setattr("autograd_opt.inspection.drawing.dot.node", stopped)
    with mixed() as (graph, _), pytest.raises(KeyboardInterrupt):
        graph.draw(tmp_path / "g.dot")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_of_no_blocks_is_refused(limit: int, optimize: bool, tmp_path: Path) -> None:
    x = ao.tensor([1.0, 2.0])
    with ao.AutogradGraph(optimize=optimize) as graph:
        y = x
        for _ in range(LIMIT + 10):
            y = y.sin()
        for draw in (lambda limit: graph.draw(tmp_path / "g.dot", limit=limit), graph.to_dot, graph.to_mermaid,
                     lambda limit: draw_comparison(graph, tmp_path / "g.dot", limit=limit)):
            with pytest.raises(errors.ArgumentError, match=rf"limit={limit}: choose a whole number from 1 .*test_draw"):
                draw(limit=limit)
            assert draw(limit=1)


def test_a_merged_node_names_the_one_that_it_is_the_same_as() -> None:
    with mixed() as (graph, _):
        scene = scene_of(graph)
        picture = picture_of(scene, False)
    merged = {b.id: b.detail for b in picture.boxes if b.state == "merged"}
    assert merged
    assert all(detail.endswith(f"same as %{scene.items[int(id[1:])].leader}") for id, detail in merged.items())


def test_the_legend_names_what_is_drawn_and_nothing_else() -> None:
    with mixed() as (graph, _):
        whole, left = graph.to_dot(), graph.to_dot(optimized=True)
    assert "struck out: not needed" in whole
    assert "dashed: merged" in next(line for line in whole.splitlines() if line.startswith("  label="))
    assert "struck out" not in left
    with ao.AutogradGraph() as plain:
        _y = ao.tensor([1.0]).sin()
        legend = next(line for line in plain.to_dot().splitlines() if line.startswith("  label="))
    assert legend == '  label="double outline: result";'


def test_a_value_that_many_read_stands_above_them_in_a_colour_of_its_own() -> None:
    x = torch.rand(10, 2, requires_grad=True)
    with ao.AutogradGraph(optimize=True) as graph:
        parts = x.unbind()
        _y = [parts[0].exp(), parts[0].exp(), parts[1].sin(), parts[1].sin()]
        picture = picture_of(scene_of(graph), False)
    (shared,) = [b for b in picture.boxes if "unbind" in b.title]
    assert shared.detail == "10 × f32[2]"
    readers = [b for b in picture.boxes if b.tags]
    assert {k for b in readers for _, k in b.tags} == {shared.group}
    assert shared.group not in [b.group for b in picture.boxes if b is not shared]
    assert {(shared.id, b.id) for b in readers} == set(picture.hidden)
    assert len(readers) == 10


def test_a_merged_value_that_many_read_keeps_the_colour_of_its_group() -> None:
    x = torch.rand(2, requires_grad=True)
    with ao.AutogradGraph(optimize=True) as graph:
        y, z = x.exp(), x.exp()
        _u = [y * k for k in range(9)], z + 1
        picture = picture_of(scene_of(graph), False)
    first, second = (b for b in picture.boxes if b.title.endswith("exp"))
    assert first.group == second.group
    assert {k for b in picture.boxes for _, k in b.tags} == {first.group}
