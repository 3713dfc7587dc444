"""Findings as text, rich text and HTML."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from html import escape
from typing import Any

from autograd_opt.explaining.findings import Finding, Findings, Line
from autograd_opt.inspection.report import size_text

SHOWN, LINES, MISSES = 20, 6, 10


def seconds_text(s: float) -> str:
    """A time, readable.

    >>> seconds_text(0.00042), seconds_text(1.5)
    ('420 µs', '1.50 s')
    """
    return f"{s:.2f} s" if s >= 1 else f"{s * 1e3:.1f} ms" if s >= 1e-3 else f"{s * 1e6:.0f} µs"


def summary(found: Findings) -> list[str]:
    """The sentences above the list."""
    if not found.operations:
        return ["no torch operation was seen"]
    share = found.repeated_seconds / found.seconds if found.seconds else 0.0
    lines = [
        f"{found.operations:,} operations watched, {seconds_text(found.seconds)} of processor time; {found.repeated:,} "
        f"listed below repeat another on the same values: {seconds_text(found.repeated_seconds)}, {share:.1%}",
    ]
    own, total = seconds_text(found.own_seconds), seconds_text(found.total_seconds)
    cost = f"watching cost about {own} in {total}, {found.cost:.2f}×"
    if found.first_seconds > 0:
        cost += f"; first calls of operators, not counted: {seconds_text(found.first_seconds)}"
    if found.partly:
        times = f" in {found.windows} windows" if found.windows > 1 else ""
        part = f"{found.watched_nodes:,} of the {found.nodes:,} nodes that autograd recorded were" if found.nodes \
            else f"{seconds_text(found.watched_seconds)} of the {total} was"
        cost += f"; {part} watched{times}; the rest ran at full speed"
    lines.append(cost)
    if found.written_after:
        lines.append(
            f"left out: {found.written_after:,} repeats that write in place or whose result is written afterwards")
    return lines


def head(k: int, finding: Finding) -> str:
    """The first line of a finding."""
    plural = "s" if finding.count != 1 else ""
    return f"{k}. {seconds_text(finding.seconds)}, {finding.count:,} operation{plural}, {size_text(finding.bytes)}"


def line_text(line: Line) -> str:
    """One operation of a finding."""
    module = f"  in {line.module}" if line.module else ""
    work = f"{line.count:,} × {line.op} {line.type}, {seconds_text(line.seconds)}"
    return f"{work}, {line.source}{module}  {line.text}".rstrip()


@dataclass(frozen=True)
class Piece:
    """One paragraph of the printed report."""

    text: str
    style: str = ""
    indent: int = 0
    whole: bool = True
    """Wrapped where it is too long, not cut."""


def pieces(found: Findings) -> list[Piece]:
    """What is printed, from top to bottom."""
    parts = [Piece(found.title, "bold")] if found.title else []
    parts += [Piece(line) for line in summary(found)]
    for k, finding in enumerate(found.findings[:SHOWN], 1):
        parts += [Piece(""), Piece(head(k, finding), "bold"), Piece(finding.advice, "green", 3)]
        parts += [Piece(line_text(line), "dim", 3, whole=False) for line in finding.lines[:LINES]]
        if len(finding.lines) > LINES:
            rest = finding.lines[LINES:]
            count, seconds = sum(line.count for line in rest), sum(line.seconds for line in rest)
            parts.append(Piece(f"… and {count:,} more, {seconds_text(seconds)}", "dim", 3))
    if len(found.findings) > SHOWN:
        parts += [Piece(""), Piece(f"… and {len(found.findings) - SHOWN} smaller findings")]
    if found.near_misses:
        parts += [Piece(""), Piece("near misses", "bold")]
        parts += [Piece(f"{m.count:,} × {m.op} at {m.second}, {seconds_text(m.seconds)}: {m.reason}", "", 3)
                  for m in found.near_misses[:MISSES]]
    return parts


def rich_text(found: Findings) -> Any:
    """For a terminal."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    return Group(*[
        Padding(Text(p.text, style=p.style, overflow="fold" if p.whole else "ellipsis", no_wrap=not p.whole),
                (0, 0, 0, p.indent))
        for p in pieces(found)])


def plain_text(found: Findings, width: int = 120) -> str:
    """Without colour, and without importing what makes it."""
    lines: list[str] = []
    for p in pieces(found):
        margin, room = " " * p.indent, width - p.indent
        if p.whole:
            lines += textwrap.wrap(p.text, width, initial_indent=margin, subsequent_indent=margin,
                                   break_on_hyphens=False) or [""]
        else:
            lines.append(margin + (p.text if len(p.text) <= room else p.text[:room - 1] + "…"))
    return "\n".join(lines)


STYLE = """
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:70rem;padding:0 1rem;color:#1b1f24;background:#fff}
details{border:1px solid #d0d7de;border-radius:6px;margin:.6rem 0;padding:.5rem .8rem}
summary{cursor:pointer;font-weight:600}p.advice{color:#116329;margin:.4rem 0}
table{border-collapse:collapse;font-size:13px;width:100%}td,th{padding:.2rem .6rem;text-align:left;vertical-align:top}
td.n,th.n{text-align:right;white-space:nowrap}tr:nth-child(even){background:#f6f8fa}code{font-size:12px}
.bar{display:inline-block;height:.6rem;background:#fdbf6f;margin-right:.5rem;border-radius:2px}
"""


def html(found: Findings) -> str:
    """A fragment for notebooks and the page."""
    most = max((f.seconds for f in found.findings), default=0.0) or 1.0
    parts = [f"<p>{'<br>'.join(map(escape, summary(found)))}</p>"]
    for k, f in enumerate(found.findings, 1):
        bar = f'<span class="bar" style="width:{100 * f.seconds / most:.0f}px"></span>'
        rows = "".join(
            f'<tr><td class="n">{line.count:,}</td><td>{escape(line.op)} {escape(line.type)}</td>'
            f'<td class="n">{seconds_text(line.seconds)}</td><td>{escape(line.source)}</td>'
            f"<td>{escape(line.module)}</td><td><code>{escape(line.text)}</code></td></tr>" for line in f.lines)
        parts.append(
            f"<details{' open' if k <= 3 else ''}><summary>{bar}{escape(head(k, f))}</summary>"
            f'<p class="advice">{escape(f.advice)}</p><table><tr><th class="n">times</th><th>operation</th>'
            '<th class="n">time</th><th>line</th><th>module</th><th>source</th></tr>'
            f"{rows}</table><p>reached by {escape(' → '.join(f.chain))}</p></details>")
    if found.near_misses:
        rows = "".join(
            f'<tr><td class="n">{m.count:,}</td><td>{escape(m.op)}</td><td class="n">{seconds_text(m.seconds)}</td>'
            f"<td>{escape(m.first)}, {escape(m.second)}</td><td>{escape(m.reason)}</td></tr>"
            for m in found.near_misses)
        parts.append('<h2>Near misses</h2><table><tr><th class="n">times</th><th>operation</th><th class="n">time</th>'
                     f"<th>lines</th><th>reason</th></tr>{rows}</table>")
    return "\n".join(parts)


def page(found: Findings) -> str:
    """A whole page, without anything from the network."""
    title = escape(found.title or "work done twice")
    return (f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>{STYLE}</style>'
            f"</head><body><h1>{title}</h1>{html(found)}</body></html>")
