"""Convert a report's paths so that they are relative to another folder."""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from allranks.findings import Finding, Fix, Note, Place
from allranks.report.base import Report

Seen: TypeAlias = Callable[[str], str]


def rebase_report_paths(report: Report, root: str, target_folder: str) -> Report:
    """Return the report with paths relative to ``target_folder`` instead of ``root``; both are absolute folders."""
    if root == target_folder:
        return report
    seen = partial(_path, root, target_folder)
    findings = {finding: _finding(finding, seen) for finding in report.findings}
    rows = tuple(replace(row, evidence=tuple(_note(note, seen) for note in row.evidence)) for row in report.rows)
    sources = {seen(path): source for path, source in report.sources.items()}
    prints = {findings[finding]: text for finding, text in report.prints.items() if finding in findings}
    states = {findings[finding]: state for finding, state in report.confirmations.items() if finding in findings}
    return replace(
        report,
        confirmations=states,
        findings=tuple(findings[finding] for finding in report.findings),
        rows=rows,
        sources=sources,
        prints=prints,
    )


def _path(root: str, here: str, path: str) -> str:
    return posixpath.relpath(posixpath.join(root, path), here)


def _place(place: Place, seen: Seen) -> Place:
    return replace(place, path=seen(place.path))


def _note(note: Note, seen: Seen) -> Note:
    return replace(note, place=_place(note.place, seen)) if note.place else note


def _finding(finding: Finding, seen: Seen) -> Finding:
    fix = finding.fix and Fix(
        finding.fix.title,
        tuple(replace(edit, place=_place(edit.place, seen)) for edit in finding.fix.edits),
        finding.fix.safe,
    )
    notes = tuple(_note(note, seen) for note in finding.notes)
    return replace(finding, place=_place(finding.place, seen), notes=notes, fix=fix)
