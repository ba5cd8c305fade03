"""Describe the result of ``verify``. Pure."""

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
    """A leaf with ``cells`` cells, each held by at least ``ranks`` ranks.

    If that is one rank, its part cannot be compared (except for copies on its own devices).
    """

    path: str
    cells: int
    ranks: int


@dataclass(frozen=True, slots=True)
class Elements:
    """The differences of a group's copy from the first group's: ``count`` elements (``least``: at least so many).

    ``first`` are some of them, as (index, the first group's value, this group's value). ``largest`` is the largest
    absolute difference among those that are numbers, None if none is. A count of 0: the copies are equal now, or a
    digest was wrong.
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
            return f"{self.group}: no element differs any more"
        index, one, other = self.first[0]
        many = f"{'at least ' if self.least else ''}{self.count} element{'s' if self.count > 1 else ''}"
        most = "" if self.largest is None or self.count == 1 else f", by at most {self.largest:g}"
        return f"{self.group}: {many}, first {list(index)}: {other} for {one}{most}"


@dataclass(frozen=True, slots=True)
class Difference:
    """A leaf, or a part of one, whose copies differ.

    ``what`` is its dtype and shape, ``part`` the part (``[0:128, 0:64]``; "" for the complete leaf). The copies of a
    group in ``groups`` agree; the group with the most votes is first, and ``decided`` says that it has the majority.
    ``values`` are the groups' values if it is a JSON value; ``elements`` are the elements that differ, for the first
    few arrays.
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
        """The ranks in the minority; in a tie, all."""
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
    """The result of ``verify``; equal on all ranks except ``state`` and ``seconds``.

    ``step`` is the given one; ``leaves`` is the number of compared leaves, ``nbytes`` their bytes on this rank.
    ``differing`` is the number of leaves (or parts) whose copies differ, ``differences`` the first of them in the
    tree's order. ``covered`` has for each leaf the number of ranks that hold it. ``state`` is the state, after a repair
    the repaired one. ``seconds`` is the time that it took here.
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
        """Whether all copies are equal."""
        return not self.differing

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks in the minority, in all listed differences."""
        return tuple(sorted({rank for one in self.differences for rank in one.ranks}))

    @property
    def unreplicated(self) -> tuple[str, ...]:
        """The leaves of which a part is held by only one rank, so that it cannot be compared."""
        return tuple(one.path for one in self.covered if one.ranks == 1)

    def __str__(self) -> str:
        at = "" if self.step is None else f" at step {self.step}"
        alone = (
            f"; {len(self.unreplicated)} of them not compared in part, because only one rank holds that part"
            if self.unreplicated
            else ""
        )
        if self.ok:
            return f"all copies are equal{at}: {self.leaves} leaves{alone}"
        return f"copies differ{at}: {_list_differences(self.differing, self.differences)}"


def _list_differences(differing: int, differences: Sequence[Difference]) -> str:
    more = f"; and {differing - _LISTED} more" if differing > _LISTED else ""
    return f"{'; '.join(map(str, differences[:_LISTED]))}{more}"


def mismatch(verdict: Verdict, *, who: str) -> Mismatch:
    """Return the error for a verdict that is not ok; ``who`` is the rank and what it does."""
    first = verdict.differences[0]
    if first.decided:
        remedy = (
            "Was it loaded, seeded or updated on some ranks only? If the same rank differs repeatedly, check its "
            "device. allranks.verify(state, on_mismatch='repair') restores the majority's values."
        )
    else:
        remedy = "No copy has a majority, so the right one is unknown. A majority needs three copies or more."
    return Mismatch(f"{who}: {verdict}.", ranks=verdict.ranks, step=verdict.step, leaf=first.path, remedy=remedy)
