"""What an adapter of leaves provides: one file for each framework, all with the same functions."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from allranks.arrays.base import CellBytes, Copy, Split, Target
from allranks.arrays.saved_tree import SavedTree
from allranks.arrays.walk import Opener


@dataclass(frozen=True, slots=True)
class OpenContext:
    """Who opens a tree, and what for: ``for_restore`` a template that is to be filled, ``for_comparison`` it between
    ranks, ``skip_unknown`` over what can be no leaf.

    A template may be filled from what is ``saved``; ``kept_settings`` takes, by path, what that lacks and the template
    keeps. Of what differs over the ranks on purpose, ``choose`` returns by path whose is meant, "main" or "rank";
    ``main`` takes the paths of what a framework itself takes from rank 0, ``rank_local_paths`` those below which each
    rank has its own.
    """

    rank: int
    size: int
    for_restore: bool
    for_comparison: bool = False
    skip_unknown: bool = False
    saved: SavedTree | None = None
    kept_settings: dict[str, Any] = field(default_factory=dict)
    choose: Callable[[Sequence[str]], Mapping[str, str]] | None = None
    main: set[str] = field(default_factory=set)
    rank_local_paths: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, eq=False)
class Spec:
    """What ``Declared`` says but for the path. Of equal ones adapters return one object: they are equal by identity."""

    shape: tuple[int, ...]
    dtype: str
    split: Split
    kind: str = ""
    per_rank: bool = False


@dataclass(frozen=True, slots=True)
class LeafFill:
    """A leaf about to be filled: where its parts go, and what to call then for the leaf that holds them."""

    targets: tuple[Target, ...]
    done: Callable[[], object]


class LeafRefused(Exception):
    """A leaf cannot be stored: ``what`` it is (after "is"), and what to do about it."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(what)
        self.what = what
        self.remedy = remedy


class Adapter(Protocol):
    """The leaves of one framework."""

    def claims(self, kind: type) -> bool:
        """Return whether objects of this type are arrays of this framework."""

    def opener(self, node: object, context: OpenContext) -> Opener | None:
        """Return what takes apart nodes of this node's type, None if the framework has nothing to say about it."""

    def spec(self, leaf: Any, context: OpenContext) -> Spec:
        """Return what a leaf is. Raises LeafRefused."""

    def cell_bytes(self, leaf: Any, cell: int, context: OpenContext) -> CellBytes:
        """Return the bytes of a cell that this rank holds."""

    def copies(self, leaf: Any, context: OpenContext) -> tuple[Copy, ...]:
        """Return every copy of a cell that a device of this process holds."""

    def address(self, leaf: Any) -> int:
        """Return what is the same, quickly, for leaves that may be one memory or object; 0 if no other can be."""

    def memory(self, leaf: Any) -> Hashable | None:
        """Return what is the same for leaves that are one memory, which is filled once; None if there are none such."""

    def leaf_fill(self, leaf: Any, context: OpenContext) -> LeafFill:
        """Return how a leaf is filled."""
