"""What a leaf is, and which part of it a rank holds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol


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
class Piece:
    """A part of a leaf that this rank holds, as a digest of its place and bytes.

    Every part exists ``replicas`` times over all ranks, numbered by ``replica``: the pieces of one replica number,
    taken over all ranks, cover the leaf exactly once.
    """

    path: str
    replica: int
    replicas: int
    digest: int


class Gathering(Protocol):
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

    def pieces(self, tree: object, *, rank: int, size: int) -> tuple[Piece, ...]: ...
