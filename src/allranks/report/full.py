"""Render the report for people at a terminal: each finding with its source, then the readiness table."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from allranks.failure import visible
from allranks.findings import Finding, Note, Place
from allranks.report.base import Report, Source, summary
from allranks.report.excerpt import Mark, marked_excerpt
from allranks.report.ink import Ink, make_painter
from allranks.report.readiness import WIDTH, readiness_table

_MOST = 3


def full(report: Report, *, colour: bool = False) -> str:
    """Return the report as text: the findings as ruff shows them, the readiness table, and the count."""
    paint = make_painter(colour)
    parts = [*(finding_in_full(report, finding, paint) for finding in report.findings)]
    if report.rows:
        parts.append(readiness_table(report.rows, paint, most=_MOST, where=report.line_of))
    return "\n\n".join([*parts, summary(report)])


def concise(report: Report, *, colour: bool = False) -> str:
    """Return the report as text with one line per finding, ``path:line:col: AR101 message``, and the count."""
    paint = make_painter(colour)
    lines = [
        f"{paint(report.where(finding.place), 'bold')}: {paint(finding.code, finding.severity)}"
        f"{_star(finding)} {_line(finding.message)}"
        for finding in report.findings
    ]
    return "\n".join([*lines, summary(report)])


def finding_in_full(report: Report, finding: Finding, paint: Ink) -> str:
    """Return a finding as text: the heading, the marked source, what happens on a cluster, and what to do."""
    head = paint(f"{finding.severity}[{finding.code}]", finding.severity)
    lines = [f"{head}{_star(finding)} {paint(_line(finding.message), 'bold')}"]
    gutter = _gutter(report, finding)
    told = [note for note in finding.notes if note.place is None or not report.sources.get(note.place.path)]
    for arrow, place, source, marks in _snippets(report, finding):
        lines.append(f"{' ' * gutter}{paint(arrow, 'blue')} {report.where(place)}")
        lines += marked_excerpt(source, marks, gutter, paint) if source.lines else []
    for word, text in _words(report, finding, told):
        lines += _wrapped(f"{' ' * gutter} {paint('=', 'blue')} {paint(word, 'bold')}: ", text, gutter + len(word) + 5)
    return "\n".join(lines)


def _star(finding: Finding) -> str:
    return " [*]" if finding.fix and finding.fix.safe else ""


def _line(text: str) -> str:
    return visible(" ".join(text.split()))


def _gutter(report: Report, finding: Finding) -> int:
    places = [finding.place, *(note.place for note in finding.notes if note.place)]
    return max(len(str(report.spot(place)[1] + 4)) for place in places)


def _snippets(report: Report, finding: Finding) -> Iterator[tuple[str, Place, Source, list[Mark]]]:
    """Yield one snippet per file, the fault's file first: arrow, place of the first mark, source, marks."""
    files: dict[str, list[Mark]] = {
        finding.place.path: [Mark(finding.place, style=finding.severity, primary=True)],
    }
    for note in finding.notes:
        if note.place and report.sources.get(note.place.path):
            files.setdefault(note.place.path, []).append(Mark(note.place, _line(note.text)))
    for path, marks in files.items():
        arrow = "-->" if path == finding.place.path else ":::"
        yield arrow, marks[0].place, report.sources.get(path, Source(())), marks


def _words(report: Report, finding: Finding, told: list[Note]) -> Iterator[tuple[str, str]]:
    for note in told:
        yield "note", f"{report.where(note.place)}: {note.text}" if note.place else note.text
    if finding.cluster:
        yield "on the cluster", finding.cluster
    if finding.advice:
        yield "to do", finding.advice
    if finding.fix:
        yield ("fix with --fix" if finding.fix.safe else "fix with --unsafe-fixes"), finding.fix.title
    if finding.replay:
        yield "replay", finding.replay
    yield "rule", f"{finding.name}; more: allranks explain {finding.code}"


def _wrapped(head: str, text: str, indent: int) -> list[str]:
    lines = textwrap.wrap(_line(text), WIDTH - indent) or [""]
    return [head + lines[0], *(" " * indent + line for line in lines[1:])]
