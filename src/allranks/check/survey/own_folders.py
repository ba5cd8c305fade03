"""Folders that each process names by its own clock: whose clock it is, and whose disk. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection

from allranks.check.interpret.values import CLOCK, IDENTITY, RANKS
from allranks.check.program import Event
from allranks.check.survey.facts import Facts

# What tells which time it is; the rest tells how long something took, or what is free, and names nothing.
_TELLS = re.compile(r"(^|\.)(time|time_ns|strftime|ctime|localtime|gmtime|now|utcnow|today|fromtimestamp)$")
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
