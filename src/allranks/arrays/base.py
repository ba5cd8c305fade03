"""Define what a leaf is, how it is split over ranks, and what a tree of leaves provides."""

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
    """One array of a tree; ``pieces`` is how many parts each dimension is cut into over the devices.

    They are all 1 if every device holds the complete array. ``device_bytes`` is what one device holds of it.
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
        """The bytes of the complete array."""
        return self.device_bytes * math.prod(self.pieces)

    @property
    def sharded(self) -> bool:
        """Whether no device holds the complete array."""
        return math.prod(self.pieces) > 1


@dataclass(frozen=True, slots=True)
class Split:
    """How arrays are split over ranks: a grid of cells, and the ranks that hold each.

    ``cuts`` is the number of cells of each dimension. Of n elements, cell i has those from ``i * ceil(n / cuts)`` on,
    at most ``ceil(n / cuts)`` (the last cells may be smaller, or empty). ``holders`` are the ranks that hold each cell,
    in ascending order; cells are in row-major order. An array that every rank holds has one cell, held by all.
    """

    cuts: tuple[int, ...]
    holders: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Declared:
    """One array of a tree as all ranks together hold it; equal on every rank. It contains no data.

    ``dtype`` is NumPy's name (also ``bfloat16``, ``float8_e4m3fn``, ``int4``, ...). ``kind`` is "" for a plain array.
    It is the dtype of JAX PRNG keys (``key<fry>``) if shape and dtype are those of their bits, or a dtype that only
    torch names (``torch.uint3``) if they are those of its bytes. With ``per_rank``, the first dimension is that of the
    ranks: each rank has an array of its own.
    """

    path: str
    shape: tuple[int, ...]
    dtype: str
    split: Split
    kind: str = ""
    per_rank: bool = False


class CellBytes(NamedTuple):
    """The bytes of one cell in host memory: ``data`` is flat uint8 in row-major order.

    ``mutable`` says whether the program may change them when it continues. If not, ``data`` keeps the array alive, and
    safe from donation.
    """

    data: NDArray[np.uint8]
    mutable: bool


class Copy(NamedTuple):
    """One copy of a cell in this process, as a device holds it.

    ``part`` is the framework's array on ``device``; ``framework`` is ``numpy``, ``jax`` or ``torch``; ``on_host``: it
    is in host memory. ``fetch()`` returns its bytes in host memory: flat, in row-major order.
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

    If ``live``, it is the array's own memory.
    """

    extent: Extent
    buffer: NDArray[Any]
    live: bool = False


class OpenTree(Protocol):
    """A flattened tree: the result of ``arrays.detect.open_tree(tree, rank=..., size=...)`` on every rank."""

    @property
    def declared(self) -> tuple[Declared, ...]:
        """The arrays, in the tree's order."""

    @property
    def key(self) -> Hashable:
        """A key for ``declared``, quick to make and to compare: equal if ``declared`` is equal (in this process
        only).
        """

    @property
    def values(self) -> dict[str, bool | int | float | str | None]:
        """The leaves that are JSON values, by path."""

    def cell_bytes(self, array: int, cell: int) -> CellBytes:
        """Return a cell of ``declared[array]``, which this rank must hold."""

    @property
    def main_values(self) -> dict[str, bool | int | float | str | None]:
        """The JSON values of which rank 0's count, whatever other ranks have."""

    @property
    def rank_values(self) -> dict[str, bool | int | float | str | None]:
        """The JSON values that each rank has for itself."""

    @property
    def skipped(self) -> dict[str, str]:
        """The leaves that are neither arrays nor JSON values, with what they are. Empty unless the tree was opened to
        skip them.
        """

    @property
    def follows_checkpoint(self) -> bool:
        """Whether a part of a template takes the structure of the checkpoint: optimizers, schedules."""

    @property
    def rank_local_paths(self) -> tuple[str, ...]:
        """The paths of what each rank has for itself; another number of ranks gets it distributed anew."""

    @property
    def kept_settings(self) -> dict[str, Any]:
        """The settings of optimizers and schedules that a template keeps, by path, because the checkpoint has none."""

    def memory(self, array: int) -> Hashable | None:
        """Return a key that is equal for arrays with one memory (tied weights), and for no others; None if there are
        none.
        """

    @property
    def ties(self) -> dict[int, int]:
        """The arrays that are one memory with an earlier array, on every rank: tied weights."""

    def copies(self, array: int) -> tuple[Copy, ...]:
        """Return every copy of a cell of ``declared[array]`` on a device of this process; () if it is only
        described.
        """

    def targets(self, array: int) -> tuple[Target, ...]:
        """Return the parts of ``declared[array]`` that this rank needs, each once, to be filled."""

    @property
    def encoded(self) -> tuple[int, ...]:
        """The arrays of which objects of registered types are made."""

    def decode(self, values: Mapping[str, bool | int | float | str | None]) -> None:
        """Make the objects of registered types, for ``rebuild``, once the targets of ``encoded`` are filled.

        Raises DoesNotFit if one cannot be made.
        """

    def rebuild(self, values: Mapping[str, bool | int | float | str | None]) -> object:
        """Return the tree with its targets' contents, once all are filled, and these values."""


class GatheringWorld(Protocol):
    """The part of a world that this package needs: the rank, the size, and ``all_gather``."""

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    def all_gather(self, value: Any, *, name: str) -> Sequence[Any]: ...


class Backend(Protocol):
    """The functions that ``arrays/jax.py`` and ``arrays/torch.py`` each provide."""

    def owns(self, tree: object) -> bool: ...

    def describe(self, tree: object) -> tuple[Leaf, ...]: ...
