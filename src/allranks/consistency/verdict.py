"""What ``verify`` found, in words. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from allranks.consistency.vote import CopyGroup
from allranks.deprecation import renamed_attribute
from allranks.errors import Mismatch

_LISTED = 4


@dataclass(frozen=True, slots=True)
class Covered:
    """A leaf, and who could notice if it were wrong: each of its ``cells`` is held by ``ranks`` ranks, or more.

    Where that is one rank, there is nothing to compare its part with (but for copies on its own devices).
    """

    path: str
    cells: int
    ranks: int


@dataclass(frozen=True, slots=True)
class Elements:
    """By how much a camp's copy differs from the first camp's: ``count`` elements (``least`` if more blocks differ).

    ``first`` are some, as (index, the first camp's, the other's), and ``largest`` is the largest absolute difference
    among those that are numbers, None if none is. A count of 0: what differed does so no more, or the digest was wrong.
    """

    group: CopyGroup
    count: int
    least: bool
    largest: float | None
    first: tuple[tuple[tuple[int, ...], str, str], ...]

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            return renamed_attribute(self, name, {"camp": "group"})

    def __str__(self) -> str:
        if not self.first:
            return f"{self.group}: no element, now that it is read again"
        index, one, other = self.first[0]
        many = f"{'at least ' if self.least else ''}{self.count} element{'s' if self.count > 1 else ''}"
        most = "" if self.largest is None or self.count == 1 else f", by at most {self.largest:g}"
        return f"{self.group}: {many}, first {list(index)}: {other} for {one}{most}"


@dataclass(frozen=True, slots=True)
class Difference:
    """A leaf, or a part of one, whose copies differ.

    ``what`` is its dtype and shape, ``part`` which part (``[0:128, 0:64]``; "" for the whole leaf). ``groups`` agree
    each within itself, the most votes first; ``decided`` says whether the first has the majority. ``values`` are what
    they hold, where it is a JSON value, and ``elements`` which elements differ, of the first few arrays.
    """

    path: str
    what: str
    part: str
    groups: tuple[CopyGroup, ...]
    decided: bool
    values: tuple[str, ...] = ()
    elements: tuple[Elements, ...] = ()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            return renamed_attribute(self, name, {"camps": "groups"})

    @property
    def ranks(self) -> tuple[int, ...]:
        """Those in the minority; all, in a tie."""
        odd = self.groups[1:] if self.decided else self.groups
        return tuple(sorted({rank for group in odd for rank in group.members}))

    def __str__(self) -> str:
        if self.values:
            leaf = f"leaf {self.path!r} is"
            most, *others = (f"{value} on {group}" for value, group in zip(self.values, self.groups, strict=True))
        else:
            leaf = f"leaf {self.path!r}{self.part}, {self.what}, on"
            most, *others = map(str, self.groups)
        told = f"{leaf} {' and '.join(others)} against {most}" + ("" if self.decided else ", a tie")
        return told + "".join(f" [{one}]" for one in self.elements)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What ``verify`` found; equal on all ranks but for ``state`` and ``seconds``.

    ``step`` is the one it was told, ``leaves`` how many it looked at and ``nbytes`` their bytes on this rank.
    ``differing`` is how many leaves (or parts) have copies that differ, ``differences`` the first of them in the
    tree's order. ``covered`` tells of each leaf how many ranks hold it. ``state`` is the state: after a repair, the
    repaired one. ``seconds`` is how long it took here.
    """

    step: int | None
    leaves: int
    nbytes: int
    differing: int
    differences: tuple[Difference, ...]
    covered: tuple[Covered, ...]
    state: Any
    seconds: float

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            return renamed_attribute(self, name, {"alone": "unreplicated"})

    @property
    def ok(self) -> bool:
        """Whether all copies of everything are equal."""
        return not self.differing

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks that dissent, of all differences that are told."""
        return tuple(sorted({rank for one in self.differences for rank in one.ranks}))

    @property
    def unreplicated(self) -> tuple[str, ...]:
        """The leaves of which some part is held by one rank only, so that no other can tell if it is wrong."""
        return tuple(one.path for one in self.covered if one.ranks == 1)

    def __str__(self) -> str:
        at = "" if self.step is None else f" at step {self.step}"
        alone = f"; {len(self.unreplicated)} of them held in part by one rank only" if self.unreplicated else ""
        if self.ok:
            return f"all copies are equal{at}: {self.leaves} leaves{alone}"
        return f"copies differ{at}: {_list_differences(self.differing, self.differences)}"


def _list_differences(differing: int, differences: Sequence[Difference]) -> str:
    more = f"; and {differing - _LISTED} more" if differing > _LISTED else ""
    return f"{'; '.join(map(str, differences[:_LISTED]))}{more}"


def mismatch(verdict: Verdict, *, who: str) -> Mismatch:
    """Return the error for a verdict that is not ok; ``who`` says which rank, doing what."""
    first = verdict.differences[0]
    if first.decided:
        remedy = (
            "Was it loaded, seeded or updated on some ranks only? If the same rank differs again and again, suspect "
            "its device. allranks.verify(state, on_mismatch='repair') gives it the majority's values."
        )
    else:
        remedy = "No copy has a majority, so the right copy is unknown. Of three copies or more, a majority can tell."
    return Mismatch(f"{who}: {verdict}.", ranks=verdict.ranks, step=verdict.step, leaf=first.path, remedy=remedy)
