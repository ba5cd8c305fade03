"""Describe the result of ``verify``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from allranks.consistency.vote import CopyGroup
from allranks.deprecation import renamed_attribute
from allranks.errors import Mismatch

_LISTED = 4


@dataclass(frozen=True, slots=True)
class LeafCoverage:
    """How many ranks hold a leaf: it has ``cells`` cells, and at least ``ranks`` ranks hold each of them.

    If ``ranks`` is 1, some cell cannot be compared between ranks, only between the devices of its rank.
    """

    path: str
    cells: int
    ranks: int


@dataclass(frozen=True, slots=True)
class Elements:
    """How the copy of ``group`` differs from the copy of the first group.

    ``count``: the number of elements that differ; with ``least``, at least so many. A count of 0 means that the copies
    are equal now, or a digest was wrong.
    ``largest``: the largest absolute difference of two numbers; None if no difference is a number.
    ``first``: the first such elements, as (index, the first group's value, this group's value).
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

    ``what``: the dtype and shape of the leaf. ``part``: the part (``[0:128, 0:64]``); "" for the complete leaf.
    ``groups``: groups of equal copies; the group with the most votes is first. ``decided``: it has the majority.
    ``values``: for a JSON value, the value of each group.
    ``elements``: for the first few arrays, the elements that differ.
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
        """The ranks in the minority; in a tie, all ranks that hold the leaf."""
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
    """The result of ``verify``; equal on all ranks except ``nbytes``, ``state`` and ``seconds``.

    ``step``: the step that was passed to ``verify``.
    ``leaves``: the number of compared leaves. ``nbytes``: their bytes on this rank.
    ``differing``: the number of leaves (or parts) whose copies differ.
    ``differences``: the first of them, in the tree's order.
    ``covered``: for each leaf, the number of ranks that hold it.
    ``state``: the state that was passed; after a repair, the repaired state.
    ``seconds``: the time that the comparison took on this rank.
    """

    step: int | None
    leaves: int
    nbytes: int
    differing: int
    differences: tuple[Difference, ...]
    covered: tuple[LeafCoverage, ...]
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
        """The ranks that are in the minority in any listed difference."""
        return tuple(sorted({rank for one in self.differences for rank in one.ranks}))

    @property
    def unreplicated(self) -> tuple[str, ...]:
        """The paths of leaves of which only one rank holds some part, so that the part cannot be compared."""
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


def mismatch_error(verdict: Verdict, *, operation: str) -> Mismatch:
    """Return the Mismatch for a verdict that is not ok. ``operation`` names the rank and its operation."""
    first = verdict.differences[0]
    if first.decided:
        remedy = (
            "Was it loaded, seeded or updated on some ranks only? If the same rank differs repeatedly, check its "
            "device. allranks.verify(state, on_mismatch='repair') restores the majority's values."
        )
    else:
        remedy = "No copy has a majority, so the right one is unknown. A majority needs three copies or more."
    return Mismatch(f"{operation}: {verdict}.", ranks=verdict.ranks, step=verdict.step, leaf=first.path, remedy=remedy)
