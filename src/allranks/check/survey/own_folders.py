"""Folders that each process names for itself: by what, by whose clock, on whose disk, and who makes them. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection

from allranks.check.interpret.values import CLOCK, IDENTITY, PROCESS, RANKS
from allranks.check.program import Event, Program
from allranks.check.survey.facts import Facts

# What tells which time it is; the rest tells how long something took, or what is free, and names nothing.
_TELLS = re.compile(r"(^|\.)(time|time_ns|strftime|ctime|localtime|gmtime|now|utcnow|today|fromtimestamp)$")
# How the folder of a run is called.
_RUN = re.compile(r"(?i)run|exp|job|log|ckpt|checkpoint")
_JOINING = ("os", "path", "join", "Path", "pathlib")
_WORD = re.compile(r"[A-Za-z_]\w*")
_RELATIVE = re.compile(r"(?!\w+:)(\./)?\w[\w.-]*(/|$)")


def is_of_each(event: Event) -> bool:
    """Whether a name has the rank or the process in it."""
    return event.path is not None and bool(event.path.taint & (RANKS | IDENTITY) or "temporary" in event.path.flags)


def is_of_another_program(event: Event, clocks: Collection[Event], facts: Facts) -> bool:
    """Whether the clock in a name is asked in files alone that the program does not import: its own objects of that
    class are called otherwise. ``clocks``: all that ask for the time."""
    if event.path is None or not event.path.taint & CLOCK:
        return False
    asked = {one.place.path for one in clocks if _TELLS.search(one.name)}
    return bool(asked) and asked.isdisjoint(facts.imported_by(event.start.place.path))


def is_on_own_disk(event: Event, facts: Facts) -> bool:
    """Whether a program of JAX makes a folder below where it is started: on a pod each host has a disk of its own
    there, and what all write together goes to a bucket."""
    return facts.is_of_jax(event.start.place.path) and _RELATIVE.match(event.spelled) is not None


def divergent(taint: int, own: int = CLOCK) -> bool:
    """Whether a name is made of what each process finds for itself (``own``), and is not one for each."""
    return bool(taint & own) and not taint & (RANKS | IDENTITY)


def found_by_each(event: Event, sources: tuple[Event, ...]) -> bool:
    """Whether a path is made of what its function lists, but not one for each, or draws; others find mostly alike."""
    here = not event.looped and any(s.symbol == event.symbol and s.place < event.place for s in sources)
    return here and event.path is not None and divergent(event.path.taint, PROCESS)


def drawn_by_each(event: Event, program: Program) -> bool:
    """Whether a folder, by its name that of a run, is called after what each process draws for itself."""
    taint = event.path.taint if event.path is not None else 0
    if not taint & IDENTITY or taint & RANKS or not _RUN.search(event.target):
        return False
    drawn = (s for s in program.sources("identity") if "uuid" in s.name and s.symbol == event.symbol)
    return any(source.place < event.place for source in drawn)


def made_for_one(event: Event, program: Program) -> Event | None:
    """Return where rank 0 alone has made the folder of what all write, under a name that each has by its own clock."""
    if not event.active or not event.everyone or event.path is None or not event.path.taint & CLOCK:
        return None
    words = set(_WORD.findall(event.target))
    for made in program.effects("mkdir"):
        own = made.path is not None and divergent(made.path.taint) and made.may == {"first"}
        if own and made.symbol == event.symbol and made.place < event.place and _base(made) in words:
            return made
    return None


def _base(event: Event) -> str:
    """Return the variable that a path begins with: ``out`` of ``os.path.join(out, "logs")``."""
    return next((word for word in _WORD.findall(event.target) if word not in _JOINING), "")
