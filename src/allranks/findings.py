"""Define findings, which ``check`` and ``rehearse`` report: what is wrong, where, its effect, and what to do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

Severity: TypeAlias = Literal["error", "warning", "info"]
Confidence: TypeAlias = Literal["high", "low"]


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A span of source text: from (line, column) to (end_line, end_column), whose character is not included.

    Lines and columns count from 1; columns count characters. ``path`` is relative to the project's root, with "/"
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
class Moment:
    """What a rank did in a rehearsal: at which step, and when (seconds on the machine's monotonic clock)."""

    rank: int
    step: int
    time: float


@dataclass(frozen=True, slots=True)
class Note:
    """A piece of evidence for a finding: a place in the code, with a text that says what happens there.

    ``moment`` is the moment in a rehearsal that the note is about, if it is about one.
    """

    text: str
    place: Place | None = None
    moment: Moment | None = None


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of source text: ``text`` replaces the text at ``place``. If the span is empty, ``text`` is inserted."""

    place: Place
    text: str


@dataclass(frozen=True, slots=True)
class Fix:
    """Edits that belong together: all of them are made, or none. ``safe``: only the fault changes, nothing else."""

    title: str
    edits: tuple[Edit, ...]
    safe: bool


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault that was found. ``message`` is one line; ``cluster`` and ``advice`` are sentences for people.

    - ``code``, ``name``: of the rule (``AR101``, ``ungated-checkpoint-write``).
    - ``symbol``: the qualified name of the function around the fault (``train.Trainer.save``), or the module.
    - ``confidence``: low if no known path leads to the fault in several processes, i.e. from no program, no framework's
      hook, and no code that joins the processes itself.
    - ``replay``: the command that shows the fault again ("" for one that was found by reading code).
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
    replay: str = ""


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
Verdict: TypeAlias = Literal["error", "warning", "not determined", "ok", "not seen"]
# The worst first. What was not seen on one host, and is ok on another, is reported as ok.
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a readiness report (``allranks check``, ``doctor``, ``preflight``): a topic and its verdict.

    - ``evidence``: not empty, unless the verdict is "not seen".
    - ``remedy``: what to do.
    - ``ranks``: the ranks that report it; empty for all.
    - ``margin``: how far the value is from being wrong, in any unit. Of many hosts that are ok, the host with the
      smallest margin is shown.
    """

    topic: str
    verdict: Verdict
    evidence: tuple[Note, ...] = ()
    remedy: str = ""
    ranks: tuple[int, ...] = ()
    margin: float = math.inf

    def __post_init__(self) -> None:
        if self.verdict != "not seen" and not any(self.texts):
            raise ValueError(f"{self.topic}: {self.verdict!r} without evidence")

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts of the evidence, without places."""
        return tuple(note.text for note in self.evidence)

    def to_json(self) -> list[Any]:
        """Return the row as JSON values, without its places, for ``from_json`` on another rank."""
        margin = None if math.isinf(self.margin) else self.margin
        return [self.topic, self.verdict, list(self.texts), self.remedy, list(self.ranks), margin]

    @classmethod
    def from_json(cls, row: Sequence[Any]) -> Row:
        topic, verdict, texts, remedy, ranks, margin = row
        return cls(topic, verdict, notes(*texts), remedy, tuple(ranks), math.inf if margin is None else margin)


def notes(*texts: str) -> tuple[Note, ...]:
    return tuple(map(Note, texts))


def ok(topic: str, *evidence: str, margin: float = math.inf) -> Row:
    return Row(topic, "ok", notes(*evidence), margin=margin)


def warning(topic: str, *evidence: str, remedy: str, margin: float = math.inf) -> Row:
    return Row(topic, "warning", notes(*evidence), remedy, margin=margin)


def error(topic: str, *evidence: str, remedy: str) -> Row:
    return Row(topic, "error", notes(*evidence), remedy)


def not_seen(topic: str, *evidence: str) -> Row:
    return Row(topic, "not seen", notes(*evidence))


def not_determined(topic: str, *evidence: str, remedy: str = "") -> Row:
    return Row(topic, "not determined", notes(*evidence), remedy)
