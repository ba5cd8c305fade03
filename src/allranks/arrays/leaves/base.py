"""Define what an adapter of leaves provides. Each framework has one file with these functions."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from allranks.arrays.base import CellBytes, Copy, Split, Target
from allranks.arrays.saved_tree import SavedTree
from allranks.arrays.walk import Opener


@dataclass(frozen=True, slots=True)
class OpenContext:
    """The rank that opens a tree, and the purpose: ``for_restore`` for a template to fill, ``for_comparison`` between
    ranks, ``skip_unknown`` to ignore what can be no leaf.

    A template may be filled from ``saved``. ``kept_settings`` collects, by path, the settings that the checkpoint lacks
    and the template keeps. If values differ between ranks on purpose, ``choose`` returns by path whose count, "main" or
    "rank". ``main`` collects the paths of values that a framework itself takes from rank 0, and ``rank_local_paths``
    those below which each rank has its own.
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
    """The fields of ``Declared`` except the path. Adapters return one object for equal ones: they are compared by
    identity.
    """

    shape: tuple[int, ...]
    dtype: str
    split: Split
    kind: str = ""
    per_rank: bool = False


@dataclass(frozen=True, slots=True)
class LeafFill:
    """A leaf that is about to be filled: where its parts go, and a function that then returns the leaf."""

    targets: tuple[Target, ...]
    done: Callable[[], object]


class LeafRefused(Exception):
    """A leaf cannot be stored: ``what`` it is (follows "is"), and what to do about it."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(what)
        self.what = what
        self.remedy = remedy


class Adapter(Protocol):
    """The leaves of one framework."""

    def claims(self, kind: type) -> bool:
        """Return whether objects of this type are arrays of this framework."""

    def opener(self, node: object, context: OpenContext) -> Opener | None:
        """Return a function that opens nodes of this node's type, None if the framework does not know the type."""

    def spec(self, leaf: Any, context: OpenContext) -> Spec:
        """Return the spec of a leaf. Raises LeafRefused."""

    def cell_bytes(self, leaf: Any, cell: int, context: OpenContext) -> CellBytes:
        """Return the bytes of a cell that this rank holds."""

    def copies(self, leaf: Any, context: OpenContext) -> tuple[Copy, ...]:
        """Return every copy of a cell that a device of this process holds."""

    def address(self, leaf: Any) -> int:
        """Return a quick key that is equal for leaves that may be one memory or object; 0 if no other leaf can be."""

    def memory(self, leaf: Any) -> Hashable | None:
        """Return a key that is equal for leaves with one memory, which is filled once; None if there are none."""

    def leaf_fill(self, leaf: Any, context: OpenContext) -> LeafFill:
        """Return how to fill a leaf."""
