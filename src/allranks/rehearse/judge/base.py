"""Define what all judges share: their input, and how events become findings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from allranks.errors import name_ranks
from allranks.findings import Confidence, Finding, Moment, Note, Place, Severity
from allranks.rehearse.order import Order
from allranks.rehearse.trace import Event, Frame, Trace

# A file in a folder that each pretended host has for itself.
OF_HOST = re.compile(r".*/allranks-rehearse-[^/]*/host(\d+)/\d+/(.*)")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault that a rehearsal can see.

    ``code`` and ``name`` are from the rule of ``allranks check`` for the same fault, if there is one. ``cluster`` says
    what happens on a cluster, ``advice`` what to do.
    """

    code: str
    name: str
    severity: Severity
    cluster: str
    advice: str


@dataclass(frozen=True, slots=True)
class Case:
    """The input of judges: the trace of one run, and the order of its events.

    ``seen`` says in which scenario the run was. ``root`` is the program's folder.
    """

    trace: Trace
    order: Order
    seen: str = "seen in the quiet run"
    root: str = ""

    def name(self, path: str) -> str:
        """Return a path as a user in the program's folder would write it."""
        return path_name(path, self.root)


def path_name(path: str, root: str) -> str:
    """Return a path as a user in the folder ``root`` would write it."""
    found = OF_HOST.fullmatch(path)
    return f"{found[2]} (of host {found[1]})" if found else path.removeprefix(root + "/")


Judge = Callable[[Case], Iterator[Finding]]


def finding(
    kind: Kind,
    message: str,
    at: Event | Frame | None,
    evidence: Sequence[tuple[str, Event | Frame | None]],
    *,
    confidence: Confidence = "high",
) -> Finding | None:
    """Return a finding at the line of ``at``, with its evidence.

    Return None if no line of the program is known for ``at`` or for any evidence.
    """
    notes = tuple(Note(text, place_of(_frame(one)), _moment(one)) for text, one in evidence)
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


def _moment(one: Event | Frame | None) -> Moment | None:
    return Moment(one.rank, one.step, one.time) if isinstance(one, Event) else None


def _frame(one: Event | Frame | None) -> Frame | None:
    return one.where if isinstance(one, Event) else one


def place_of(frame: Frame | None) -> Place | None:
    """Convert a line to a Place, or None to None. The columns are not known."""
    return None if frame is None else Place(frame.path, frame.line, 1, frame.line, 1)


def who(events: Sequence[Event]) -> str:
    """Return the ranks of some events as text, e.g. ``rank 0`` or ``ranks 1-3``."""
    return name_ranks(sorted({event.rank for event in events}))


def moment(event: Event) -> str:
    """Return the step of an event as text, e.g. ``step 3``."""
    return f"step {event.step}"
