"""Compare findings in code that was only read with what a rehearsal of it saw."""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from allranks.findings import Finding, Note, Place, Row, Verdict
from allranks.report.base import Report, count
from allranks.settings import ConfigWrong

State = Literal["confirmed", "not confirmed", "run by some ranks", "not run", "not known to run"]
STATES: tuple[State, ...] = get_args(State)


@dataclass(frozen=True, slots=True)
class Confirmation:
    """Whether a rehearsal (a run of the program) confirms a finding: a state, and a sentence for people."""

    state: State
    text: str


@dataclass(frozen=True, slots=True)
class SeenFault:
    """A fault that a rehearsal found. ``places``: where it is, and where its evidence is."""

    code: str
    severity: str
    message: str
    place: Place
    places: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """The content of a report that ``allranks rehearse --output-format json`` wrote.

    - ``lines``: by file and line, how many ranks were seen there. ``is_complete``: no line that ran is missing.
    - ``runs``: how many runs were made.
    """

    ranks: int
    runs: int
    faults: tuple[SeenFault, ...]
    lines: Mapping[str, Mapping[int, int]]
    is_complete: bool = False


def read_rehearsal(document: Any, document_path: str, project_root: str) -> Rehearsed:
    """Return what a JSON document of a rehearsal says, with paths relative to the folder ``project_root``.

    If the rehearsal was made on another machine, its folder is taken for ``project_root``. Raises ConfigWrong, which
    names ``document_path``.
    """
    try:
        facts = document["rehearsal"]
        folder = facts["root"]
        near = (
            folder == project_root
            or folder.startswith(f"{project_root}/")
            or project_root.startswith(f"{folder.rstrip('/')}/")
        )
        base = posixpath.relpath(folder, project_root) if near else "."
        lines = {
            _path(base, path): {int(line): int(ranks) for ranks, some in by.items() for line in some}
            for path, by in facts["lines"]["files"].items()
        }
        faults = tuple(_fault(one, base) for one in document["findings"])
        runs = sum(bool(one["made"]) for one in facts["runs"])
        return Rehearsed(int(facts["ranks"]), runs, faults, lines, bool(facts["lines"]["complete"]))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigWrong(
            f"{document_path}: no report of a rehearsal ({type(error).__name__}: {error}).",
            remedy="Write it with allranks rehearse --output-format json --output-file FILE.",
        ) from error


def _path(base: str, path: str) -> str:
    return posixpath.normpath(posixpath.join(base, path))


def _fault(one: Mapping[str, Any], base: str) -> SeenFault:
    noted = [note["place"] for note in one["notes"] if note["place"]]
    place, *others = (_place(each, base) for each in (one, *noted))
    return SeenFault(one["code"], one["severity"], one["message"], place, (place, *others))


def _place(one: Mapping[str, Any], base: str) -> Place:
    return Place(_path(base, one["path"]), one["line"], one["column"], one["end_line"], one["end_column"])


def confirm_finding(finding: Finding, rehearsed: Rehearsed) -> Confirmation:
    """Return what a rehearsal says about a finding in code that was only read."""
    if fault := next((one for one in rehearsed.faults if _is_same_fault(one, finding)), None):
        return Confirmation("confirmed", f"confirmed by the rehearsal: {fault.code} {fault.message}")
    lines = rehearsed.lines.get(finding.place.path, {})
    first, last = finding.place.line, max(finding.place.line, finding.place.end_line)
    seen = max((ranks for line, ranks in lines.items() if first <= line <= last), default=0)
    if seen >= rehearsed.ranks:
        return Confirmation("not confirmed", "not confirmed: all ranks of the rehearsal ran this line")
    if seen:
        some = f"{seen} of {count(rehearsed.ranks, 'rank')}"
        return Confirmation("run by some ranks", f"not confirmed: {some} of the rehearsal ran this line")
    if rehearsed.is_complete:
        return Confirmation("not run", "not run: the rehearsal did not reach this line")
    return Confirmation("not known to run", "not known: no rank was seen at this line (allranks rehearse --lines)")


def _is_same_fault(fault: SeenFault, finding: Finding) -> bool:
    """Return whether a finding of a rehearsal is about the fault that was found by reading.

    True if both are at the same statement, or if they have the same code and a common line in their evidence.
    """
    if _overlap(fault.place, finding.place):
        return True
    mine = [finding.place, *(note.place for note in finding.notes if note.place)]
    return fault.code == finding.code and any(_overlap(a, b) for a in fault.places for b in mine)


def _overlap(a: Place, b: Place) -> bool:
    return a.path == b.path and a.line <= max(b.line, b.end_line) and b.line <= max(a.line, a.end_line)


def with_rehearsal(report: Report, rehearsed: Rehearsed) -> Report:
    """Return the report of a check in which each finding has a note about the rehearsal, and a row sums them up."""
    found = {finding: confirm_finding(finding, rehearsed) for finding in report.findings}
    noted = {one: replace(one, notes=(*one.notes, Note(said.text))) for one, said in found.items()}
    return replace(
        report,
        findings=tuple(noted[one] for one in report.findings),
        rows=(*report.rows, rehearsal_row(report.findings, found, rehearsed)),
        prints={noted.get(one, one): text for one, text in report.prints.items()},
        confirmations={noted[one]: said.state for one, said in found.items()},
    )


def rehearsal_row(findings: Sequence[Finding], found: Mapping[Finding, Confirmation], rehearsed: Rehearsed) -> Row:
    """Return the row of a check's report about a rehearsal, with the faults that only the rehearsal has."""
    new = [one for one in rehearsed.faults if not any(_is_same_fault(one, finding) for finding in findings)]
    runs = f"{count(rehearsed.runs, 'run')} of {count(rehearsed.ranks, 'rank')}"
    summary = Note(f"{runs}: {count_states(found.values())}")
    notes = [Note(f"{one.code} {one.message} (seen by the rehearsal alone)", one.place) for one in new]
    verdict: Verdict = "ok"
    if any(one.severity == "error" for one in rehearsed.faults):
        verdict = "error"
    elif rehearsed.faults:
        verdict = "warning"
    return Row("rehearsal", verdict, (summary, *notes))


def check_row(findings: Sequence[Finding], rehearsed: Rehearsed) -> Row:
    """Return the row of a rehearsal's report about what is found by reading the code."""
    found = {finding: confirm_finding(finding, rehearsed) for finding in findings}
    notes = [Note(f"{one.code} {one.message} ({said.text})", one.place) for one, said in found.items()]
    return Row("check", "ok" if not findings else "warning", (Note(count_states(found.values())), *notes))


def count_states(found: Iterable[Confirmation]) -> str:
    """Return the numbers of findings in each state, as text: ``2 findings: 1 confirmed, 1 not run``."""
    numbers = Counter(one.state for one in found)
    total = count(sum(numbers.values()), "finding") + " by reading the code"
    states = [f"{numbers[state]} {state}" for state in STATES if numbers[state]]
    return f"{total}: {', '.join(states)}" if states else total
