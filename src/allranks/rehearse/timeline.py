"""Convert the trace of a run into a timeline for reports. This module does no I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Literal

from allranks.findings import Place
from allranks.rehearse.trace import Event, Trace
from allranks.rehearse.watch.syscalls import CHANGES
from allranks.report.timeline import Mark, Span, Timeline

Locate = Callable[[Event], Place | None]
# Events that are shown, beside steps, collectives and file calls, and what they are called.
_OTHERS = {
    "tracker": "begins a run of a tracker",
    "logged": "logs a value",
    "load": "loads weights",
    "epoch": "begins an epoch",
    "lock": "takes a lock",
    "unlock": "releases a lock",
    "killed": "is killed by the rehearsal",
    "ended": "is ended by the rehearsal",
}


def timeline_of(trace: Trace, title: str, *, locate: Locate, name: Callable[[str], str]) -> Timeline:
    """Return the timeline of a run.

    ``locate`` returns the place of an event for a report, ``name`` the path of a file as a user writes it.
    """
    times = [event.time for event in trace.events]
    start, end = (min(times), max(times)) if times else (0.0, 0.0)
    spans = [*_steps(trace, locate), *_collectives(trace, locate, end), *_reductions(trace, locate)]
    spans.sort(key=lambda span: (span.start, span.rank))
    return Timeline(title, trace.ranks, start, end, tuple(spans), tuple(_marks(trace, locate, name)))


def _steps(trace: Trace, locate: Locate) -> Iterator[Span]:
    """Yield the steps of the first optimizer (or of the main program). The first one begins with the first batch."""
    for rank, events in trace.by_rank("step", "batch", "input", "weights", "arguments").items():
        last: float | None = None
        for event in events:
            if last is None and event.kind != "step":
                last = event.time
            if event.kind == "step" and not event.data.get("optimizer"):
                number = event.data["number"]
                begun = event.time if last is None else last
                yield Span(
                    rank,
                    "step",
                    f"step {number}",
                    begun,
                    event.time,
                    number,
                    event.thread,
                    event.process,
                    locate(event),
                )
                last = event.time


def _collectives(trace: Trace, locate: Locate, end: float) -> Iterator[Span]:
    for rank, events in trace.by_rank("enter", "leave").items():
        entered: dict[str, Event] = {}
        for event in events:
            key = str(event.data["key"])
            if event.kind == "enter":
                entered[key] = event
            elif key in entered:
                yield _collective(rank, entered.pop(key), event.time, locate, is_open=False)
        for event in entered.values():
            yield _collective(rank, event, end, locate, is_open=True)


def _reductions(trace: Trace, locate: Locate) -> Iterator[Span]:
    """Yield the backward passes in which a wrapper (DDP) reduces its gradients."""
    for event in trace.of("reduction"):
        yield replace(_collective(event.rank, event, event.time, locate, is_open=False), start=event.data["began"])


def _collective(rank: int, event: Event, end: float, locate: Locate, *, is_open: bool) -> Span:
    name, key = str(event.data.get("name", "collective")), str(event.data["key"])
    place = locate(event)
    return Span(rank, "collective", name, event.time, end, event.step, event.thread, event.process, place, key, is_open)


def _marks(trace: Trace, locate: Locate, name: Callable[[str], str]) -> Iterator[Mark]:
    for event in trace.events:
        kind: Literal["write", "read", "other"] = "other"
        if event.kind == "file":
            operation = event.data["operation"]
            kind = "write" if operation in CHANGES else "read"
            text = f"{operation} {' -> '.join(map(name, event.data['paths']))}"
        elif event.kind in _OTHERS:
            text = f"{_OTHERS[event.kind]} {event.data.get('name', event.data.get('tracker', ''))}".rstrip()
        else:
            continue
        place = locate(event)
        yield Mark(event.rank, kind, text, event.time, event.step, event.thread, event.process, place)


def lines_seen(traces: Iterable[Trace], root: str) -> dict[str, dict[int, int]]:
    """Return the lines of the program at which a rank was seen, by file: with how many ranks were, in any run.

    Only files below ``root`` are returned, with paths relative to it.
    """
    ranks: dict[str, dict[int, set[int]]] = {}
    for trace in traces:
        for event in trace.events:
            places = [(event.data["path"], event.data["line"])] if event.kind == "line" else ()
            for path, line in (*places, *((frame.path, frame.line) for frame in event.place)):
                full = path if path.startswith("/") else f"{root}/{path}"
                if full.startswith(root + "/"):
                    name = full.removeprefix(root + "/")
                    ranks.setdefault(name, {}).setdefault(line, set()).add(event.rank)
    return {path: {line: len(found) for line, found in sorted(by.items())} for path, by in sorted(ranks.items())}
