"""Ways that no process takes with those on which processes are joined: the other branch of the same question. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeAlias

from allranks.check.interpret.below import deepest_first
from allranks.check.interpret.interest import deals
from allranks.check.interpret.state import Arms, Result, Span
from allranks.check.summaries.project import Project
from allranks.check.survey.launches import Launches

# What holds on a way: a condition, by file and place, and whether it is met.
Held: TypeAlias = frozenset[tuple[str, Span, bool]]
ALWAYS: Held = frozenset()
MOST = 32  # ways to the signs of one program; who has more is joined somehow

_DENIED = re.compile(r"not (\w+(\.\w+)*|\([^()]*\))")
# What is asked of options is answered alike everywhere; other attributes, and calls, may change.
_OPTION = re.compile(r"(?i)(arg|args|cfg|config|conf|opt|opts|options|hparams|hps|flags|params|settings)\.\w")

_GIVEN = re.compile(r"\w+\.(?P<name>\w+)( is not None| is True| == True| != (''|\"\"))?")


class _Fact(NamedTuple):
    """What is so of an option: it has this value, or not; without a value: it is true, or not."""

    what: str
    value: str
    so: bool

    def denies(self, other: _Fact) -> bool:
        if self.what != other.what:
            return False
        return self.so != other.so if self.value == other.value else self.so and other.so and _literal(self, other)


class Together:
    """Says of ways from one entry whether they exclude all those that lead to signs of several processes
    (`tables/evidence`: joining them, wrapping a model, dealing out samples).

    A program that trains under torchrun and converts a file otherwise shows several processes for training alone.
    ``lines``: the lines of a file, by its path; ``launches``: how the programs are started, if that counts.
    """

    def __init__(self, project: Project, lines: Mapping[str, list[str]], launches: Launches | None) -> None:
        self._project = project
        self._lines = lines
        self._launches = launches
        self._known: dict[int, frozenset[Held]] = {}
        self._said: dict[tuple[str, Span, bool], frozenset[_Fact]] = {}

    def apart(self, entry: Result, held: Held) -> bool:
        """Whether no process for which ``held`` is true comes from ``entry`` to a sign of several processes, or it is
        so in a mode of the program that scripts start as one process."""
        if self._launches is not None and held:
            options = self._launches.modes_alone.get(entry.path, frozenset())
            if options and any(side and _is_mode(self._text(path, span), options) for path, span, side in held):
                return True
        signs = self._signs(entry)
        return bool(held and signs) and all(self._excludes(held, sign) for sign in signs)

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

    def _excludes(self, one: Held, other: Held) -> bool:
        if any((path, span, not side) in other for path, span, side in one):
            return True
        said = [fact for condition in one for fact in self._facts(condition)]
        meant = [fact for condition in other for fact in self._facts(condition)]
        return any(this.denies(that) for this in said for that in meant)

    def _facts(self, condition: tuple[str, Span, bool]) -> frozenset[_Fact]:
        """Return what is so where a condition is met, or not met, in the words of the source."""
        if condition not in self._said:
            path, span, side = condition
            self._said[condition] = frozenset(_facts(self._text(path, span), side))
        return self._said[condition]

    def _text(self, path: str, span: Span) -> str:
        """Return the words of a condition, '' for one of several lines."""
        line, start, last, end = span
        lines = self._lines.get(path, [])
        return lines[line - 1][start:end].strip() if line == last and line <= len(lines) else ""


def _is_mode(text: str, options: frozenset[str]) -> bool:
    """Whether a condition holds only where one of these options is given."""
    ways = (re.split(" and ", way) for way in re.split(" or ", text.strip("() ")))
    return all(any((m := _GIVEN.fullmatch(part.strip())) and m["name"] in options for part in way) for way in ways)


def _literal(*facts: _Fact) -> bool:
    return all(fact.value and fact.value[0] in "'\"0123456789" for fact in facts)


def held(path: str, arms: Arms) -> Held:
    """Return the conditions around a place in ``path``."""
    return frozenset((path, span, side) for span, side in arms)


def _few(ways: frozenset[Held]) -> frozenset[Held]:
    return frozenset([ALWAYS]) if ALWAYS in ways or len(ways) > MOST else ways


def _facts(text: str, side: bool) -> Iterator[_Fact]:
    if _DENIED.fullmatch(text):
        text, side = text[4:], not side
    text = text.strip("() ")
    parts = re.split(" and | or ", text)
    if len(parts) == 1 and " != " in text:
        text, side = text.replace(" != ", " == "), not side
    if _OPTION.search(text) and "(" not in text:
        what, _, value = text.partition(" == ") if len(parts) == 1 else (text, "", "")
        yield _Fact(what, value, side)
    if len(parts) > 1 and (" or " if side else " and ") not in text:
        for part in parts:
            yield from _facts(part, side)
