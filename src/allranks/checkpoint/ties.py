"""Leaves that are one memory in a template, and two in a checkpoint: they fit if both hold the same bytes."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np

from allranks.arrays.base import OpenTree, Target
from allranks.extent import Extent

# Bytes of each of two leaves that are compared together.
_PIECE = 8 << 20

Read = Callable[[Sequence[tuple[str, Target]]], None]


def shared(tree: OpenTree, there: Collection[int]) -> dict[int, int]:
    """Return which arrays of a template are one memory with which other one: the first that is ``there``."""
    first: dict[object, int] = {}
    found = {}
    for number in [*there, *(number for number in range(len(tree.declared)) if number not in there)]:
        memory = tree.memory(number)
        if memory is not None and (other := first.setdefault(memory, number)) != number and other in there:
            found[number] = other
    return found


def differing(
    tree: OpenTree, names: Mapping[int, str], pairs: Mapping[int, int], read: Read, same: Callable[[str, str], bool]
) -> dict[int, int]:
    """Return the pairs of arrays whose saved bytes differ in what this rank holds. Touches no array.

    ``names`` are those in the checkpoint, ``read`` fills targets from it, ``same`` says of two names whether they are
    known to hold the same. Raises what ``read`` raises.
    """
    return {
        number: other
        for number, other in pairs.items()
        if not same(names[number], names[other]) and not _alike(tree.targets(number), names[number], names[other], read)
    }


def _alike(targets: Sequence[Target], one: str, other: str, read: Read) -> bool:
    for target in targets:
        for extent in _pieces(target.extent, target.buffer.dtype.itemsize):
            a, b = (np.empty(extent.shape, target.buffer.dtype) for _ in range(2))
            read([(one, Target(extent, a)), (other, Target(extent, b))])
            if a.tobytes() != b.tobytes():
                return False
    return True


def _pieces(extent: Extent, item: int) -> Iterator[Extent]:
    """Yield an extent in pieces of some rows."""
    if not extent.shape:
        yield extent
        return
    at, (rows, *rest) = extent.offset, extent.shape
    many = max(_PIECE // max(item * math.prod(rest), 1), 1)
    for begin in range(0, rows, many):
        yield Extent((at[0] + begin, *at[1:]), (min(many, rows - begin), *rest))
