"""Conditions on ways through a program, in the words of the source: which ways exclude each other. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeAlias

from allranks.check.interpret.state import Arms, Span

# What holds on a way: a condition, by file and place, and whether it is met.
Held: TypeAlias = frozenset[tuple[str, Span, bool]]

_DENIED = re.compile(r"not (\w+(\.\w+)*|\([^()]*\))")
# What is asked of options is answered alike everywhere; other attributes, and calls, may change.
_OPTION = re.compile(r"(?i)(arg|args|cfg|config|conf|opt|opts|options|hparams|hps|flags|params|settings)\.\w")


class _Fact(NamedTuple):
    """What is so of an option: it has this value, or not; without a value: it is true, or not."""

    what: str
    value: str
    so: bool

    def denies(self, other: _Fact) -> bool:
        if self.what != other.what:
            return False
        return self.so != other.so if self.value == other.value else self.so and other.so and _literal(self, other)


class Conditions:
    """The conditions of a project. ``lines``: the lines of a file, by its path."""

    def __init__(self, lines: Mapping[str, list[str]]) -> None:
        self._lines = lines
        self._said: dict[tuple[str, Span, bool], frozenset[_Fact]] = {}

    def excludes(self, one: Held, other: Held) -> bool:
        """Whether no process comes both ways: what is asked on one of them is answered otherwise on the other."""
        if any((path, span, not side) in other for path, span, side in one):
            return True
        said = [fact for condition in one for fact in self._facts(condition)]
        meant = [fact for condition in other for fact in self._facts(condition)]
        return any(this.denies(that) for this in said for that in meant)

    def _facts(self, condition: tuple[str, Span, bool]) -> frozenset[_Fact]:
        """Return what is so where a condition is met, or not met, in the words of the source."""
        if condition not in self._said:
            path, span, side = condition
            self._said[condition] = frozenset(_facts(self.text(path, span), side))
        return self._said[condition]

    def text(self, path: str, span: Span) -> str:
        """Return the words of a condition, '' for one of several lines."""
        line, start, last, end = span
        lines = self._lines.get(path, [])
        return lines[line - 1][start:end].strip() if line == last and line <= len(lines) else ""


def held(path: str, arms: Arms) -> Held:
    """Return the conditions around a place in ``path``."""
    return frozenset((path, span, side) for span, side in arms)


def _literal(*facts: _Fact) -> bool:
    return all(fact.value and fact.value[0] in "'\"0123456789" for fact in facts)


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
