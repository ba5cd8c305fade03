"""Define the types of leaves: their shapes and shardings, and how a tree of leaves is read and filled."""

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
    """One array of a tree, and how it is divided over the devices.

    ``pieces``: into how many parts each dimension is cut; all 1 if every device holds the complete array.
    ``device_bytes``: the bytes of the array that one device holds.
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
        """The size of the complete array, in bytes."""
        return self.device_bytes * math.prod(self.pieces)

    @property
    def is_sharded(self) -> bool:
        """Whether no device holds the complete array."""
        return math.prod(self.pieces) > 1


@dataclass(frozen=True, slots=True)
class RankSplit:
    """How an array is divided over ranks: a grid of cells, and the ranks that hold each cell.

    ``cuts``: the number of cells along each dimension. Along a dimension of n elements, cell i begins at element
    ``i * ceil(n / cuts)`` and has at most ``ceil(n / cuts)`` elements; the last cells may be smaller, or empty.
    ``holders``: the ranks that hold each cell, in ascending order; cells are in row-major order.

    An array that every rank holds completely has one cell, held by all ranks.
    """

    cuts: tuple[int, ...]
    holders: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class DeclaredArray:
    """The description of one array of a tree, as all ranks together hold it. Equal on every rank; without data.

    ``dtype``: NumPy's name (also ``bfloat16``, ``float8_e4m3fn``, ``int4``, ...).
    ``kind``: "" for a plain array. For JAX PRNG keys it is their dtype (``key<fry>``); shape and dtype are then those
    of the key bits. For a dtype that only torch has (``torch.uint3``) it is that dtype; ``dtype`` is then that of the
    bytes.
    ``per_rank``: each rank has a different array; the first dimension is the rank.
    """

    path: str
    shape: tuple[int, ...]
    dtype: str
    split: RankSplit
    kind: str = ""
    per_rank: bool = False


class CellBytes(NamedTuple):
    """The bytes of one cell in host memory: ``data`` is flat uint8 in row-major order.

    ``mutable`` says whether the program may change the bytes when it continues. If not, ``data`` keeps the array's
    memory alive, and a donation of the array does not change ``data``.
    """

    data: NDArray[np.uint8]
    mutable: bool


class CellCopy(NamedTuple):
    """One copy of a cell in this process, as a device holds it.

    ``part``: the framework's array on ``device``.
    ``framework``: ``numpy``, ``jax`` or ``torch``.
    ``on_host``: whether ``part`` is in host memory.
    ``fetch()``: return the bytes of ``part`` in host memory, flat, in row-major order.
    """

    cell: int
    device: str
    framework: str
    part: Any
    on_host: bool
    fetch: Callable[[], NDArray[np.uint8]]


@dataclass(frozen=True, slots=True)
class FillTarget:
    """The memory for one part of an array that is to be filled.

    ``extent``: the box of elements. ``buffer``: has the extent's shape and the array's dtype, with any strides.
    ``live``: whether ``buffer`` is the memory of the program's array, not a new one.
    """

    extent: Extent
    buffer: NDArray[Any]
    live: bool = False


class OpenTree(Protocol):
    """A flattened tree: the result of ``arrays.detect.open_tree(tree, rank=..., size=...)`` on every rank."""

    @property
    def declared_arrays(self) -> tuple[DeclaredArray, ...]:
        """The arrays of the tree, in the tree's order."""

    @property
    def hash_key(self) -> Hashable:
        """A hashable value that is equal for trees with equal ``declared_arrays``. It is valid in this process only."""

    @property
    def values(self) -> dict[str, bool | int | float | str | None]:
        """The leaves that are JSON values, by path."""

    def cell_bytes(self, array: int, cell: int) -> CellBytes:
        """Return the bytes of one cell of ``declared_arrays[array]``. This rank must hold the cell."""

    @property
    def main_values(self) -> dict[str, bool | int | float | str | None]:
        """The JSON values, by path, that are saved from rank 0 even if other ranks have different values."""

    @property
    def rank_values(self) -> dict[str, bool | int | float | str | None]:
        """The JSON values, by path, that are rank-local: each rank saves its own."""

    @property
    def skipped_leaves(self) -> dict[str, str]:
        """The leaves that are neither arrays nor JSON values: a description of each, by path.

        Empty unless the tree was opened with ``skip_unknown``.
        """

    @property
    def follows_checkpoint(self) -> bool:
        """Whether a part of the template (an optimizer, a schedule) gets its structure from the checkpoint."""

    @property
    def rank_local_paths(self) -> tuple[str, ...]:
        """The paths below which leaves are rank-local. A restore on another number of ranks distributes them anew."""

    @property
    def kept_settings(self) -> dict[str, Any]:
        """The settings of optimizers and schedules, by path, that the checkpoint lacks: the template's values stay."""

    def memory_key(self, array: int) -> Hashable | None:
        """Return a key that is equal for arrays that share one memory (tied weights); None if no other array does."""

    @property
    def tied_arrays(self) -> dict[int, int]:
        """The tied weights: maps the number of each array that shares memory with an earlier array, on every rank, to
        that one.
        """

    def copies_of_array(self, array: int) -> tuple[CellCopy, ...]:
        """Return every copy of a cell of ``declared_arrays[array]`` on this process's devices; () if it has none."""

    def targets_of_array(self, array: int) -> tuple[FillTarget, ...]:
        """Return the parts of ``declared_arrays[array]`` that this rank holds, as memory to fill."""

    @property
    def encoded_arrays(self) -> tuple[int, ...]:
        """The numbers of the arrays that are encodings of objects of registered types."""

    def decode_objects(self, values: Mapping[str, bool | int | float | str | None]) -> None:
        """Make the objects of registered types from their arrays.

        Call it after ``encoded_arrays`` are filled, before ``rebuild_tree``.

        Raises DoesNotFit if an object cannot be made.
        """

    def rebuild_tree(self, values: Mapping[str, bool | int | float | str | None]) -> object:
        """Return the tree with its filled targets, all of which must be filled, and with these JSON values."""


class GatheringWorld(Protocol):
    """A world with what this package uses: the rank, the size, and ``all_gather``."""

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    def all_gather(self, value: Any, *, name: str) -> Sequence[Any]: ...


class ArrayBackend(Protocol):
    """The functions of the modules ``arrays/jax.py`` and ``arrays/torch.py``."""

    def owns(self, tree: object) -> bool: ...

    def describe(self, tree: object) -> tuple[Leaf, ...]: ...
