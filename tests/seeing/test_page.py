"""The HTML page: complete in one file, right in a real browser."""

import json
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

import autograd_opt as ao
from autograd_opt.formulas import formulas_of
from autograd_opt.ops.table import OPS
from autograd_opt.page import notebook_html, to_html
from tests.seeing.programs import many, mixed

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
    assert nodes[5]["rule"] == {"x": "g * H(y)", "y": "g * H(x)"}
    assert nodes[2]["merged"] == [2, 3, 11] or len(nodes[2]["merged"]) == 3  # type: ignore[arg-type]
    assert set(data["optimized"]) < set(data["written"])  # type: ignore[call-overload]


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


def test_notebook_html() -> None:
    with mixed() as (graph, _):
        assert "<svg" in notebook_html(graph)
    assert "closed" in notebook_html(graph)


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no Chromium")
def test_five_thousand_nodes_open_in_a_browser(tmp_path: Path) -> None:
    with many(1000) as graph:
        assert len(graph) > 5000 - 1
        to_html(graph, tmp_path / "g.html")
    begin = time.perf_counter()
    run = subprocess.run(
        [str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", f"file://{tmp_path}/g.html#7"],
        capture_output=True, text=True, timeout=120, check=False)
    print(f"{time.perf_counter() - begin:.2f} s with the browser's own start")
    ready = re.search(r'data-ready="(\d+)"', run.stdout)
    assert ready is not None, run.stderr[-500:]
    print(f"ready after {ready.group(1)} ms")
    assert "<h2>%7 = " in run.stdout
    assert f"{len(json.loads(json.dumps(list(range(5001)))))} nodes" in run.stdout
