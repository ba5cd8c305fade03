"""What a leaf is, and which part of it a rank holds."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from allranks.extent import Extent

if TYPE_CHECKING:  # the core is light without it
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Leaf:
    """One array of a tree. ``pieces`` is how many parts each dimension is cut into over the devices: all 1 where every
    device holds the whole; ``device_bytes`` is what one device holds of it.
    """

    path: str
    shape: tuple[int, ...]
    dtype: str
    pieces: tuple[int, ...]
    device_bytes: int

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The bytes of the whole array."""
        return self.device_bytes * math.prod(self.pieces)

    @property
    def sharded(self) -> bool:
        """Whether no device holds the whole array."""
        return math.prod(self.pieces) > 1


@dataclass(frozen=True, slots=True)
class Split:
    """How arrays are cut over ranks: a grid of cells, and who holds each.

    ``cuts`` is how many cells each dimension has; of n elements, cell i has those from ``i * ceil(n / cuts)`` on, at
    most ``ceil(n / cuts)`` (the last ones may be smaller, or empty). ``holders`` are the ranks that hold each cell, in
    ascending order; cells in row-major order. An array that every rank holds has one cell, held by all.
    """

    cuts: tuple[int, ...]
    holders: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Declared:
    """One array of a tree as all ranks together hold it; equal on every rank. No byte of it.

    ``dtype`` is NumPy's name (also ``bfloat16``, ``float8_e4m3fn``, ``int4``, ...). ``kind`` is "" for a plain array,
    or the dtype of JAX PRNG keys (``key<fry>``), whose shape and dtype are then those of the bits, or what only torch
    has a name for (``torch.uint3``), of bytes then. With ``per_rank``, the first dimension is that of the ranks:
    each has an array of its own.
    """

    path: str
    shape: tuple[int, ...]
    dtype: str
    split: Split
    kind: str = ""
    per_rank: bool = False


class CellBytes(NamedTuple):
    """The bytes of one cell in host memory: ``data`` is flat uint8 in row-major order.

    ``mutable`` says whether the program may change them once it goes on; if not, the array itself is kept alive, and
    safe from donation, as long as ``data`` is.
    """

    data: NDArray[np.uint8]
    mutable: bool


class Copy(NamedTuple):
    """One copy of a cell in this process, as a device holds it.

    ``part`` is the framework's own array on ``device``, ``framework`` who knows it (``numpy``, ``jax``, ``torch``),
    ``on_host`` whether it lies in the host's memory. ``fetch()`` returns its bytes there: flat, in row-major order.
    """

    cell: int
    device: str
    framework: str
    part: Any
    on_host: bool
    fetch: Callable[[], NDArray[np.uint8]]


@dataclass(frozen=True, slots=True)
class Target:
    """Where a part of an array goes: ``buffer`` has the extent's shape and the array's dtype, and any strides.

    It is the array's own memory if ``live``.
    """

    extent: Extent
    buffer: NDArray[Any]
    live: bool = False


class OpenTree(Protocol):
    """A tree taken apart: what ``arrays.detect.open_tree(tree, rank=..., size=...)`` returns on every rank."""

    @property
    def declared(self) -> tuple[Declared, ...]:
        """The arrays, in the tree's order."""

    @property
    def key(self) -> Hashable:
        """What ``declared`` says, quick to make and to compare: equal where that is equal (in this process only)."""

    @property
    def values(self) -> dict[str, bool | int | float | str | None]:
        """The leaves that are JSON values, by path."""

    def cell_bytes(self, array: int, cell: int) -> CellBytes:
        """Return a cell, which this rank holds, of ``declared[array]``."""

    @property
    def main_values(self) -> dict[str, bool | int | float | str | None]:
        """The JSON values of which rank 0's are meant, whatever other ranks have."""

    @property
    def rank_values(self) -> dict[str, bool | int | float | str | None]:
        """The JSON values of which each rank has its own."""

    @property
    def skipped(self) -> dict[str, str]:
        """What is neither, by path: what it is. Empty unless the tree was opened so that this may be."""

    @property
    def follows_checkpoint(self) -> bool:
        """Whether a part of a template takes the structure of what is saved: optimizers, schedules."""

    @property
    def rank_local_paths(self) -> tuple[str, ...]:
        """The paths of what each rank has for itself, and is dealt anew where another number of ranks restores."""

    @property
    def kept_settings(self) -> dict[str, Any]:
        """What a template keeps, by path, since the checkpoint has none of it: settings of optimizers and schedules."""

    def memory(self, array: int) -> Hashable | None:
        """Return what is the same for arrays of one memory (tied weights), and for no others; None if none can be."""

    @property
    def ties(self) -> dict[int, int]:
        """Which arrays are one memory with which earlier one, on every rank: tied weights."""

    def copies(self, array: int) -> tuple[Copy, ...]:
        """Return every copy of a cell of ``declared[array]`` that a device of this process holds: none of what is only
        described.
        """

    def targets(self, array: int) -> tuple[Target, ...]:
        """Return what this rank needs of ``declared[array]``: each part once, to be filled."""

    @property
    def encoded(self) -> tuple[int, ...]:
        """The arrays that objects of registered types are made of."""

    def decode(self, values: Mapping[str, bool | int | float | str | None]) -> None:
        """Make the objects of registered types, for ``rebuild``, once the targets of ``encoded`` are filled.

        Raises DoesNotFit where one cannot be made.
        """

    def rebuild(self, values: Mapping[str, bool | int | float | str | None]) -> object:
        """Return the tree with its targets' contents, once all are filled, and these values."""


class GatheringWorld(Protocol):
    """What this part needs of a world: to know who we are, and to see what every rank says."""

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    def all_gather(self, value: Any, *, name: str) -> Sequence[Any]: ...


class Backend(Protocol):
    """What ``arrays/jax.py`` and ``arrays/torch.py`` each provide as module functions."""

    def owns(self, tree: object) -> bool: ...

    def describe(self, tree: object) -> tuple[Leaf, ...]: ...
