"""Make the report of a rehearsal: leave out the findings that the project accepts, and add the source text."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

from allranks.check.results.baseline import Baseline, fingerprints, unknown
from allranks.check.sources.notebook import source_of, text_of
from allranks.cli.printed import write_file
from allranks.findings import Finding, Place, Row, not_seen
from allranks.rehearse.config import Allowed
from allranks.rehearse.judge.base import path_name, place_of
from allranks.rehearse.judge.joining import NOT_JOINED
from allranks.rehearse.perfetto import trace_events
from allranks.rehearse.plan import Plan, command_line
from allranks.rehearse.rehearsal import Rehearsal, ending
from allranks.rehearse.run import Run
from allranks.rehearse.run_scenario import relative
from allranks.rehearse.suppressed import without_suppressed
from allranks.rehearse.timeline import lines_seen, timeline_of
from allranks.report.base import Report, Source, count
from allranks.report.timeline import RehearsalFacts, RunSummary, Timeline

# The code of the finding that causes others: it is shown first.
CAUSE = NOT_JOINED.code


def report_of(
    done: Rehearsal,
    plan: Plan,
    allow: Sequence[Allowed],
    baseline: Baseline | None,
    *,
    with_timelines: bool = False,
) -> Report:
    """Return the report of a rehearsal, without the findings that the project accepts."""
    places = {one.place.path for one in done.findings}
    places |= {note.place.path for one in done.findings for note in one.notes if note.place}
    texts = {path: Path(path).read_bytes() for path in sorted(places) if Path(path).is_file()}
    sources = {path: source_of(path, raw) for path, raw in texts.items()}
    commented = without_suppressed(done.findings, texts)
    suppressed = len(done.findings) - len(commented)
    done.findings = [one for one in commented if not any(entry.covers(one) for entry in allow)]
    findings = tuple(sorted(done.findings, key=_position))
    findings = tuple(_with_columns(one, sources) for one in findings)
    prints = fingerprints(findings, {path: text_of(path, raw) for path, raw in texts.items()})
    shown = unknown(findings, prints, baseline) if baseline else findings
    facts = _facts(done, plan, with_timelines=with_timelines)
    steps = max((one.steps for one in facts.runs), default=0)
    return Report(
        shown,
        (*done.rows(), *_not_made(facts)),
        len(sources),
        sum(len(source.lines) for source in sources.values()),
        version("allranks"),
        sources=sources,
        prints=prints,
        hidden=len(findings) - len(shown),
        allowed=len(commented) - len(findings),
        suppressed=suppressed,
        tool="allranks rehearse",
        subject=f"{count(len(done.runs), 'run')} of {count(plan.ranks, 'rank')}, {count(steps, 'step')} at most",
        rehearsal=facts,
    )


def _position(one: Finding) -> tuple[bool, str, int, str]:
    return one.code != CAUSE, one.place.path, one.place.line, one.code


def write_trace(report: Report, file: Path) -> None:
    """Write the timelines of a rehearsal for Perfetto; compressed if the name ends in ``.gz``."""
    timelines = report.rehearsal.timelines if report.rehearsal else ()
    text = json.dumps(trace_events(timelines, report.findings)).encode()
    write_file(file, gzip.compress(text) if file.suffix == ".gz" else text)


def _facts(done: Rehearsal, plan: Plan, *, with_timelines: bool) -> RehearsalFacts:
    root = os.getcwd()
    runs = [RunSummary(one.title, ending(run), seconds, run.trace.steps) for one, run, seconds in done.runs]
    runs += [RunSummary(one.title, why, was_made=False) for one, why in done.skipped]
    timelines = [_timeline(scenario.title, run, root) for scenario, run, _ in done.runs] if with_timelines else []
    failed = done.failure and done.failure.first_failure
    failure = "" if done.failure is None else failed.headline() if failed else done.failure.cause or "failed"
    return RehearsalFacts(
        command_line(plan.target),
        root,
        plan.ranks,
        tuple(runs),
        failure,
        lines_seen([run.trace for _, run, _ in done.runs], root),
        is_complete=plan.lines and any(one.name == "quiet" and not run.result.exit_code for one, run, _ in done.runs),
        timelines=tuple(timelines),
    )


def _timeline(title: str, run: Run, root: str) -> Timeline:
    return timeline_of(
        run.trace,
        title,
        locate=lambda event: relative(place_of(event.where)),
        name=lambda path: path_name(path, root),
    )


def _not_made(facts: RehearsalFacts) -> tuple[Row, ...]:
    """Return a row about the runs that were not made, if there are any: a text for each reason."""
    titles: dict[str, list[str]] = {}
    for one in facts.runs:
        if not one.was_made:
            titles.setdefault(one.end, []).append(one.title)
    return (not_seen("runs", *(f"{'; '.join(of)}: {why}" for why, of in titles.items())),) if titles else ()


def _with_columns(finding: Finding, sources: Mapping[str, Source]) -> Finding:
    """Return a finding whose places span the text of their lines. A trace has only the numbers of lines."""
    notes = tuple(replace(note, place=note.place and _spanning(note.place, sources)) for note in finding.notes)
    return replace(finding, place=_spanning(finding.place, sources), notes=notes)


def _spanning(place: Place, sources: Mapping[str, Source]) -> Place:
    line = sources[place.path].line(place.line).rstrip() if place.path in sources else ""
    if not line:
        return place
    return replace(place, column=len(line) - len(line.lstrip()) + 1, end_column=len(line) + 1)
