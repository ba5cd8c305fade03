"""What all judges share: what they look at, and how events become findings. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from allranks.errors import name_ranks
from allranks.findings import Confidence, Finding, Note, Place, Severity
from allranks.rehearse.order import Order
from allranks.rehearse.trace import Event, Frame, Trace

# A file in a folder that each pretended host has for itself.
OF_HOST = re.compile(r".*/allranks-rehearse-[^/]*/host(\d+)/\d+/(.*)")


@dataclass(frozen=True, slots=True)
class Kind:
    """A fault that a rehearsal can see. ``code`` and ``name`` are those of the rule of ``allranks check``, where the
    fault is the same; ``cluster`` says what happens there, ``advice`` what to do."""

    code: str
    name: str
    severity: Severity
    cluster: str
    advice: str


@dataclass(frozen=True, slots=True)
class Case:
    """What judges look at: the trace of one run, and its order. ``seen`` says in which scenario that was."""

    trace: Trace
    order: Order
    seen: str = "seen in the quiet run"
    root: str = ""

    def name(self, path: str) -> str:
        """Return a path as a person in the program's folder would write it."""
        found = OF_HOST.fullmatch(path)
        return f"{found[2]} (of host {found[1]})" if found else path.removeprefix(self.root + "/")


Judge = Callable[[Case], Iterator[Finding]]


def finding(
    kind: Kind,
    message: str,
    at: Event | Frame | None,
    evidence: Sequence[tuple[str, Event | Frame | None]],
    *,
    confidence: Confidence = "high",
) -> Finding | None:
    """Return the finding at a place, with its evidence; None where no line of the program is known for any of it."""
    notes = tuple(Note(text, place_of(_frame(one))) for text, one in evidence)
    frame = _frame(at) or next((frame for _, one in evidence if (frame := _frame(one))), None)
    if frame is None:
        return None
    return Finding(
        kind.code,
        kind.name,
        kind.severity,
        message,
        place_of(frame) or Place(frame.path, frame.line, 1, frame.line, 1),
        frame.function,
        kind.cluster,
        kind.advice,
        notes,
        confidence=confidence,
    )


def _frame(one: Event | Frame | None) -> Frame | None:
    return one.where if isinstance(one, Event) else one


def place_of(frame: Frame | None) -> Place | None:
    """Return a line as a place; columns are not known."""
    return None if frame is None else Place(frame.path, frame.line, 1, frame.line, 1)


def who(events: Sequence[Event]) -> str:
    """Return ``rank 0`` or ``ranks 1-3`` for the ranks of some events."""
    return name_ranks(sorted({event.rank for event in events}))


def moment(event: Event) -> str:
    """Return ``step 3``: where in the run an event was."""
    return f"step {event.step}"
