"""Draw the timelines of a rehearsal as SVG: one row for each rank, with steps, collectives and file calls.

Time runs from left to right. Pauses are shortened: the width of the time between two neighbouring events grows with its
logarithm, so that a step of 5 ms and an import of 5 s fit on one page.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

from allranks.failure import visible
from allranks.findings import Finding
from allranks.report.base import count
from allranks.report.timeline import Mark, Span, Timeline

ROW, TOP, LEFT, RIGHT = 46, 22, 8, 24
_NARROWEST, _WIDEST, _UNIT = 880, 9_000, 9.0
# So many reads, collectives and marks are drawn; a page with more would be slow.
_MOST = 4_000


@dataclass(frozen=True, slots=True)
class Conflict:
    """The file calls of one finding in one run. ``number`` is that of the finding on the page, from 1."""

    number: int
    finding: Finding
    marks: tuple[Mark, ...]


class _Scale:
    """Converts times in seconds to horizontal positions in the drawing."""

    def __init__(self, times: Sequence[float]) -> None:
        self._times = sorted(set(times)) or [0.0]
        at, units = 0.0, [0.0]
        for a, b in pairwise(self._times):
            at += math.log1p((b - a) * 1000)
            units.append(at)
        self.width = min(_WIDEST, max(_NARROWEST, at * _UNIT)) - LEFT - RIGHT
        self._columns = [LEFT + one / (at or 1.0) * self.width for one in units]

    def __call__(self, time: float) -> float:
        at = bisect_left(self._times, time)
        return round(self._columns[min(at, len(self._columns) - 1)], 1)


def timeline_section(timelines: Sequence[Timeline], findings: Sequence[Finding]) -> Iterator[str]:
    """Yield the HTML of all timelines. The first one with a conflict is open, or else the first."""
    if not any(one.spans or one.marks for one in timelines):
        return
    yield '<h2 id="timeline">Timeline</h2>'
    yield '<p class="where">Time runs from left to right, with pauses shortened. '
    yield '<span class="key step">step</span> <span class="key collective">collective</span> '
    yield '<span class="key write">change of a file</span> <span class="key read">read of a file</span> '
    yield '<span class="key conflict">file calls of a finding</span></p>'
    conflicts = [conflicts_in(one, findings) for one in timelines]
    is_open = next((at for at, found in enumerate(conflicts) if found), 0)
    for at, (timeline, found) in enumerate(zip(timelines, conflicts, strict=True)):
        if timeline.spans or timeline.marks:
            yield from _run(timeline, found, is_open=at == is_open)


def conflicts_in(timeline: Timeline, findings: Sequence[Finding]) -> list[Conflict]:
    """Return the findings whose file calls are in a run."""
    named = {(mark.rank, mark.time): mark for mark in timeline.marks}
    found = []
    for number, finding in enumerate(findings, 1):
        keys = [(note.moment.rank, note.moment.time) for note in finding.notes if note.moment]
        if marks := tuple(named[key] for key in dict.fromkeys(keys) if key in named):
            found.append(Conflict(number, finding, marks))
    return found


def _run(timeline: Timeline, conflicts: Sequence[Conflict], *, is_open: bool) -> Iterator[str]:
    marked = {id(mark) for one in conflicts for mark in one.marks}
    spans, marks, left_out = _shown(timeline, marked)
    seconds = f"{timeline.end - timeline.start:.1f} s"
    steps = max((span.step for span in timeline.spans if span.kind == "step"), default=0)
    facts = f"{count(steps, 'step')}, {count(timeline.ranks, 'rank')}, {seconds}"
    if conflicts:
        facts += f", {count(len(conflicts), 'finding')} in it"
    if left_out:
        facts += f"; {left_out:,} reads and collectives are not drawn"
    scale = _Scale([*(t for one in spans for t in (one.start, one.end)), *(one.time for one in marks)])
    height = TOP + ROW * timeline.ranks + 6
    yield f"<details{' open' if is_open else ''}><summary>{_text(timeline.title)}: {facts}</summary>"
    yield '<div class="timeline"><div class="names">'
    yield from (f'<div class="name">rank {rank}</div>' for rank in range(timeline.ranks))
    width = scale.width + LEFT + RIGHT
    yield f'</div><div class="scroll"><svg width="{width:.0f}" height="{height}" role="img">'
    yield f"<title>{_text(timeline.title)}: what each rank did</title>"
    for rank in range(timeline.ranks):
        y = TOP + ROW * rank
        yield f'<rect class="ground g{rank % 2}" x="0" y="{y}" width="{width:.0f}" height="{ROW}"/>'
    yield from _steps([span for span in spans if span.kind == "step"], scale)
    yield from (_collective(span, scale) for span in spans if span.kind == "collective")
    yield from (_mark(mark, scale) for mark in marks if id(mark) not in marked)
    for conflict in conflicts:
        yield from _conflict(conflict, scale)
    yield "</svg></div></div></details>"


def _shown(timeline: Timeline, marked: set[int]) -> tuple[list[Span], list[Mark], int]:
    """Return the spans and marks that are drawn, and how many are left out: reads first, then collectives.

    Reads for which no line is known (of a library's thread) are not counted.
    """
    steps = [one for one in timeline.spans if one.kind == "step"][:_MOST]
    needed = [one for one in timeline.marks if id(one) in marked or one.kind != "read"][:_MOST]
    room = max(0, _MOST - len(needed) - len(steps))
    collectives = [one for one in timeline.spans if one.kind == "collective"][:room]
    lines = [one for one in timeline.marks if one.kind == "read" and one.place and id(one) not in marked]
    reads = lines[: max(0, room - len(collectives))]
    total = len(timeline.spans) + len(needed) + len(lines)
    shown = len(steps) + len(collectives) + len(needed) + len(reads)
    return [*steps, *collectives], [*needed, *reads], total - shown


def _steps(spans: Sequence[Span], scale: _Scale) -> Iterator[str]:
    for span in spans:
        x, end = scale(span.start), scale(span.end)
        y, width = TOP + ROW * span.rank + 4, max(1.0, end - x - 1)
        box = f'x="{x}" y="{y}" width="{width:.1f}" height="15" rx="2"'
        yield f'<rect class="step" {box}>{_title(span.name, span)}</rect>'
        if width > 16:
            yield f'<text class="in" x="{x + width / 2:.1f}" y="{y + 11.5}">{span.step}</text>'


def _collective(span: Span, scale: _Scale) -> str:
    x, end = scale(span.start), scale(span.end)
    y, kind = TOP + ROW * span.rank + 21, "collective open" if span.is_open else "collective"
    name = f"{span.name}, never ended" if span.is_open else span.name
    return (
        f'<rect class="{kind}" x="{x}" y="{y}" width="{max(1.5, end - x):.1f}" height="8">{_title(name, span)}</rect>'
    )


def _mark(mark: Mark, scale: _Scale) -> str:
    x, y = scale(mark.time), TOP + ROW * mark.rank + 31
    if mark.kind == "write":
        return f'<path class="write" d="M{x},{y} l4,10 h-8 z">{_title(mark.name, mark)}</path>'
    return (
        f'<rect class="{mark.kind}" x="{x - 0.75}" y="{y + 2}" width="1.5" height="8">{_title(mark.name, mark)}</rect>'
    )


def _conflict(conflict: Conflict, scale: _Scale) -> Iterator[str]:
    """Yield the file calls of a finding, the line that joins them, and the finding's number."""
    points = [(scale(mark.time), TOP + ROW * mark.rank + 36) for mark in conflict.marks]
    code = _text(conflict.finding.code)
    yield f'<a class="conflict" href="#finding-{conflict.number}">'
    yield f"<title>{code} {_text(conflict.finding.message)}</title>"
    for (x1, y1), (x2, y2) in pairwise(sorted(points, key=lambda one: one[1])):
        yield f'<path class="join" d="M{x1},{y1} L{x2},{y2}"/>'
    for (x, y), mark in zip(points, conflict.marks, strict=True):
        yield f'<circle cx="{x}" cy="{y}" r="5.5">{_title(mark.name, mark)}</circle>'
        yield f'<text class="number" x="{x}" y="{y + 3}">{conflict.number}</text>'
    yield "</a>"


def _title(name: str, one: Span | Mark) -> str:
    where = f", {one.place.path}:{one.place.line}" if one.place else ""
    seconds = f", {(one.end - one.start) * 1000:.1f} ms" if isinstance(one, Span) else ""
    return f"<title>rank {one.rank}, step {one.step}: {_text(name)}{seconds}{_text(where)}</title>"


def _text(text: str) -> str:
    return escape(visible(text))
