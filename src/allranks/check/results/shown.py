"""From what was judged to the report that is shown: the baseline, the sources, the fingerprints. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from allranks.check.kept import Judged
from allranks.check.results.baseline import Baseline, fingerprints, unknown
from allranks.check.sources.notebook import source_of, text_of
from allranks.findings import Finding, Place
from allranks.report.base import Report


def prints_of(judged: Judged, files: Mapping[str, bytes]) -> dict[Finding, str]:
    """Return the fingerprint of each finding."""
    paths = {finding.place.path for finding in judged.findings}
    return fingerprints(judged.findings, {path: text_of(path, files[path]) for path in paths if path in files})


def report_of(
    judged: Judged,
    files: Mapping[str, bytes],
    *,
    version: str = "",
    project: str = "",
    prints: Mapping[Finding, str] | None = None,
    baseline: Baseline | None = None,
) -> Report:
    """Return the report. ``prints`` are needed for a baseline."""
    findings = unknown(judged.findings, prints or {}, baseline) if baseline else judged.findings
    places = set(_places(findings))
    if any(path.endswith(".ipynb") for path in files):
        places |= {note.place for row in judged.rows for note in row.evidence if note.place}
    paths = {place.path for place in places if place.path in files}
    codes = {finding.code for finding in findings}
    return Report(
        findings=findings,
        rows=judged.rows,
        files=judged.files,
        lines=judged.lines,
        version=version,
        project=project,
        sources={path: source_of(path, files[path]) for path in sorted(paths)},
        prints=prints or {},
        rules=tuple(rule for rule in judged.rules if rule.code in codes),
        hidden=len(judged.findings) - len(findings),
        withheld=judged.withheld,
        unsure=judged.unsure,
        allowed=judged.allowed,
        suppressed=judged.suppressed,
    )


def _places(findings: tuple[Finding, ...]) -> Iterator[Place]:
    for finding in findings:
        yield finding.place
        yield from (note.place for note in finding.notes if note.place)
