"""What was judged, as JSON text for the cache, and back. Not pickle: a cache may come with a stranger's code. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from typing import Any

from allranks.findings import Edit, Finding, Fix, Note, Place, Row
from allranks.report.base import RuleNote

_COUNTS = ("files", "lines", "withheld", "unsure", "allowed", "suppressed")


@dataclass(frozen=True, slots=True)
class Judged:
    """What is to be shown. ``rules`` says what the rules that found something are about.

    ``withheld``: how many more findings there are, of low confidence; ``unsure``: of rules that are less precise than
    was asked for; ``allowed``: that the settings ignore; ``suppressed``: that comments do. ``retired``: codes of rules
    that are no more, which comments name.
    """

    findings: tuple[Finding, ...]
    rows: tuple[Row, ...]
    files: int
    lines: int
    rules: tuple[RuleNote, ...]
    withheld: int = 0
    unsure: int = 0
    allowed: int = 0
    suppressed: int = 0
    retired: tuple[str, ...] = ()


def written(judged: Judged) -> bytes:
    """Return ``judged`` as text."""
    return json.dumps(
        {
            "findings": plain(judged.findings),
            "rows": [[row.topic, row.verdict, [_from_note(note) for note in row.evidence]] for row in judged.rows],
            "counts": {name: getattr(judged, name) for name in _COUNTS},
            "rules": [list(astuple(rule)) for rule in judged.rules],
            "retired": judged.retired,
        }
    ).encode()


def read(raw: bytes) -> Judged | None:
    """Return what ``written`` wrote; None for anything else."""
    try:
        found = json.loads(raw)
        return Judged(
            findings=tuple(findings_of(found["findings"])),
            rows=tuple(Row(topic, verdict, tuple(map(_note, told))) for topic, verdict, told in found["rows"]),
            rules=tuple(RuleNote(*rule) for rule in found["rules"]),
            retired=tuple(map(str, found["retired"])),
            **{name: int(found["counts"][name]) for name in _COUNTS},
        )
    except (ValueError, TypeError, KeyError, IndexError, RecursionError):
        return None


def plain(findings: Iterable[Finding]) -> list[list[Any]]:
    """Return findings as lists of texts and numbers."""
    return [_from_finding(finding) for finding in findings]


def findings_of(values: Iterable[list[Any]]) -> list[Finding]:
    """Return the findings that `plain` made lists of."""
    return [_finding(one) for one in values]


def _from_place(place: Place | None) -> list[Any] | None:
    return [place.path, place.line, place.column, place.end_line, place.end_column] if place else None


def _from_note(note: Note) -> list[Any]:
    return [note.text, _from_place(note.place)]


def _from_finding(finding: Finding) -> list[Any]:
    fix = finding.fix
    edits = fix and [[_from_place(edit.place), edit.text] for edit in fix.edits]
    return [
        finding.code,
        finding.name,
        finding.severity,
        finding.message,
        _from_place(finding.place),
        finding.symbol,
        finding.cluster,
        finding.advice,
        [_from_note(note) for note in finding.notes],
        fix and [fix.title, edits, fix.safe],
        finding.confidence,
    ]


def _place(values: list[Any]) -> Place:
    path, line, column, end_line, end_column = values
    return Place(str(path), int(line), int(column), int(end_line), int(end_column))


def _note(values: list[Any]) -> Note:
    text, place = values
    return Note(text, place and _place(place))


def _finding(values: list[Any]) -> Finding:
    *texts, place, symbol, cluster, advice, notes, fix, confidence = values
    code, name, severity, message = texts
    mended = fix and Fix(fix[0], tuple(Edit(_place(where), text) for where, text in fix[1]), bool(fix[2]))
    return Finding(
        code,
        name,
        severity,
        message,
        _place(place),
        symbol,
        cluster=cluster,
        advice=advice,
        notes=tuple(map(_note, notes)),
        fix=mended,
        confidence=confidence,
    )
