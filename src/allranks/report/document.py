"""Render the report as one JSON document. Its keys do not change between versions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

from allranks.findings import Finding, Fix, Place
from allranks.report.base import Report
from allranks.report.readiness import note_document, row_document
from allranks.report.timeline import RehearsalFacts


def as_json(report: Report) -> str:
    """Return the report as JSON text: ``{"findings": [...], "readiness": [...], "summary": {...}}``."""
    return json.dumps(report_document(report), indent=1)


def report_document(report: Report) -> dict[str, Any]:
    """Return the report as a dict of JSON values."""
    place = partial(_place_document, report)
    return {
        "tool": report.tool,
        "version": report.version,
        "findings": [_finding_document(report, finding) for finding in report.findings],
        "readiness": [row_document(row, place) for row in report.rows],
        "summary": {
            **report.counts(),
            "fixable": sum(1 for finding in report.findings if finding.fix and finding.fix.safe),
            "known": report.hidden,
            "withheld": report.withheld,
            "unsure": report.unsure,
            "allowed": report.allowed,
            "suppressed": report.suppressed,
            "files": report.files,
            "lines": report.lines,
        },
        **({"rehearsal": _rehearsal(report.rehearsal)} if report.rehearsal else {}),
    }


def _rehearsal(facts: RehearsalFacts) -> dict[str, Any]:
    runs = [
        {"run": one.title, "made": one.was_made, "end": one.end, "seconds": round(one.seconds, 3), "steps": one.steps}
        for one in facts.runs
    ]
    return {
        "command": facts.command,
        "root": facts.root,
        "ranks": facts.ranks,
        "failure": facts.failure,
        "runs": runs,
        "lines": {
            "complete": facts.is_complete,
            "files": {path: _lines_by_rank_count(by) for path, by in facts.lines.items()},
        },
    }


def _lines_by_rank_count(ranks_by_line: Mapping[int, int]) -> dict[str, list[int]]:
    """Group lines by the number of ranks that ran them: ``{"2": [1, 2, 7], "1": [9]}``."""
    found: dict[str, list[int]] = {}
    for line, ranks in sorted(ranks_by_line.items()):
        found.setdefault(str(ranks), []).append(line)
    return found


def _finding_document(report: Report, finding: Finding) -> dict[str, Any]:
    return {
        "code": finding.code,
        "name": finding.name,
        "severity": finding.severity,
        "confidence": finding.confidence,
        "precision": report.precision(finding),
        "message": finding.message,
        **_place_document(report, finding.place),
        "symbol": finding.symbol,
        "cluster": finding.cluster,
        "advice": finding.advice,
        "notes": [note_document(note, partial(_place_document, report)) for note in finding.notes],
        "fix": _fix_document(report, finding.fix) if finding.fix else None,
        "replay": finding.replay,
        "fingerprint": report.prints.get(finding),
        **({"rehearsal": report.confirmations[finding]} if finding in report.confirmations else {}),
    }


def _place_document(report: Report, place: Place) -> dict[str, Any]:
    cell, line = report.spot(place)
    where: dict[str, Any] = {"path": place.path, "line": line, "column": place.column}
    where |= {"end_line": place.end_line - place.line + line, "end_column": place.end_column}
    return where if cell is None else {**where, "cell": cell}


def _fix_document(report: Report, fix: Fix) -> dict[str, Any]:
    edits = [{**_place_document(report, edit.place), "text": edit.text} for edit in fix.edits]
    return {"title": fix.title, "safe": fix.safe, "edits": edits}
