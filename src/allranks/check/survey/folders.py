"""Folders that are there for certain when a process looks for them: it has made them before, on the same way. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from allranks.check.interpret.state import Seen
from allranks.check.interpret.values import PROCESS
from allranks.check.program import Event
from allranks.check.survey.parted import symbol
from allranks.check.survey.ways import parting, root, when
from allranks.check.tables.effects import Effect

_OWNER = re.compile(r"@([^<>@]*)>")


def makes_folder(seen: Seen | Event) -> bool:
    """Whether a call makes a folder, be it there already or not."""
    return isinstance(seen.entry, Effect) and seen.entry.kind in ("mkdir", "folder")


def is_there(event: Event, made: Iterable[Event]) -> bool:
    """Whether a process that looks for a folder, to make it, finds it on every way that is known. ``made``: whatever
    makes a folder, by each way that leads there."""
    if not event.under & PROCESS or not event.spelled or event.also:
        return False
    others = [one for one in made if one.place != event.place]
    ways = [way for way in made if way.place == event.place and way.active] or [event]
    return all(any(_before(one, way) for one in others) for way in ways)


def _before(one: Event, event: Event) -> bool:
    """Whether the process, or rank 0 before a meeting, makes the folder of ``event`` wherever that comes to it."""
    if root(one) != root(event) or one.looped or not when(one) < when(event):
        return False
    meets = "first" in one.roles and one.passed < event.passed
    return (one.everyone or meets) and _holds(one, event) and _is_same(one, event)


def _holds(one: Event, event: Event) -> bool:
    """Whether no condition lets ``event`` happen without ``one``, but that the folder is there, and the guard on the
    rank."""
    at = parting(one, event)
    after = dict(event.arms[at])
    more = [arm for arm in one.arms[at] if after.get(arm[0]) != arm[1]]
    more += [arm for arms in one.arms[at + 1 :] for arm in arms]
    return len(more) <= bool(one.under & PROCESS) + (not one.everyone)


def _is_same(one: Event, event: Event) -> bool:
    """Whether both work on one path: what is open in it belongs to calls that both ways go through."""
    made, wanted = one.spelled.rstrip("/"), event.spelled.rstrip("/")
    inside = made.startswith(f"{wanted}/") and ".." not in made and one.name.endswith("makedirs")
    if "…" in wanted or not (made == wanted or inside):
        return False
    at = parting(one, event)
    return all(_symbol(owner) in event.symbols[: at + 1] for owner in _OWNER.findall(event.spelled))


def _symbol(owner: str) -> str:
    """Return a function that a path as it is spelled names, as it is told of."""
    path, _, key = owner.partition("::")
    return symbol(f"{path.replace(':', '/')}::{key}")
