"""Render the report as Markdown, for a pull request or a job's summary."""

from __future__ import annotations

import re
from collections.abc import Iterator

from allranks.failure import visible
from allranks.findings import Finding, Note
from allranks.report.base import Report, summary, title
from allranks.report.readiness import evidence_texts

SIGNS = {"ok": "✅", "warning": "⚠️", "error": "❌", "not seen": "-", "not determined": "?"}
MOST_LINES, MOST = 6, 8


def markdown(report: Report) -> str:
    """Return the report as text: the summary, the readiness table, and the findings, each with its source."""
    parts = [f"# {_text(title(report))}", _text(summary(report)).replace("\n", "  \n")]
    if report.rows:
        parts.append("\n".join(_table(report)))
    for finding in report.findings:
        parts.append("\n".join(_finding(report, finding)))
    return "\n\n".join(parts)


def _table(report: Report) -> Iterator[str]:
    yield "| readiness | | evidence |"
    yield "|---|---|---|"
    for row in report.rows:
        told = "<br>".join(_text(text) for text in evidence_texts(row, most=MOST, where=report.line_of))
        yield f"| {row.topic} | {SIGNS[row.verdict]} {row.verdict} | {told} |"


def _finding(report: Report, finding: Finding) -> Iterator[str]:
    yield f"## {finding.code} {_text(finding.message)}"
    yield ""
    yield f"`{_code(report.where(finding.place))}`, {finding.severity}, {finding.name}, in `{_code(finding.symbol)}`"
    if lines := _source(report, finding):
        fence = "`" * max(3, 1 + max(map(len, re.findall("`+", "\n".join(lines))), default=0))
        yield from ("", f"{fence}python", *lines, fence)
    yield ""
    for word, text in (("On the cluster", finding.cluster), ("To do", finding.advice)):
        if text:
            yield f"- **{word}:** {_text(text)}"
    for note in finding.notes:
        yield f"- {_note(report, note)}"
    if finding.replay:
        yield f"- **Replay:** {_text(finding.replay)}"
    if finding.fix:
        yield f"- **Fix** ({'safe' if finding.fix.safe else 'look at it first'}): {_text(finding.fix.title)}"


def _source(report: Report, finding: Finding) -> list[str]:
    source, place = report.sources.get(finding.place.path), finding.place
    if source is None:
        return []
    last = min(place.end_line, place.line + MOST_LINES - 1)
    return [visible(source.line(number)) for number in range(place.line, last + 1)]


def _note(report: Report, note: Note) -> str:
    return f"`{_code(report.where(note.place))}`: {_text(note.text)}" if note.place else _text(note.text)


def _code(text: str) -> str:
    return visible(text).replace("`", "'").replace("|", "\\|")


def _text(text: str) -> str:
    """Escape a text for Markdown. Code in backticks stays code."""
    return "`".join(
        part if at % 2 else re.sub(r"([\\*_\[\]<>|#~])", r"\\\1", part)
        for at, part in enumerate(visible(text).split("`"))
    )
