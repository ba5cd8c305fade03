"""What an adapter of leaves provides: one file for each framework, all with the same functions."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from allranks.arrays.base import Copy, Held, Split, Target
from allranks.arrays.saved import Saved
from allranks.arrays.walk import Opener


@dataclass(frozen=True, slots=True)
class Here:
    """Who opens a tree, and what for: ``restoring`` a template that is to be filled, ``comparing`` it between ranks,
    ``passing`` over what can be no leaf.

    A template may be filled from what is ``saved``; ``kept`` takes, by path, what that lacks and the template keeps.
    Of what differs over the ranks on purpose, ``choose`` returns by path whose is meant, "main" or "rank"; ``main``
    takes the paths of what a framework itself takes from rank 0, ``dealt`` those below which each rank has its own.
    """

    rank: int
    size: int
    restoring: bool
    comparing: bool = False
    passing: bool = False
    saved: Saved | None = None
    kept: dict[str, Any] = field(default_factory=dict)
    choose: Callable[[Sequence[str]], Mapping[str, str]] | None = None
    main: set[str] = field(default_factory=set)
    dealt: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, eq=False)
class Spec:
    """What ``Declared`` says but for the path. Of equal ones adapters return one object: they are equal by identity."""

    shape: tuple[int, ...]
    dtype: str
    split: Split
    kind: str = ""
    per_rank: bool = False


@dataclass(frozen=True, slots=True)
class Filling:
    """A leaf about to be filled: where its parts go, and what to call then for the leaf that holds them."""

    targets: tuple[Target, ...]
    done: Callable[[], object]


class Refused(Exception):
    """A leaf cannot be stored: ``what`` it is (after "is"), and what to do about it."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(what)
        self.what = what
        self.remedy = remedy


class Adapter(Protocol):
    """The leaves of one framework."""

    def claims(self, kind: type) -> bool:
        """Return whether objects of this type are arrays of this framework."""

    def opener(self, node: object, here: Here) -> Opener | None:
        """Return what takes apart nodes of this node's type, None if the framework has nothing to say about it."""

    def spec(self, leaf: Any, here: Here) -> Spec:
        """Return what a leaf is. Raises Refused."""

    def held(self, leaf: Any, cell: int, here: Here) -> Held:
        """Return the bytes of a cell that this rank holds."""

    def copies(self, leaf: Any, here: Here) -> tuple[Copy, ...]:
        """Return every copy of a cell that a device of this process holds."""

    def address(self, leaf: Any) -> int:
        """Return what is the same, quickly, for leaves that may be one memory or object; 0 if no other can be."""

    def memory(self, leaf: Any) -> Hashable | None:
        """Return what is the same for leaves that are one memory, which is filled once; None if there are none such."""

    def filling(self, leaf: Any, here: Here) -> Filling:
        """Return how a leaf is filled."""
