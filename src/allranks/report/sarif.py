"""Render the report as SARIF 2.1.0, for code scanning."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from allranks.findings import Edit, Finding, Note, Place
from allranks.report.base import Report, RuleNote

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
PRECISIONS = ((0.9, "very-high"), (0.75, "high"), (0.5, "medium"), (0.0, "low"))
LEVELS = {"error": "error", "warning": "warning", "info": "note"}


def sarif(report: Report) -> str:
    """Return the report as SARIF text: one run with rules, results, related places, fixes and fingerprints."""
    return json.dumps(sarif_log(report), indent=1)


def sarif_log(report: Report) -> dict[str, Any]:
    """Return the SARIF log as a dict of JSON values. Columns count code points; paths are relative to the root."""
    index = {rule.code: at for at, rule in enumerate(report.rules)}
    driver: dict[str, Any] = {"name": report.tool, "version": report.version}
    severities = {finding.code: finding.severity for finding in report.findings}
    driver["rules"] = [
        {
            "id": rule.code,
            "name": rule.name,
            "shortDescription": {"text": rule.summary or rule.name},
            "help": {"text": f"allranks explain {rule.code}"},
            "defaultConfiguration": {"level": LEVELS[severities[rule.code]]},
            **_precision_properties(rule),
        }
        for rule in report.rules
    ]
    results = [_result(report, finding, index) for finding in report.findings]
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _precision_properties(rule: RuleNote) -> dict[str, Any]:
    """Return the rule's precision in SARIF's words, as a dict; an empty dict if it is not known."""
    if rule.precision is None:
        return {}
    return {"properties": {"precision": next(word for least, word in PRECISIONS if rule.precision >= least)}}


def _result(report: Report, finding: Finding, index: dict[str, int]) -> dict[str, Any]:
    plain = (note.text for note in finding.notes if not note.place)
    text = "\n".join(filter(None, (finding.message, finding.cluster, finding.advice, *plain)))
    location: dict[str, Any] = _location(report, finding.place)
    location["logicalLocations"] = [{"fullyQualifiedName": finding.symbol}]
    found: dict[str, Any] = {
        "ruleId": finding.code,
        "level": LEVELS[finding.severity],
        "message": {"text": text},
        "locations": [location],
    }
    if finding.code in index:
        found["ruleIndex"] = index[finding.code]
    if related := list(_related(report, finding.notes)):
        found["relatedLocations"] = related
    if fingerprint := report.prints.get(finding):
        found["partialFingerprints"] = {"allranks/v1": fingerprint}
    if finding.fix:
        changes = [_change(report, edit) for edit in finding.fix.edits]
        found["fixes"] = [{"description": {"text": finding.fix.title}, "artifactChanges": changes}]
    return found


def _related(report: Report, notes: tuple[Note, ...]) -> Iterator[dict[str, Any]]:
    placed = ((note.text, note.place) for note in notes if note.place)
    for number, (text, place) in enumerate(placed):
        yield {"id": number, **_location(report, place), "message": {"text": text}}


def _location(report: Report, place: Place) -> dict[str, Any]:
    return {
        "physicalLocation": {
            "artifactLocation": {"uri": quote(place.path, errors="surrogateescape")},
            "region": _sarif_region(report, place),
        }
    }


def _sarif_region(report: Report, place: Place) -> dict[str, int]:
    """Return the SARIF region of a place. SARIF cannot name a cell: in a notebook it is line 1, as in ruff."""
    if _in_notebook(report, place):
        return {"startLine": 1}
    return {
        "startLine": place.line,
        "startColumn": place.column,
        "endLine": place.end_line,
        "endColumn": place.end_column,
    }


def _change(report: Report, edit: Edit) -> dict[str, Any]:
    replacement = {"deletedRegion": _sarif_region(report, edit.place), "insertedContent": {"text": edit.text}}
    return {
        "artifactLocation": {"uri": quote(edit.place.path, errors="surrogateescape")},
        "replacements": [replacement],
    }


def _in_notebook(report: Report, place: Place) -> bool:
    source = report.sources.get(place.path)
    return bool(source and source.cells)
