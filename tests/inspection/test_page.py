"""The HTML page: complete in one file, right in a real browser."""

import html
import json
import re
import shutil
import subprocess
import time
from importlib.resources import files
from pathlib import Path

import pytest

import autograd_opt as ao
from autograd_opt.inspection.formulas import formulas_of
from autograd_opt.inspection.page import notebook_html, to_html
from autograd_opt.ops.table import OPS
from tests.inspection.programs import many, mixed, program

BROWSER = next((b for b in ("chromium", "chromium-browser", "google-chrome") if shutil.which(b)), None)


def data_of(text: str) -> dict[str, object]:
    match = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert match is not None
    return dict(json.loads(match.group(1)))


def test_the_page_needs_no_network(tmp_path: Path) -> None:
    with mixed() as (graph, _):
        text = to_html(graph)
        assert to_html(graph, tmp_path / "g.html").read_text(encoding="utf-8") == text
    assert not re.search(r"(src|href)=|https?:|@import|fetch\(", text)


def test_every_node_is_there_with_rule_and_group() -> None:
    with mixed() as (graph, _):
        data = data_of(to_html(graph))
        assert len(data["nodes"]) == len(graph)  # type: ignore[arg-type]
    nodes: list[dict[str, object]] = data["nodes"]  # type: ignore[assignment]
    assert data["rules"][nodes[5]["op"]] == {"x": "g * H(y)", "y": "g * H(x)"}  # type: ignore[index]
    assert nodes[2]["merged"] == [2, 3, 11] or len(nodes[2]["merged"]) == 3  # type: ignore[arg-type]
    assert {"kept", "merged", "pruned"} == {node["state"] for node in nodes}


def test_text_in_attributes_cannot_end_the_script() -> None:
    with ao.AutogradGraph(name="</script><b>") as graph:
        _y = ao.tensor([1.0]) * 2
        text = to_html(graph)
    assert text.count("</script>") == 2
    assert data_of(text)["title"] == "graph '</script><b>'"


def test_every_operator_has_a_readable_formula() -> None:
    for name in ("add", "mul", "exp", "matmul", "sum", "where", "log_softmax"):
        formulas = formulas_of(OPS[name])
        assert formulas
        assert all(text and "not at hand" not in text for text in formulas.values())


@pytest.mark.parametrize("program", ["dot", None])
def test_notebook_html(program: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if program is None:
        monkeypatch.setattr(shutil, "which", lambda name: None)
    elif shutil.which(program) is None:
        pytest.skip("graphviz is not installed")
    with mixed() as (graph, _):
        assert ("<svg" if program else "flowchart TD") in notebook_html(graph)
    assert "closed" in notebook_html(graph)


CLICKS = """
<script>
const seen = {}, type = (field, text) => { field.value = text; field.dispatchEvent(new Event("input")); };
const press = (type, i) => {
  const area = canvas.getBoundingClientRect(), [x, y] = layout[i];
  const place = {clientX: area.left + dx + scale * x, clientY: area.top + dy + scale * y};
  canvas.dispatchEvent(new PointerEvent(type, place));
};
type($("search"), "sum f32[1]");
seen.found = [...hits];
$("search").dispatchEvent(new KeyboardEvent("keydown", {key: "Enter"}));
seen.chosen = $("details").querySelector("h2").textContent;
type($("search"), "");
$("fit").click();
addEventListener("error", e => e.preventDefault());     // a synthetic pointer cannot be captured
press("pointerdown", 5); press("pointerup", 5);
seen.clicked = $("details").textContent;
const before = scale;
canvas.dispatchEvent(new WheelEvent("wheel", {deltaY: -200, clientX: 300, clientY: 300}));
seen.zoomed = scale > before;
$("optimized").click();
seen.shown = $("count").textContent;
seen.nodes = Object.keys(layout).length;
[...$("details").querySelectorAll("a")][0].click();
seen.followed = chosen;
document.body.dataset.seen = JSON.stringify(seen);
</script>
"""


def dom(page: Path, fragment: str = "", size: str = "1200,800") -> str:
    """What a real browser makes of a page, in a window of this size."""
    run = subprocess.run(
        [str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", f"--user-data-dir={page.parent / 'profile'}",
         f"--window-size={size}", "--dump-dom", f"file://{page}{fragment}"],
        capture_output=True, text=True, timeout=120, check=False)
    assert "data-ready" in run.stdout, run.stderr[-500:]
    return run.stdout


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no Chromium")
def test_search_click_zoom_and_the_optimized_view_in_a_browser(tmp_path: Path) -> None:
    with mixed() as (graph, _):
        text = to_html(graph)
        sums = [n["index"] for n in graph.to_dict()["nodes"] if n["op"] == "sum" and n["type"] == "f32[1]"]
        left = graph.optimized().num_nodes()
    page = tmp_path / "g.html"
    page.write_text(text.replace("</body>", CLICKS + "</body>"), encoding="utf-8")
    match = re.search(r'data-seen="([^"]*)"', dom(page))
    assert match is not None
    seen = json.loads(html.unescape(match.group(1)))
    assert seen["found"] == sums
    assert seen["chosen"].startswith(f"%{sums[0]} = sum(")
    for part in ("%5 = mul(%3, %4)", "f32[2]", "cotangent of x: g * H(y)"):
        assert part in seen["clicked"]
    assert seen["zoomed"]
    assert seen["shown"] == f"{left} nodes"
    assert 0 < seen["nodes"] <= left
    assert seen["followed"] == 2         # %3, the operand that was clicked, is led to %2


KEYS = """
<script>
addEventListener("error", e => e.preventDefault());     // a synthetic pointer cannot be captured
const seen = {};
function press(key) {
  canvas.focus();
  canvas.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
}
go(5);
press("ArrowUp"); seen.up = [layout[5], layout[chosen]];
press("ArrowDown"); seen.down = layout[chosen];
function finger(type, pointerId, clientX) {
  canvas.dispatchEvent(new PointerEvent(type, {pointerId, clientX, clientY: 200, bubbles: true}));
}
canvas.setPointerCapture = () => {};
const before = scale, selected = chosen;
finger("pointerdown", 1, 100); finger("pointerdown", 2, 200); finger("pointermove", 2, 300);
seen.pinched = scale / before;
finger("pointerup", 1, 100); finger("pointerup", 2, 300);
seen.kept = chosen === selected && grip === null && fingers.size === 0;
seen.ink = INK;
seen.colours = [INK, FAINT, SOFT, PAPER, EDGE, MARK, LEAF, PRUNED, FRAME]
  .filter(c => /^#[0-9a-f]{3,6}$/.test(c)).length;
document.body.dataset.seen = JSON.stringify(seen);
</script>
"""


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no Chromium")
def test_arrow_keys_two_fingers_and_colours_in_a_browser(tmp_path: Path) -> None:
    with mixed() as (graph, _):
        text = to_html(graph)
    page = tmp_path / "g.html"
    page.write_text(text.replace("</body>", KEYS + "</body>"), encoding="utf-8")
    match = re.search(r'data-seen="([^"]*)"', dom(page))
    assert match is not None
    seen = json.loads(html.unescape(match.group(1)))
    here, above = seen["up"]
    assert above[1] < here[1]
    assert seen["down"][1] > above[1]
    assert seen["pinched"] == pytest.approx(2)
    assert seen["kept"]
    assert seen["colours"] == 9


FOLDS = """
<script>
const seen = {through: [], unplaced: 0, sideways: 0};
// a line goes through no box but those that it joins
function check() {
  for (const l of scene.lines) for (let k = 1; k < l.points.length; k++) for (let s = 0; s <= 10; s++) {
    const a = l.points[k - 1], b = l.points[k], x = a.x + (b.x - a.x) * s / 10, y = a.y + (b.y - a.y) * s / 10;
    for (const box of scene.boxes.values()) if (box.key !== l.from && box.key !== l.to
      && Math.abs(x - box.x) < box.w / 2 - 2 && Math.abs(y - box.y) < box.h / 2 - 2)
      seen.through.push([l.from, l.to, box.key]);
  }
  for (const box of scene.boxes.values()) if (!Number.isFinite(box.x + box.y)) seen.unplaced++;
  // an arrowhead points down, into its box
  for (const {points: p} of scene.lines) if (p[p.length - 1].y - p[p.length - 2].y < .5) seen.sideways++;
}
const upward = () => scene.lines.filter(l => scene.boxes.get(l.from).y >= scene.boxes.get(l.to).y).length;
check();
seen.folded = scene.boxes.size;
const beside = new Map();
for (const b of scene.boxes.values()) beside.set(Math.round(b.y), (beside.get(Math.round(b.y)) || 0) + 1);
seen.widest = Math.max(...beside.values());
const last = G.nodes.length - 1;
go(last);
seen.found = scene.boxes.has(last);
check();
const g = around(homes[last])[0];
if (g !== undefined) { toggle(g); seen.hidden = !scene.boxes.has(last); }
check();
$("search").value = "sum";
$("search").dispatchEvent(new Event("input"));
$("next").click(); const one = chosen;
$("next").click(); const two = chosen;
$("previous").click();
seen.turns = one !== two && chosen === one && scene.boxes.has(one) && hits.has(two);
seen.upward = upward();
$("optimized").click();
check();
seen.fits = document.documentElement.scrollWidth <= innerWidth;
document.body.dataset.seen = JSON.stringify(seen);
</script>
"""


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no Chromium")
@pytest.mark.parametrize("kind", ["modules", "lines", "trees", "summed trees"])
def test_groups_unfold_and_no_line_goes_through_a_box_in_a_browser(kind: str, tmp_path: Path) -> None:
    page = tmp_path / "g.html"
    text = to_html(program(kind).kept)
    page.write_text(text.replace("</body>", FOLDS + "</body>"), encoding="utf-8")
    match = re.search(r'data-seen="([^"]*)"', dom(page, size="390,800"))
    assert match is not None
    seen = json.loads(html.unescape(match.group(1)))
    assert seen["through"] == []
    assert seen["unplaced"] == seen["upward"] == seen["sideways"] == 0
    assert 5 < seen["folded"] <= 80
    assert seen["widest"] <= 12          # trees that one sum reads stand in rows, not all beside each other
    assert seen["found"]
    assert seen["hidden"]
    assert seen["turns"]
    assert seen["fits"]


def test_both_modes_have_every_colour_that_the_script_reads() -> None:
    folder = files("autograd_opt.inspection.page")
    css = (folder / "page.css").read_text(encoding="utf-8")
    script = (folder / "page.js").read_text(encoding="utf-8")
    light, dark = (set(re.findall(r"--(\w+):", block)) for block in re.findall(r":root \{([^}]*)\}", css))
    assert light == dark
    names = re.search(r'\[("ink".*?)\]', script)
    assert names is not None
    assert set(json.loads(f"[{names[1]}]")) <= light
    assert set(re.findall(r"var\(--(\w+)\)", css)) <= light


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no Chromium")
def test_the_page_opens_at_the_view_that_was_asked_for(tmp_path: Path) -> None:
    with mixed() as (graph, _):
        left = graph.optimized().num_nodes()
        path = to_html(graph, tmp_path / "g.html", optimized=True)
    assert f"{left} nodes" in dom(path)


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no Chromium")
def test_five_thousand_nodes_open_in_a_browser(tmp_path: Path) -> None:
    with many(1000) as graph:
        assert len(graph) > 5000 - 1
        to_html(graph, tmp_path / "g.html")
    begin = time.perf_counter()
    text = dom(tmp_path / "g.html", "#7")
    ready = re.search(r'data-ready="(\d+)"', text)
    assert ready is not None
    print(f"ready after {ready.group(1)} ms, {time.perf_counter() - begin:.2f} s with the browser's own start")
    assert "<h2>%7 = " in text
    assert "5001 nodes" in text


@pytest.mark.parametrize("name", ["<!--<script>", "</script><b>", "<script><!--"])
def test_a_hostile_name_does_not_end_the_data(name: str) -> None:
    x = ao.tensor([1.0])
    with ao.AutogradGraph(name=name) as graph:
        _ = x * 2
        text = graph.to_html()
    data = text.split('id="data">')[1].split("</script>")[0]
    assert "<" not in data
    assert json.loads(data)["title"] == f"graph '{name}'"
