"""Convert timelines into the JSON of the Trace Event Format, which Perfetto and chrome://tracing open.

A rank is a process (``pid``), its threads are threads. Steps and collectives are slices, other file calls are instants.
Flow arrows lead from rank to rank: through each collective, and between the file calls of a finding. This module does
no I/O.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from allranks.findings import Finding, Place
from allranks.report.timeline import Mark, Span, Timeline

Json = dict[str, Any]
# By rank and thread of the kernel: the number of the thread in the document.
Threads = dict[tuple[int, int], int]
# The thread that shows which run of the rehearsal it is.
_RUNS = 0


def trace_events(timelines: Sequence[Timeline], findings: Sequence[Finding]) -> Json:
    """Return all runs as one document, one after another on the axis of time."""
    start = min((one.start for one in timelines), default=0.0)
    threads: Threads = {}
    events: list[Json] = []
    for number, timeline in enumerate(timelines):
        for rank in range(timeline.ranks):
            events.append(
                _slice(
                    rank, _RUNS, timeline.title, "run", _micros(timeline.start, start), timeline.end - timeline.start
                )
            )
        named = {(one.rank, one.time): one for one in timeline.marks}
        pairs = [*_pairs(findings, named)]
        partners = {id(mark) for pair in pairs for mark in pair[1]}
        for span, thread in _threads_of(timeline.spans, threads):
            arguments = _arguments(span.step, span.place) | ({"never ended": True} if span.is_open else {})
            begin = _micros(span.start, start)
            events.append(_slice(span.rank, thread, span.name, span.kind, begin, span.end - span.start, arguments))
        for mark in timeline.marks:
            events.append(_of_mark(mark, threads, start, is_slice=id(mark) in partners))
        events += _flows(timeline, pairs, threads, start, f"{number}")
    ranks = max((one.ranks for one in timelines), default=0)
    return {"displayTimeUnit": "ms", "traceEvents": [*_names(ranks, threads), *events]}


def _pairs(
    findings: Sequence[Finding], named: Mapping[tuple[int, float], Mark]
) -> Iterator[tuple[Finding, list[Mark]]]:
    """Yield the file calls of each finding that this run has, if they are of several ranks."""
    for finding in findings:
        moments = [note.moment for note in finding.notes if note.moment]
        marks = [named[key] for one in moments if (key := (one.rank, one.time)) in named]
        if len({mark.rank for mark in marks}) > 1:
            yield finding, marks


def _flows(
    timeline: Timeline,
    pairs: Sequence[tuple[Finding, list[Mark]]],
    threads: Threads,
    start: float,
    run: str,
) -> Iterator[Json]:
    by_key: dict[str, list[tuple[Span, int]]] = {}
    for span, thread in _threads_of(timeline.spans, threads):
        if span.key:
            by_key.setdefault(span.key, []).append((span, thread))
    for key, spans in by_key.items():
        points = [(one.rank, thread, _micros(one.start, start)) for one, thread in spans]
        yield from _flow(f"{run}/{key}", spans[0][0].name, "collective", points)
    for number, (finding, marks) in enumerate(pairs):
        ordered = sorted(marks, key=lambda mark: mark.time)
        points = [(one.rank, _thread(threads, one), _micros(one.time, start)) for one in ordered]
        yield from _flow(f"{run}/finding {number}", finding.code, "finding", points)


def _flow(key: str, name: str, category: str, points: Sequence[tuple[int, int, float]]) -> Iterator[Json]:
    """Yield the events of one arrow through several slices."""
    if len(points) < 2:
        return
    ordered = sorted(points, key=lambda point: point[2])
    for at, (pid, tid, ts) in enumerate(ordered):
        phase = "s" if at == 0 else "f" if at == len(ordered) - 1 else "t"
        end = {"bp": "e"} if phase == "f" else {}
        yield {"ph": phase, "id": key, "name": name, "cat": category, "pid": pid, "tid": tid, "ts": ts, **end}


def _names(ranks: int, threads: Mapping[tuple[int, int], int]) -> Iterator[Json]:
    for rank in range(ranks):
        yield _named("process_name", rank, _RUNS, {"name": f"rank {rank}"})
        yield _named("process_sort_index", rank, _RUNS, {"sort_index": rank})
        yield _named("thread_name", rank, _RUNS, {"name": "run"})
    for (rank, _), number in threads.items():
        yield _named("thread_name", rank, number, {"name": f"thread {number}"})


def _named(name: str, pid: int, tid: int, arguments: Json) -> Json:
    return {"ph": "M", "name": name, "pid": pid, "tid": tid, "args": arguments}


def _thread(threads: Threads, one: Span | Mark) -> int:
    """Return a small number for a thread of a rank: 1 for the main thread of its own process."""
    return threads.setdefault((one.rank, one.thread), 1 + sum(rank == one.rank for rank, _ in threads))


def _threads_of(spans: Sequence[Span], threads: Threads) -> Iterator[tuple[Span, int]]:
    """Yield each span with its thread. Spans that overlap others of their thread, but are not inside, get another."""
    ends: dict[tuple[int, int], list[float]] = {}
    for span in sorted(spans, key=lambda one: (one.rank, one.start, -one.end)):
        thread = span.thread
        while not _is_nested(span, ends.setdefault((span.rank, thread), [])):
            thread = -abs(thread) if thread > 0 else thread - 1
        yield span, _thread(threads, replace(span, thread=thread))


def _is_nested(span: Span, ends: list[float]) -> bool:
    """Return whether a span is inside the last one that is open, or after it; if so, open it."""
    while ends and ends[-1] <= span.start:
        ends.pop()
    if ends and ends[-1] < span.end:
        return False
    ends.append(span.end)
    return True


def _of_mark(mark: Mark, threads: Threads, start: float, *, is_slice: bool) -> Json:
    """Return a file call as an instant; as a short slice if an arrow begins or ends at it."""
    thread, ts, arguments = _thread(threads, mark), _micros(mark.time, start), _arguments(mark.step, mark.place)
    if is_slice:
        return _slice(mark.rank, thread, mark.name, mark.kind, ts, 1e-6, arguments)
    return {
        "ph": "i", "s": "t", "name": mark.name, "cat": mark.kind, "pid": mark.rank, "tid": thread, "ts": ts,
        "args": arguments,
    }  # fmt: skip


def _slice(
    pid: int, tid: int, name: str, category: str, ts: float, seconds: float, arguments: Json | None = None
) -> Json:
    duration = round(max(seconds, 0.0) * 1e6, 3)
    return {
        "ph": "X", "name": name, "cat": category, "pid": pid, "tid": tid, "ts": ts, "dur": duration,
        "args": arguments or {},
    }  # fmt: skip


def _arguments(step: int, place: Place | None) -> Json:
    return {"step": step, **({"line": f"{place.path}:{place.line}"} if place else {})}


def _micros(time: float, start: float) -> float:
    return round((time - start) * 1e6, 3)
