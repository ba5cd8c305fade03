"""Render the readiness report of check, doctor and preflight: topics, verdicts, evidence, what to do."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from allranks.errors import name_ranks
from allranks.failure import one_line, visible
from allranks.findings import VERDICTS, Note, Place, Row
from allranks.report.base import count
from allranks.report.columns import format_table
from allranks.report.ink import Ink, make_painter

WIDTH, _NARROWEST = 118, 30


@dataclass(frozen=True, slots=True)
class Readiness:
    """The result of a readiness check of a job: its rows and hosts.

    It is the same on every rank. ``hosts`` are in the order of their first ranks.

    ``str()`` gives the table, what to do below it, and a last line that counts the verdicts.
    """

    rows: tuple[Row, ...]
    hosts: tuple[str, ...] = ()
    ranks: int = 1

    @property
    def errors(self) -> tuple[Row, ...]:
        """The rows of the report with an error: it must be corrected before a job can run."""
        return tuple(row for row in self.rows if row.verdict == "error")

    @property
    def problems(self) -> str:
        """The errors as text, one line each: what is wrong, and what to do about it."""
        lines = (f"{row.topic}: {'; '.join(evidence_texts(row))}. {row.remedy}" for row in self.errors)
        return "\n".join(map(one_line, lines))

    def __str__(self) -> str:
        return self.text(make_painter(False))

    def text(self, paint: Ink, *, width: int = WIDTH) -> str:
        """Return the same text as ``str()``, at most ``width`` columns wide, with colours."""
        advice = [
            textwrap.fill(f"{row.topic}: {row.remedy}", width, subsequent_indent="  ")
            for row in sorted(self.rows, key=lambda row: VERDICTS.index(row.verdict))
            if row.remedy
        ]
        what = [paint("what to do", "bold"), *advice, ""] if advice else []
        return "\n".join([readiness_table(self.rows, paint, width=width), "", *what, self.summary()])

    def summary(self) -> str:
        """Return the counts as text, e.g. ``2 hosts, 4 ranks: 1 error, 2 warnings, 20 ok, 3 not seen``."""
        counts = Counter(row.verdict for row in self.rows)
        words = [
            count(counts[verdict], verdict) if verdict in ("error", "warning") else f"{counts[verdict]} {verdict}"
            for verdict in VERDICTS
            if counts[verdict]
        ]
        return f"{count(len(self.hosts), 'host')}, {count(self.ranks, 'rank')}: {', '.join(words)}"

    def document(self, tool: str) -> dict[str, Any]:
        """Return the readiness as a dict of JSON values. ``tool`` is the command that found it."""
        rows = [row_document(row) for row in self.rows]
        return {
            "tool": tool,
            "ready": not self.errors,
            "hosts": list(self.hosts),
            "ranks": self.ranks,
            "readiness": rows,
        }


def readiness_table(
    rows: Iterable[Row],
    paint: Ink,
    *,
    width: int = WIDTH,
    most: int | None = None,
    where: Callable[[Place], str] = str,
) -> str:
    """Return the table as plain text, at most ``width`` columns wide, with coloured verdicts.

    For each row at most ``most`` pieces of evidence are shown. ``where(place)`` formats a place.
    """
    rows = list(rows)
    columns = [max(len(row.topic) for row in rows), max(len(row.verdict) for row in rows)]
    room = max(_NARROWEST, width - sum(columns) - 4)
    cells = [cell for row in rows for cell in _cells(row, evidence_texts(row, most=most, where=where), room)]
    head, rule, *lines = format_table(("readiness", "", "evidence"), cells).splitlines()
    at = len(rule.split("  ", 1)[0]) + 2
    painted = [
        line[:at] + paint(verdict, verdict) + line[at + len(verdict) :]
        for line, (_, verdict, _text) in zip(lines, cells, strict=True)
    ]
    return "\n".join([paint(head, "bold"), rule, *painted])


def evidence_texts(row: Row, *, most: int | None = None, where: Callable[[Place], str] = str) -> list[str]:
    """Return the evidence of a row as texts, each with its place (``train.py:41: 4 checkpoint writes``).

    The first text names the ranks that report it. At most ``most`` texts are returned, and then how many more there
    are.
    """
    texts = [
        (f"{where(note.place)}: " if note.place else "") + visible(" ".join(note.text.split())) for note in row.evidence
    ]
    if row.ranks and texts:
        texts[0] = f"{name_ranks(row.ranks)}: {texts[0]}"
    return [*texts[:most], f"and {len(texts) - most} more"] if most is not None and len(texts) > most else texts


def row_document(row: Row, place: Callable[[Place], Any] = str) -> dict[str, Any]:
    """Return a row of the report as a dict of JSON values. ``place`` converts a Place to a JSON value."""
    return {
        "topic": row.topic,
        "verdict": row.verdict,
        "evidence": [note_document(note, place) for note in row.evidence],
        "remedy": row.remedy,
        "ranks": list(row.ranks),
    }


def note_document(note: Note, place: Callable[[Place], Any]) -> dict[str, Any]:
    moment = {"rank": note.moment.rank, "step": note.moment.step} if note.moment else {}
    return {"text": note.text, "place": place(note.place) if note.place else None, **moment}


def _cells(row: Row, texts: list[str], room: int) -> Iterator[tuple[str, str, str]]:
    lines = [line for text in texts for line in textwrap.wrap(text, room, subsequent_indent="  ")] or [""]
    yield row.topic, row.verdict, lines[0]
    yield from (("", "", line) for line in lines[1:])
