"""Truth for four processes at once.

A truth is a text of four letters, one for each role: ``first`` (rank 0), ``node`` (the first process of another node),
``peer`` (another process, first of its sub-group) and ``other`` (neither). The letters: ``T`` true, ``F`` false, ``U``
unknown but alike on every process that asks, ``W`` unknown, and a rank has a say in it (``flag or rank == 0`` for the
others), ``P`` unknown, from something that only this process knows, ``D`` unknown, and different from rank to rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

ROLES = ("first", "node", "peer", "other")
# How people are told of them.
_IN_WORDS = {
    "first": "rank 0",
    "node": "the first rank of another node",
    "peer": "the first rank of another group",
    "other": "the other ranks",
}
EVERY = 0b1111
TRUE, FALSE, UNKNOWN, BY_PROCESS, BY_RANK = "TTTT", "FFFF", "UUUU", "PPPP", "DDDD"
# Which roles are first of what: rank 0 of all, local rank 0, rank 0 of a sub-group, on node 0.
FIRST = {"global": "TFFF", "local": "TTFF", "group": "TTTF", "node": "TFDD"}
_STRENGTH = "TFUWPD"
_NOT = str.maketrans("TF", "FT")


@cache
def negate(truth: str) -> str:
    return truth.translate(_NOT)


@cache
def stronger(one: str, other: str) -> str:
    """Return what is known of a letter that may be either of two."""
    if one == other:
        return one
    strongest = max(_STRENGTH.index(one), _STRENGTH.index(other))
    return _STRENGTH[max(strongest, 2)]


@cache
def both(one: str, other: str) -> str:
    """Return the truth of ``one and other``."""
    return "".join(map(_both, one, other))


@cache
def either(one: str, other: str) -> str:
    """Return the truth of ``one or other``: where rank decides one side and a flag the other, W: unless it is the flag
    that decides for rank 0, and rank for the others."""
    letters = [negate(_both(*negate(a + b))) for a, b in zip(one, other, strict=True)]
    ranked = (decides(one) or decides(other)) and letters[0] != "U"
    return "".join("W" if letter == "U" and ranked else letter for letter in letters)


def decides(truth: str) -> bool:
    """Return whether the rank has a say: roles differ, or processes of one role do."""
    return len(set(truth)) > 1 or "D" in truth or "W" in truth


def _both(one: str, other: str) -> str:
    if "F" in (one, other):
        return "F"
    if one == "T":
        return other
    return one if other == "T" else stronger(one, other)


@cache
def roles_where(truth: str, letters: str) -> int:
    """Return the roles (bit i for role i) whose letter is one of ``letters``."""
    return sum(1 << at for at, letter in enumerate(truth) if letter in letters)


def certain(truth: str, *, ranked: bool) -> str:
    """Return the letters of those who are certain to go on where ``truth`` does not hold: behind ``not first or not
    due`` all for whom the rank does not settle it."""
    return "TP" + "U" * (set(truth) == {"T", "U"}) if ranked else "TUP"


def named(mask: int) -> frozenset[str]:
    return frozenset(role for at, role in enumerate(ROLES) if mask >> at & 1)


def in_words(who: Sequence[str]) -> str:
    """Return ``rank 0``, ``the other ranks``, ... for roles; what is no role stands as it is."""
    if set(ROLES) <= set(who):
        return "every rank"
    if "other" in who and "first" in who:
        missing = [_IN_WORDS[role] for role in ROLES if role not in who]
        return "all ranks but " + " and ".join(missing)
    if {"node", "peer", "other"} <= set(who):
        return "the other ranks"
    return " and ".join(_IN_WORDS.get(one, one) for one in who)
