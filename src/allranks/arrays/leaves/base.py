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
    """The rank that opens a tree, the world size, and the purpose.

    ``for_restore``: the tree is a template to fill.
    ``for_comparison``: the tree is compared between ranks.
    ``skip_unknown``: leaves of unknown types are skipped, not refused.
    ``saved``: the checkpoint that fills the template.
    ``kept_settings``: collects, by path, the settings that the checkpoint lacks and the template keeps.
    ``choose``: returns, by path, whose leaf is saved if it differs over the ranks on purpose: "main" or "rank".
    ``main``: collects the paths of leaves that a framework itself copies from rank 0.
    ``rank_local_paths``: collects the paths below which leaves are rank-local.
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
    """The fields of ``Declared`` except the path. Equal specs must be one object: they are compared by identity."""

    shape: tuple[int, ...]
    dtype: str
    split: Split
    kind: str = ""
    per_rank: bool = False


@dataclass(frozen=True, slots=True)
class LeafFill:
    """How to fill a leaf: the targets of its parts, and ``done``, which returns the leaf when they are filled."""

    targets: tuple[Target, ...]
    done: Callable[[], object]


class LeafRefused(Exception):
    """A leaf cannot be stored: ``what`` it is (a phrase that follows "is"), and what the user can do about it."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(what)
        self.what = what
        self.remedy = remedy


class Adapter(Protocol):
    """The functions of an adapter for the leaves of one framework."""

    def claims(self, kind: type) -> bool:
        """Return whether objects of this type are arrays of this framework."""

    def opener(self, node: object, context: OpenContext) -> Opener | None:
        """Return a function that opens nodes of this node's type; None if the framework does not know the type."""

    def spec(self, leaf: Any, context: OpenContext) -> Spec:
        """Return the spec of a leaf. Raises LeafRefused if it cannot be stored."""

    def cell_bytes(self, leaf: Any, cell: int, context: OpenContext) -> CellBytes:
        """Return the bytes of one cell of a leaf. This rank must hold the cell."""

    def copies(self, leaf: Any, context: OpenContext) -> tuple[Copy, ...]:
        """Return every copy of a cell of a leaf that a device of this process holds."""

    def address(self, leaf: Any) -> int:
        """Return a quick key, equal for leaves that may share one memory or object; 0 if no other leaf can share it."""

    def memory(self, leaf: Any) -> Hashable | None:
        """Return a key, equal for leaves that share one memory, which is filled once; None if no leaf shares it."""

    def leaf_fill(self, leaf: Any, context: OpenContext) -> LeafFill:
        """Return how to fill a leaf: its targets, and the function that completes it."""
