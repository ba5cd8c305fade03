"""Sequences of meetings, as `trace` makes them: what they hold, and when two of them are the same."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, TypeAlias

Items: TypeAlias = tuple[Any, ...]
LONGEST = 300
MOST_CONDITIONS = 6
REMEMBERED = 50_000  # the same stretches come again and again: behind every branch that is followed on
_SETTING = re.compile(
    r"(not )?(self\.)?_?(args|opts?|cfg|conf|config|hparams|params|flags|FLAGS|options|settings)(\.\w+)+"
)
_BLIND = ("",)  # conditions that are not told by their text


def alike(sequences: Iterable[Items]) -> bool:
    """Return whether they are all the same, however their branches are written."""
    plain = {_plain(items) for items in set(sequences)}
    return len(plain) < 2 or len({settled(items) for items in plain}) == 1


@lru_cache(REMEMBERED)
def settled(items: Items, left: int = MOST_CONDITIONS) -> Items:
    """Return the sequence with branches on one condition as one branch, and without what both sides of one share.

    ``left``: so many conditions more may be followed beyond their branch; each doubles what stands behind it.
    """
    for at, item in enumerate(items):
        if not _is_branch(item):
            continue
        _, condition, *sides = item
        rest = items[at + 1 :]
        again = left > 0 and _asks(rest, condition)
        if again:
            sides, rest = [(*side, *rest) for side in sides], ()
        one, two = (resolved(side, condition, which == 0) for which, side in enumerate(sides))
        branch = _branch(condition, settled(one, left - again), settled(two, left - again))
        return (*items[:at], *branch, *settled(rest, left))
    return items


def _branch(condition: str, one: Items, two: Items) -> Items:
    """Return a branch, behind what both sides begin with and before what both end with."""
    if condition.startswith("not "):
        condition, one, two = condition.removeprefix("not "), two, one
    start = _same(one, two)
    before, one, two = one[:start], one[start:], two[start:]
    end = _same(one[::-1], two[::-1])
    after, one, two = one[len(one) - end :], one[: len(one) - end], two[: len(two) - end]
    return (*before, *((("if", condition, one, two),) if one or two else ()), *after)


def _same(one: Items, two: Items) -> int:
    """Return how many items two sequences begin with alike."""
    return next((at for at, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), min(len(one), len(two)))


@lru_cache(REMEMBERED)
def resolved(items: Items, condition: str, holds: bool) -> Items:
    """Return the sequence where ``condition`` is known to hold, or not to."""
    if condition in _BLIND:
        return items
    done: list[Any] = []
    for item in items:
        if item[0] == "loop" and is_setting(condition):
            done.append(("loop", *(resolved(part, condition, holds) for part in item[1:])))
        elif not _is_branch(item):
            done.append(item)
        elif named(item[1]) == named(condition):
            same = item[1] == condition
            done += resolved(item[2] if holds == same else item[3], condition, holds)
        else:
            done.append(("if", item[1], *(resolved(side, condition, holds) for side in item[2:])))
    return tuple(done)


def _asks(items: Items, condition: str) -> bool:
    """Whether a branch on ``condition`` is among them."""
    return condition not in _BLIND and any(
        named(item[1]) == named(condition) or _asks(item[2], condition) or _asks(item[3], condition)
        for item in items
        if _is_branch(item)
    )


def named(condition: str) -> str:
    """Return what a condition and its contrary have in common."""
    return condition.removeprefix("not ")


def is_setting(condition: str) -> bool:
    """Whether a condition is a setting of the program, which stays what it is."""
    return _SETTING.fullmatch(condition) is not None


def conditions(items: Items) -> frozenset[str]:
    """Return what decides who meets whom: of a condition and its contrary, one; an ellipsis for what is too long."""
    found = set[str]()
    for item in items:
        if not isinstance(item, str):
            found |= {"…"} if item[0] == "many" else {named(item[1])} if item[0] == "if" else set()
            for part in item[1:] if item[0] in ("if", "loop", "except") else ():
                found |= conditions(part) if isinstance(part, tuple) else set()
    return frozenset(found)


def _is_branch(item: Any) -> bool:
    return isinstance(item, tuple) and bool(item) and item[0] == "if"


def one_way(items: Items, ending: Items) -> bool:
    """Return whether one round of a loop meets in nothing, or meets as ``ending`` does and leaves the loop."""
    return all(way in ((), (("again",),)) or way == (*ending, ("jump", "break")) for way in _ways(items))


def _ways(items: Items) -> Iterator[Items]:
    """Yield the ways through branches that jump."""
    if items and _is_branch(items[-1]):
        for side in items[-1][2:]:
            yield from ((*items[:-1], *way) for way in _ways(side))
    else:
        yield items


def atoms(condition: str) -> frozenset[str]:
    """Return what a condition is made of, as text."""
    parts = condition.replace(" or ", " and ").replace("(", "").replace(")", "").split(" and ")
    return frozenset(part.strip().removeprefix("not ").strip() for part in parts)


def hangs_on(items: Items, flags: frozenset[str]) -> bool:
    """Return whether every meeting hangs on a condition that has one of ``flags``."""
    for item in items:
        if isinstance(item, str) or item[0] == "many":
            return False
        if item[0] == "if":
            if not (atoms(item[1]) & flags) and not (hangs_on(item[2], flags) and hangs_on(item[3], flags)):
                return False
        elif item[0] in ("loop", "except") and not all(hangs_on(part, flags) for part in item[1:]):
            return False
    return True


def _plain(items: Items) -> Items:
    """Leave out where a context lets its body run: what the body meets is compared where the context is used."""
    kept = []
    for item in items:
        if _is_branch(item):
            kept.append(("if", item[1], *map(_plain, item[2:])))
        elif item != ("yield",):
            kept.append(item)
    return tuple(kept)


def retried(items: Items) -> Items:
    """Return a round of an endless loop without what begins it again before anybody is met."""
    for at, item in enumerate(items):
        if isinstance(item, str):
            break
        sides = [side for side in item[2:] if side != (("jump", "continue"),)] if _is_branch(item) else []
        if len(sides) == 1:
            return (*items[:at], *retried(sides[0]), *items[at + 1 :])
    return items


def meets(items: Items) -> bool:
    """Return whether there is a meeting in a sequence."""
    return any(
        isinstance(item, str)
        or item[0] == "many"
        or (item[0] in ("if", "loop", "except") and any(meets(part) for part in item[1:] if isinstance(part, tuple)))
        for item in items
    )


def holds(items: Items, wanted: Items) -> bool:
    """Return whether ``wanted`` is among the items, at any depth."""
    return any(item == wanted or (isinstance(item, tuple) and holds(item, wanted)) for item in items)


def flat(items: Items) -> Iterator[str]:
    """Yield the ops of all branches."""
    for item in items:
        if isinstance(item, str):
            yield item
        elif item[0] == "if":
            yield from flat(item[2])
            yield from flat(item[3])
        elif item[0] in ("loop", "except"):
            for part in item[1:]:
                yield from flat(part)


def settles(items: Items, open_still: frozenset[str]) -> bool:
    """Whether what some meet only under a condition, others meet elsewhere: nothing hangs on it as a whole."""
    asked = conditions(items)
    return bool(asked) and open_still.isdisjoint((*asked, "…")) and not doubtful(asked)


def doubtful(asked: Iterable[str]) -> bool:
    """Whether one of these conditions may be answered otherwise when it is asked again, or is too long to be told."""
    return any("(" in one or "…" in one for one in asked)
