"""The built documentation: no warnings, and every link inside it leads somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parents[2]
for needed in ("sphinx", "myst_nb", "furo"):
    pytest.importorskip(needed, reason="pip install '.[docs]' brings what builds the documentation")


class Page(HTMLParser):
    """The links and anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.links += [v for k in ("href", "src") if (v := found.get(k))]
        self.anchors |= {v for k in ("id", "name") if (v := found.get(k))}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("html")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", str(ROOT / "docs"), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return out


@pytest.mark.slow
def test_links_inside_lead_somewhere(built: Path) -> None:
    pages = {p: Page(p.read_text(encoding="utf-8")) for p in built.rglob("*.html")}
    assert len(pages) > 20
    broken = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or link.startswith("data:"):
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchor = unquote(parts.fragment)
            if not target.exists() or (anchor and target in pages and anchor not in pages[target].anchors):
                broken.append(f"{path.relative_to(built)}: {link}")
    assert not broken


@pytest.mark.slow
def test_links_to_the_outside_are_whole(built: Path) -> None:
    """They cannot be followed in a test; their form can be checked."""
    links = {link for p in built.rglob("*.html") if "_modules" not in p.parts
             for link in Page(p.read_text(encoding="utf-8")).links if link.startswith("http")}
    assert links
    assert all(re.fullmatch(r"https://[\w.-]+\.[a-z]+(/[^\s<>]*)?", link) for link in links), links


@pytest.mark.slow
def test_notebooks_show_their_outputs(built: Path) -> None:
    text = (built / "notebooks" / "gaussian_process.html").read_text(encoding="utf-8")
    assert "objective" in text
    assert "<svg" in text or "_images" in text
    assert "one value, written" in (built / "notebooks" / "cse_step_by_step.html").read_text(encoding="utf-8") or \
        list((built / "_images").glob("*.svg"))
