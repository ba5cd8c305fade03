"""The readiness report: what was looked at, the verdict, the evidence. No tick without a place in the code that says
something about ranks. What counts as evidence is data: ``knowledge/readiness.toml``."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from allranks.check.knowledge.tables import Effect, read
from allranks.check.program import Program, short
from allranks.check.queries.effects import holds_state, path_of
from allranks.check.roots import Root
from allranks.check.simulate.values import RANK, taint
from allranks.check.traces.walk import Reach
from allranks.findings import ROWS, Finding, Note, Place, Row, Verdict

MOST = 5
_TABLE: Mapping[str, list[dict[str, Any]]] = read("readiness.toml")
# Calls that the program is watched for, beside effects, collectives and signs of several processes.
EVIDENCE = frozenset(name for rows in _TABLE.values() for row in rows for name in row.get("names", ()))


@dataclass(frozen=True, slots=True)
class _Seen:
    """A call that an entry reaches, and its place."""

    root: Root
    reach: Reach
    place: Place


def rows(
    program: Program,
    findings: Iterable[Finding],
    topics: Mapping[str, str],
    *,
    doubted: Iterable[Finding] = (),
    unknown: Iterable[tuple[str, Note]] = (),
) -> tuple[Row, ...]:
    """Return the report. ``topics``: code of a rule -> row; findings decide before anything that speaks for a row.
    ``doubted``: what is not shown, for it is not sure enough: what is called there speaks for nothing. ``unknown``:
    rows for which nothing can speak, and why."""
    findings = [f for f in findings if f.severity != "info"]
    seen = list(_seen(program))
    against: dict[str, list[Finding]] = {}
    for finding in findings:
        against.setdefault(topics.get(finding.code, ""), []).append(finding)
    for topic in ("checkpoint save", "checkpoint load"):
        places = {_start(one.place) for one in seen if any(_is_about(row, one, program) for row in _TABLE[topic])}
        more = [f for f in findings if _start(f.place) in places and f not in against.get(topic, ())]
        against.setdefault(topic, []).extend(more)
    wrong: dict[str, set[tuple[str, int]]] = {topic: set() for topic in ROWS}
    for finding in (*findings, *doubted):
        if finding.severity != "info":
            wrong.get(topics.get(finding.code, ""), set()).update(_lines(finding.place))
    known = {}
    for topic in ROWS:
        trusted = [one for one in seen if not _lines(one.place) & wrong[topic]]
        known[topic] = _row(topic, program, trusted, against.get(topic, []))
    for topic, why in unknown:
        if topic in known and known[topic].verdict in ("ok", "not seen"):
            known[topic] = Row(topic, "not determined", (why,))
    return tuple(known.values())


def _seen(program: Program) -> Iterator[_Seen]:
    """Yield what entries reach that run as several processes; nothing of an entry whose main call leads nowhere."""
    lost = {gap.path for gap in program.analysis.unfollowed}
    for root in program.analysis.roots:
        if root.active and root.result.path not in lost and (root.kind != "function" or root.sure):
            for reach in root.reached:
                yield _Seen(root, reach, program.place(reach.call.path, reach.call.span))


def _row(topic: str, program: Program, seen: list[_Seen], against: list[Finding]) -> Row:
    if against:
        worst: Verdict = "error" if any(f.severity == "error" for f in against) else "warning"
        return Row(topic, worst, tuple(Note(f"{f.code} {f.message}", f.place) for f in against[:MOST]))
    notes: dict[tuple[str, tuple[str, int]], Note] = {}
    for evidence in _TABLE.get(topic, ()):
        for one in seen:
            if len(notes) < MOST and _speaks(evidence, one, program):
                text = evidence["says"].format(short(one.reach.call.name))
                notes.setdefault((text, _start(one.place)), Note(text, one.place))
    return Row(topic, "ok", tuple(notes.values())) if notes else Row(topic, "not seen", ())


def _speaks(evidence: Mapping[str, Any], one: _Seen, program: Program) -> bool:
    """Return whether a call is what a row of the table describes."""
    reach, call = one.reach, one.reach.call
    if not _is_about(evidence, one, program) or not (one.root.is_shared(reach) or call.kind == "sign launch"):
        return False
    return _by_whom(evidence.get("ranks"), reach) and evidence.get("own", _is_own(reach)) == _is_own(reach)


def _is_about(evidence: Mapping[str, Any], one: _Seen, program: Program) -> bool:
    """Return whether a call is of the kind that a row of the table speaks of, whoever reaches it. What is saved and
    loaded as checkpoints are and belongs to the data (a vocabulary, a tokenizer) is not."""
    reach, call = one.reach, one.reach.call
    op = call.entry.op if call.kind == "collective" else ""
    holds = call.kind == "file" and "checkpoint" in evidence.get("kinds", ()) and holds_state(program.analysis, reach)
    of_kind = call.kind in evidence.get("kinds", ()) or op in evidence.get("ops", ()) or holds
    given = {name for name, _ in call.given.keywords}
    if not (of_kind or call.name in evidence.get("names", ()) or given & {*evidence.get("options", ())}):
        return False
    if call.kind == "collective" and "kinds" in evidence and call.entry.hidden:
        return False
    if call.kind not in ("checkpoint", "file", "restore", "load"):
        return True
    owner = ast.unparse(call.given.owner) if call.given.owner is not None else ""
    return not program.analysis.simulator.knowledge.says("data", f"{path_of(reach)} {call.target} {owner}")


def _by_whom(ranks: str | None, reach: Reach) -> bool:
    if ranks == "all":
        return reach.everyone
    return ranks is None or (reach.may == 0b0001 and reach.certain == 0b0001)


def _is_own(reach: Reach) -> bool:
    """Return whether a path, or for other calls an argument, differs from rank to rank."""
    call = reach.call
    values = (call.where,) if isinstance(call.entry, Effect) else call.given.every
    return any(value is not None and taint(value) & RANK for value in values)


def _start(place: Place) -> tuple[str, int]:
    return place.path, place.line


def _lines(place: Place) -> frozenset[tuple[str, int]]:
    return frozenset((place.path, line) for line in range(place.line, place.end_line + 1))
