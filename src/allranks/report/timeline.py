"""Define the timeline of a run of several ranks, and the facts about a rehearsal that reports show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from allranks.findings import Place


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of work of one rank: a step, or a collective with its waiting time.

    - ``start``, ``end``: seconds on the machine's clock. ``is_open``: it had not ended when the run ended.
    - ``thread``: the kernel's number; ``process`` is another one than the rank's for a child of the rank.
    - ``key``: equal for the spans of all ranks in one collective; "" for a step.
    """

    rank: int
    kind: Literal["step", "collective"]
    name: str
    start: float
    end: float
    step: int = 0
    thread: int = 0
    process: int = 0
    place: Place | None = None
    key: str = ""
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """An event of a rank at one time. ``kind``: "write" or "read" for calls on files, "other" for the rest."""

    rank: int
    kind: Literal["write", "read", "other"]
    name: str
    time: float
    step: int = 0
    thread: int = 0
    process: int = 0
    place: Place | None = None


@dataclass(frozen=True, slots=True)
class Timeline:
    """What the ranks of one run did: from ``start`` to ``end``, in seconds on the machine's clock."""

    title: str
    ranks: int
    start: float
    end: float
    spans: tuple[Span, ...] = ()
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One run of a rehearsal. ``end`` says how it ended ("ok", "FAILED: ..."), or why it was not made."""

    title: str
    end: str
    seconds: float = 0.0
    steps: int = 0
    was_made: bool = True


@dataclass(frozen=True, slots=True)
class RehearsalFacts:
    """The facts about a rehearsal.

    - ``command``: what was run, without ``allranks rehearse``. ``root``: the folder to which paths are relative.
    - ``failure``: why the program fails by itself, or "".
    - ``lines``: by file, the lines that a rank was seen at, with how many ranks were. ``is_complete``: all lines that
      ran in the quiet run are in it.
    - ``timelines``: one of each run.
    """

    command: str
    root: str
    ranks: int
    runs: tuple[RunSummary, ...] = ()
    failure: str = ""
    lines: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    is_complete: bool = False
    timelines: tuple[Timeline, ...] = ()
