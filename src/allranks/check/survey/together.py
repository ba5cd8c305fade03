"""Ways that no process takes with those on which processes are joined: the other branch of the same question. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from allranks.check.interpret.below import deepest_first
from allranks.check.interpret.interest import deals
from allranks.check.interpret.state import Result
from allranks.check.summaries.project import Project
from allranks.check.survey.conditions import Conditions, Held, held
from allranks.check.survey.launches import Launches, Options

ALWAYS: Held = frozenset()
MOST = 32  # ways to the signs of one program; who has more is joined somehow

_GIVEN = re.compile(r"\w+\.(?P<name>\w+)( is not None| is True| == True| != (''|\"\"))?")


class Together:
    """Says of ways from one entry whether they exclude all those that lead to signs of several processes
    (`tables/evidence`: joining them, wrapping a model, dealing out samples).

    A program that trains under torchrun and converts a file otherwise shows several processes for training alone.
    ``conditions``: those in its files; ``launches``: how the programs are started, if that counts.
    """

    def __init__(self, project: Project, conditions: Conditions, launches: Launches | None) -> None:
        self._project = project
        self._conditions = conditions
        self._launches = launches
        self._known: dict[int, frozenset[Held]] = {}

    def apart(self, entry: Result, held: Held) -> bool:
        """Whether no process for which ``held`` is true comes from ``entry`` to a sign of several processes, or it is
        so in a mode of the program that scripts start as one process."""
        if self._launches is not None and held:
            options = self._launches.modes_alone.get(entry.path, Options())
            met = (self._conditions.text(path, span) for path, span, side in held if side)
            if options.alone and any(_is_mode(text, options) for text in met):
                return True
        signs = self._signs(entry)
        return bool(held and signs) and all(self._conditions.excludes(held, sign) for sign in signs)

    def _signs(self, start: Result) -> frozenset[Held]:
        """Return what holds on each way to a sign in ``start``; only `ALWAYS` where one is met in any case."""
        for result in deepest_first(start, self._known):
            self._known[id(result)] = _few(frozenset(self._ways(result)))
        return self._known[id(start)]

    def _ways(self, result: Result) -> Iterator[Held]:
        if "rank" in result.evidence and deals(self._project.function(result.reference)):
            yield ALWAYS
        for arms in result.signs:
            yield held(result.path, arms)
        for called in result.calls:
            if not (called.started or called.alone):
                around = held(result.path, called.arms)
                for sign in self._known.get(id(called.result), ()):
                    yield around | sign


def _is_mode(text: str, options: Options) -> bool:
    """Whether a condition holds only where an option is given that one process is given alone, or, beside such ones,
    one that nobody gives several."""
    ways = [[_GIVEN.fullmatch(part.strip("() ")) for part in re.split(" and ", way)] for way in re.split(" or ", text)]
    names = [{match["name"] for match in way if match is not None} for way in ways]
    alone = [not options.alone.isdisjoint(way) for way in names]
    return any(alone) and all(known or way - options.several for known, way in zip(alone, names, strict=True))


def _few(ways: frozenset[Held]) -> frozenset[Held]:
    return frozenset([ALWAYS]) if ALWAYS in ways or len(ways) > MOST else ways
