"""The readiness table: what was looked at, the verdict, the evidence. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from allranks.findings import Note, Row
from allranks.report.base import Report, visible
from allranks.report.columns import table
from allranks.report.ink import Ink

EVIDENCE, MOST = 84, 3
STYLES = {"good": "good", "warning": "warning", "bad": "bad", "not seen": "dim", "not determined": "dim"}


def evidence(report: Report, note: Note) -> str:
    """Return ``train.py:41: 4 checkpoint writes``, the place without its column."""
    where = report.where(note.place).rpartition(":")[0] + ": " if note.place else ""
    return where + visible(" ".join(note.text.split()))


def readiness(report: Report, paint: Ink) -> str:
    """Return the table as plain text, verdicts in colour."""
    cells = [cell for row in report.rows for cell in _cells(report, row)]
    head, rule, *lines = table(("readiness", "", "evidence"), cells).splitlines()
    at = len(rule.split("  ", 1)[0]) + 2
    painted = []
    for line, (_, verdict, _text) in zip(lines, cells, strict=True):
        painted.append(line[:at] + paint(verdict, STYLES.get(verdict, "")) + line[at + len(verdict) :])
    return "\n".join([paint(head, "bold"), rule, *painted])


def told_of(report: Report, row: Row, most: int) -> list[str]:
    """Return the evidence of a row, at most so many pieces and how many more there are."""
    texts = [evidence(report, note) for note in row.evidence[:most]]
    return [*texts, f"and {len(row.evidence) - most} more"] if len(row.evidence) > most else texts


def _cells(report: Report, row: Row) -> Iterator[tuple[str, str, str]]:
    texts = told_of(report, row, MOST)
    lines = [line for text in texts for line in textwrap.wrap(text, EVIDENCE, subsequent_indent="  ")] or [""]
    yield row.topic, row.verdict, lines[0]
    yield from (("", "", line) for line in lines[1:])
