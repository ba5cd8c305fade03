"""The doctor's table for people and for programs. Pure."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator
from typing import Any

from allranks.doctor.row import ORDER, Row, Table
from allranks.report import table
from allranks.report.base import visible
from allranks.report.ink import Ink
from allranks.report.readiness import STYLES

_NARROWEST = 30


def text(found: Table, paint: Ink, *, width: int) -> str:
    """Return the table as wide as ``width`` at most, what to do below it, and a last line that counts the verdicts."""
    columns = [max(len(row.topic) for row in found.rows), max(len(row.verdict) for row in found.rows)]
    room = max(_NARROWEST, width - sum(columns) - 4)
    cells = [cell for row in found.rows for cell in _cells(row, room)]
    head, rule, *lines = table(("readiness", "", "evidence"), cells).splitlines()
    at = len(rule.split("  ", 1)[0]) + 2
    painted = [
        line[:at] + paint(verdict, STYLES.get(verdict, "")) + line[at + len(verdict) :]
        for line, (_, verdict, _text) in zip(lines, cells, strict=True)
    ]
    advice = [
        textwrap.fill(f"{row.topic}: {row.remedy}", width, subsequent_indent="  ")
        for row in sorted(found.rows, key=lambda row: ORDER.index(row.verdict))
        if row.remedy
    ]
    what = [paint("what to do", "bold"), *advice, ""] if advice else []
    return "\n".join([paint(head, "bold"), rule, *painted, "", *what, summary(found)])


def _cells(row: Row, room: int) -> Iterator[tuple[str, str, str]]:
    lines = [
        line
        for said in row.evidence
        for line in textwrap.wrap(visible(" ".join(said.split())), room, subsequent_indent="  ")
    ]
    yield row.topic, row.verdict, lines[0]
    yield from (("", "", line) for line in lines[1:])


def summary(found: Table) -> str:
    """Return ``2 hosts, 4 ranks: 1 bad, 2 warnings, 20 good; 3 not seen``."""
    counts = Counter(row.verdict for row in found.rows)
    words = [(counts[verdict], verdict) for verdict in ORDER if counts[verdict]]
    verdicts = ", ".join(f"{n} {word}{'s' if word == 'warning' and n > 1 else ''}" for n, word in words)
    hosts = f"{len(found.hosts)} host{'' if len(found.hosts) == 1 else 's'}"
    return f"{hosts}, {found.ranks} rank{'' if found.ranks == 1 else 's'}: {verdicts}"


def document(found: Table) -> dict[str, Any]:
    """Return the table as JSON values."""
    rows = [
        {"topic": row.topic, "verdict": row.verdict, "evidence": list(row.evidence), "remedy": row.remedy}
        for row in found.rows
    ]
    return {
        "tool": "allranks doctor",
        "ready": not found.bad,
        "hosts": list(found.hosts),
        "ranks": found.ranks,
        "rows": rows,
    }
