"""Make the report of a rehearsal: leave out the findings that the project accepts, and add the source text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

from allranks.check.results.baseline import Baseline, fingerprints, unknown
from allranks.check.results.suppress import suppressed, suppressions
from allranks.check.sources.text import source_of, text_of
from allranks.findings import Finding, Place
from allranks.rehearse.config import Allowed
from allranks.rehearse.rehearsal import Rehearsal
from allranks.report.base import Report, Source, count


def report_of(done: Rehearsal, ranks: int, allow: Sequence[Allowed], baseline: Baseline | None) -> Report:
    """Return the report of a rehearsal, without the findings that the project accepts."""
    places = {one.place.path for one in done.findings}
    places |= {note.place.path for one in done.findings for note in one.notes if note.place}
    texts = {path: Path(path).read_bytes() for path in sorted(places) if Path(path).is_file()}
    sources = {path: source_of(path, raw) for path, raw in texts.items()}
    commented = [one for one in done.findings if not is_suppressed(one, texts)]
    done.findings = [one for one in commented if not any(entry.covers(one) for entry in allow)]
    findings = tuple(sorted(done.findings, key=lambda one: (one.place.path, one.place.line, one.code)))
    findings = tuple(_with_columns(one, sources) for one in findings)
    prints = fingerprints(findings, {path: text_of(path, raw) for path, raw in texts.items()})
    shown = unknown(findings, prints, baseline) if baseline else findings
    steps = max((event.step for _, run, _ in done.runs for event in run.trace.events), default=0)
    return Report(
        shown,
        done.rows(),
        len(sources),
        sum(len(source.lines) for source in sources.values()),
        version("allranks"),
        sources=sources,
        prints=prints,
        hidden=len(findings) - len(shown),
        allowed=len(commented) - len(findings),
        tool="allranks rehearse",
        subject=f"{count(len(done.runs), 'run')} of {count(ranks, 'rank')}, {count(steps, 'step')} at most",
    )


def _with_columns(finding: Finding, sources: Mapping[str, Source]) -> Finding:
    """Return a finding whose places span the text of their lines. A trace has only the numbers of lines."""
    notes = tuple(replace(note, place=note.place and _spanning(note.place, sources)) for note in finding.notes)
    return replace(finding, place=_spanning(finding.place, sources), notes=notes)


def _spanning(place: Place, sources: Mapping[str, Source]) -> Place:
    line = sources[place.path].line(place.line).rstrip() if place.path in sources else ""
    if not line:
        return place
    return replace(place, column=len(line) - len(line.lstrip()) + 1, end_column=len(line) + 1)


def is_suppressed(finding: Finding, texts: Mapping[str, bytes]) -> bool:
    """Return whether a comment at the line of a finding suppresses it (``# allranks: ignore[AR405] reason``)."""
    path = finding.place.path
    if path not in texts:
        return False
    comments, _ = suppressions(path, text_of(path, texts[path]), {finding.code})
    return not suppressed([finding], comments)[0]
