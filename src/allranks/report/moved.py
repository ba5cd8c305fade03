"""A report with its paths seen from another folder. Pure."""

from __future__ import annotations

import posixpath
from dataclasses import replace

from allranks.findings import Finding, Fix, Note, Place
from allranks.report.base import Report


def moved(report: Report, root: str) -> Report:
    """Return the report for a reader in another folder; ``root`` is how that one names the root."""
    if root == ".":
        return report
    findings = {finding: _finding(finding, root) for finding in report.findings}
    rows = tuple(replace(row, evidence=tuple(_note(note, root) for note in row.evidence)) for row in report.rows)
    sources = {_path(path, root): source for path, source in report.sources.items()}
    prints = {findings[finding]: text for finding, text in report.prints.items() if finding in findings}
    return replace(report, findings=tuple(findings.values()), rows=rows, sources=sources, prints=prints)


def _path(path: str, root: str) -> str:
    return posixpath.normpath(posixpath.join(root, path))


def _place(place: Place, root: str) -> Place:
    return replace(place, path=_path(place.path, root))


def _note(note: Note, root: str) -> Note:
    return replace(note, place=_place(note.place, root)) if note.place else note


def _finding(finding: Finding, root: str) -> Finding:
    fix = finding.fix and Fix(
        finding.fix.title,
        tuple(replace(edit, place=_place(edit.place, root)) for edit in finding.fix.edits),
        finding.fix.safe,
    )
    notes = tuple(_note(note, root) for note in finding.notes)
    return replace(finding, place=_place(finding.place, root), notes=notes, fix=fix)
