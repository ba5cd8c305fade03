"""What is wrong, where, what happens on the cluster, and what to do. Values alone; ``allranks.check`` finds them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Severity: TypeAlias = Literal["error", "warning", "info"]
Confidence: TypeAlias = Literal["high", "low"]


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A span of source text: from (line, column) up to, not with, (end_line, end_column).

    Lines and columns count from 1, columns in characters. ``path`` is relative to the project's root, with "/"
    between its parts.
    """

    path: str
    line: int
    column: int
    end_line: int
    end_column: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class Note:
    """A line of evidence: a call on the way, the guard, the trace of the other role."""

    text: str
    place: Place | None = None


@dataclass(frozen=True, slots=True)
class Edit:
    """``text`` replaces what stands at ``place``; an empty span inserts."""

    place: Place
    text: str


@dataclass(frozen=True, slots=True)
class Fix:
    """Edits that belong together: all of them or none. ``safe``: what the program does is kept, but for the fault."""

    title: str
    edits: tuple[Edit, ...]
    safe: bool


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault. ``message`` is one line that stands alone; ``cluster`` and ``advice`` are sentences for a person.

    ``code`` and ``name`` are the rule's (``AR101``, ``ungated-checkpoint-write``); ``symbol`` is the qualified function
    that it stands in (``train.Trainer.save``, the module at top level). ``confidence`` is low where nothing was
    followed that leads there in several processes: no program, no framework's hook, no code that joins them itself.
    """

    code: str
    name: str
    severity: Severity
    message: str
    place: Place
    symbol: str
    cluster: str
    advice: str
    notes: tuple[Note, ...] = ()
    fix: Fix | None = None
    confidence: Confidence = "high"


ROWS = (
    "initialisation",
    "sharding",
    "data",
    "checkpoint save",
    "checkpoint load",
    "gating",
    "collectives",
    "timeouts",
    "randomness",
)
Verdict: TypeAlias = Literal["good", "warning", "bad", "not seen", "not determined"]


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the readiness report. ``topic`` is of ROWS; a verdict but "not seen" has evidence."""

    topic: str
    verdict: Verdict
    evidence: tuple[Note, ...] = ()
