"""Whether processes that look for a file find it alike, for all that their program does to files."""

from __future__ import annotations

import re

from allranks.check.interpret.values import ALONE, CLOCK
from allranks.check.program import Divergence, Event, Program

_CHANGES = ("checkpoint", "file", "append", "delete", "mkdir", "folder", "download", "publish")
_LOOKED_FOR = re.compile(r"^(not )?[\w.]*\b(exists|is_?file|is_?dir)\(")


def is_settled(parting: Divergence, program: Program) -> bool:
    """Whether processes part by files alone that nobody changes here before all have met: they may have been there for
    long.

    Nothing is changed for who looks by what was made before a meeting that all come to before they look; by a folder
    that each makes for itself before it looks; by what those make who have found the file, or delete who have not.
    """
    if parting.under & (CLOCK | ALONE):
        return False
    here = [at for at in program.effects(*_CHANGES) if at.symbol == parting.symbol]
    before = [at for at in here if at.place.line <= parting.place.line]
    met = [at.place.line for at in program.collectives() if at.symbol == parting.symbol and at.everyone]
    return all(_is_over(at, parting, met) or _keeps(at, parting) for at in before)


def _is_over(change: Event, parting: Divergence, met: list[int]) -> bool:
    own = change.everyone and getattr(change.entry, "kind", "") in ("mkdir", "folder")
    return (own and change.place.line < parting.guard.line) or any(
        change.place.line < line < parting.guard.line for line in met
    )


def _keeps(change: Event, parting: Divergence) -> bool:
    """Whether a change leaves what was looked for as it was found, on the side of the condition where it stands."""
    asked = _LOOKED_FOR.match(parting.condition)
    sides = [held for span, held in (change.arms[-1] if change.arms else ()) if span[0] == parting.guard.line]
    if asked is None or not sides:
        return False
    is_there = sides[-1] == (asked[1] is None)
    return is_there != (getattr(change.entry, "kind", "") in ("delete", "publish"))
