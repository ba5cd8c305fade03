"""Define what an adapter of leaves provides. Each framework has one file with these functions."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from allranks.arrays.base import CellBytes, CellCopy, FillTarget, RankSplit
from allranks.arrays.saved_tree import SavedTree
from allranks.arrays.walk import Opener


@dataclass(frozen=True, slots=True)
class OpenContext:
    """The rank that opens a tree, the world size, and the options of ``open_tree``.

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
class ArraySpec:
    """The fields of ``DeclaredArray`` except the path.

    Equal specs must be one object, because they are compared by identity.
    """

    shape: tuple[int, ...]
    dtype: str
    split: RankSplit
    kind: str = ""
    per_rank: bool = False


@dataclass(frozen=True, slots=True)
class LeafFill:
    """The memory to fill for a leaf (``targets``), and ``done``, a function that returns the leaf after they are
    filled.
    """

    targets: tuple[FillTarget, ...]
    done: Callable[[], object]


class LeafRefused(Exception):
    """Raised for a leaf that cannot be stored. ``what``: what it is, for the text "X is ..."."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(what)
        self.what = what
        self.remedy = remedy


class LeafAdapter(Protocol):
    """The functions by which one framework's arrays and nodes are read and filled."""

    def claims(self, kind: type) -> bool:
        """Return whether objects of this type are arrays of this framework."""

    def opener(self, node: object, context: OpenContext) -> Opener | None:
        """Return a function that opens nodes of this node's type; None if the framework does not know the type."""

    def spec(self, leaf: Any, context: OpenContext) -> ArraySpec:
        """Return the spec of a leaf. Raises LeafRefused if it cannot be stored."""

    def cell_bytes(self, leaf: Any, cell: int, context: OpenContext) -> CellBytes:
        """Return the bytes of one cell of a leaf. This rank must hold the cell."""

    def copies(self, leaf: Any, context: OpenContext) -> tuple[CellCopy, ...]:
        """Return every copy of a cell of a leaf that a device of this process holds."""

    def address(self, leaf: Any) -> int:
        """Return a number that is equal for leaves that may share memory; 0 if the leaf shares memory with no other.

        It is fast.
        """

    def memory(self, leaf: Any) -> Hashable | None:
        """Return a key, equal for leaves that share one memory, which is filled once; None if no leaf shares it."""

    def leaf_fill(self, leaf: Any, context: OpenContext) -> LeafFill:
        """Return the memory to fill for a leaf, and the function that completes the leaf."""
