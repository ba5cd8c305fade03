"""Define a box of elements inside an array. This module only computes."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Extent:
    """A box of elements of an array: it begins at index ``offset`` and has ``shape`` elements in each dimension."""

    offset: tuple[int, ...]
    shape: tuple[int, ...]

    @classmethod
    def of_shape(cls, shape: tuple[int, ...]) -> Extent:
        """Return the box of all elements of an array of this shape."""
        return cls((0,) * len(shape), shape)

    @property
    def size(self) -> int:
        """The number of elements in the box."""
        return math.prod(self.shape)

    @property
    def end(self) -> tuple[int, ...]:
        """The first index after the box, in each dimension."""
        return tuple(at + many for at, many in zip(self.offset, self.shape, strict=True))

    @property
    def slices(self) -> tuple[slice, ...]:
        """The box as a tuple of slices, to index the array."""
        return tuple(map(slice, self.offset, self.end))

    def overlap(self, other: Extent) -> Extent | None:
        """Return the box of elements that are in both boxes, or None if there are none."""
        offset = tuple(map(max, self.offset, other.offset))
        shape = tuple(stop - start for start, stop in zip(offset, map(min, self.end, other.end), strict=True))
        return Extent(offset, shape) if all(many > 0 for many in shape) else None

    def within(self, outer: Extent) -> Extent:
        """Return the same elements with indices relative to the start of ``outer``."""
        return Extent(tuple(a - b for a, b in zip(self.offset, outer.offset, strict=True)), self.shape)
