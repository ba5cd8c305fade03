"""Fill the leaves of a template that need care: leaves that share memory, and objects of registered types.

If two leaves of a template share one memory, two leaves of a checkpoint fit them only if both hold the same bytes.
Objects of registered types are made before anything else is filled. So if one cannot be made, nothing has changed.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.array_utils import byte_bounds
from numpy.typing import NDArray

from allranks.arrays.base import FillTarget, OpenTree
from allranks.errors import DoesNotFit
from allranks.extent import Extent

# Bytes of each of two leaves that are compared together.
_PIECE = 8 << 20

Read = Callable[[Sequence[tuple[str, FillTarget]]], None]
_REMEDY = "Restore it with the code that saved it, or with a decode that accepts the saved tree."


def arrays_with_shared_memory(tree: OpenTree, present_arrays: Collection[int]) -> dict[int, int]:
    """Return each array of a template that shares its memory with another one, mapped to the number of that other
    array.

    The other array is the first one of ``present_arrays`` that has this memory.
    """
    first: dict[object, int] = {}
    found = {}
    for number in [
        *present_arrays,
        *(number for number in range(len(tree.declared_arrays)) if number not in present_arrays),
    ]:
        memory = tree.memory_key(number)
        if memory is not None and (other := first.setdefault(memory, number)) != number and other in present_arrays:
            found[number] = other
    return found


def find_conflicting_ties(
    tree: OpenTree,
    names: Mapping[int, str],
    tied_pairs: Mapping[int, int],
    read: Read,
    are_equal: Callable[[str, str], bool],
) -> dict[int, int]:
    """Return the pairs of arrays that share memory although their saved bytes differ in this rank's part.

    Changes no array.

    ``names``: the names of arrays in the checkpoint. ``read``: fills targets from the checkpoint; its errors are
    raised.
    ``are_equal``: returns whether two names are known to have equal bytes.
    """
    return {
        number: other
        for number, other in tied_pairs.items()
        if not are_equal(names[number], names[other])
        and not _hold_equal_bytes(tree.targets_of_array(number), names[number], names[other], read)
    }


class _TemplateMemory(NamedTuple):
    """Memory that is filled in place: a part of the template's array ``number``, from address ``begin`` to ``end``."""

    begin: int
    end: int
    number: int
    target: FillTarget


def find_conflicting_overlaps(tree: OpenTree, names: Mapping[int, str], read: Read) -> dict[int, int]:
    """Return the arrays of a template that overlap in memory, and whose saved values conflict, with the other array.

    Views of one memory overlap. Changes no array. ``names``: the names of arrays in the checkpoint. ``read``: fills
    targets from the checkpoint; its errors are raised.
    """
    found: dict[int, int] = {}
    for group in _overlapping_groups(tree, names):
        begin = group[0].begin
        memory = np.empty(max(part.end for part in group) - begin, np.uint8)
        views = [_view_of(memory, part, begin) for part in group]
        saved = [np.empty(view.shape, view.dtype) for view in views]
        read(
            [(names[part.number], FillTarget(part.target.extent, one)) for part, one in zip(group, saved, strict=True)]
        )
        for view, one in zip(views, saved, strict=True):
            view[...] = one
        odd = [part for part, view, one in zip(group, views, saved, strict=True) if view.tobytes() != one.tobytes()]
        found |= {part.number: next(one.number for one in group if one.number != part.number) for part in odd}
    return found


def _overlapping_groups(tree: OpenTree, names: Mapping[int, str]) -> Iterator[list[_TemplateMemory]]:
    """Yield groups of parts whose memories overlap. Parts with exactly the same memory do not count as overlapping."""
    parts = [
        _TemplateMemory(*_byte_range(target.buffer), number, target)
        for number in names
        for target in tree.targets_of_array(number)
        if target.live and target.buffer.size
    ]
    parts.sort(key=itemgetter(0, 1))
    group: list[_TemplateMemory] = []
    end = 0
    for part in parts:
        if part.begin >= end:
            yield from _distinct_parts(group)
            group = []
        group.append(part)
        end = max(end, part.end)
    yield from _distinct_parts(group)


def _distinct_parts(group: Sequence[_TemplateMemory]) -> Iterator[list[_TemplateMemory]]:
    """Yield one part for each distinct memory range of a group, if the group has several."""
    if len(group) > 1:
        once = list({(part.begin, part.end, part.target.buffer.strides): part for part in reversed(group)}.values())
        yield from [once[::-1]] if len(once) > 1 else ()


def _byte_range(buffer: NDArray[Any]) -> tuple[int, int]:
    if not buffer.flags.c_contiguous:
        return byte_bounds(buffer)
    begin = buffer.__array_interface__["data"][0]
    return begin, begin + buffer.nbytes


def _view_of(memory: NDArray[np.uint8], part: _TemplateMemory, begin: int) -> NDArray[Any]:
    """Return a view of ``memory`` with the layout of a part.

    ``begin``: the address, in the part's own memory, to which the first byte of ``memory`` corresponds.
    """
    buffer = part.target.buffer
    first = buffer.__array_interface__["data"][0] - begin
    return np.ndarray(buffer.shape, buffer.dtype, memory, first, buffer.strides)


def _hold_equal_bytes(targets: Sequence[FillTarget], one: str, other: str, read: Read) -> bool:
    for target in targets:
        for extent in _split_into_pieces(target.extent, target.buffer.dtype.itemsize):
            a, b = (np.empty(extent.shape, target.buffer.dtype) for _ in range(2))
            read([(one, FillTarget(extent, a)), (other, FillTarget(extent, b))])
            if a.tobytes() != b.tobytes():
                return False
    return True


def _split_into_pieces(extent: Extent, item: int) -> Iterator[Extent]:
    """Yield an extent in pieces of some rows, each of a limited number of bytes."""
    if not extent.shape:
        yield extent
        return
    at, (rows, *rest) = extent.offset, extent.shape
    many = max(_PIECE // max(item * math.prod(rest), 1), 1)
    for begin in range(0, rows, many):
        yield Extent((at[0] + begin, *at[1:]), (min(many, rows - begin), *rest))


class DecodedObjects:
    """The objects of registered types in a tree, made from a checkpoint. ``filled``: the arrays read for them.

    ``names``: the names of arrays in the checkpoint. ``twins``: maps an array to the other array with the same memory,
    which is filled instead. ``read``: fills targets. ``who``: names the caller in errors.

    Raises DoesNotFit, and the errors of ``read``. The template's arrays are then unchanged.
    """

    def __init__(
        self,
        tree: OpenTree,
        names: Mapping[int, str],
        *,
        twins: Mapping[int, int],
        read: Read,
        values: Mapping[str, Any],
        who: str,
    ) -> None:
        twin = {number: twins.get(number, number) for number in tree.encoded_arrays}
        filled = frozenset(twin.values()) & names.keys()
        for number in (number for number, other in twin.items() if other in filled):
            tree.targets_of_array(number)  # what has no memory yet gets that of its twin
        self.filled = frozenset(names[number] for number in filled)
        targets = [(names[number], target) for number in filled for target in tree.targets_of_array(number)]
        self._before = [(target.buffer, target.buffer.copy()) for _, target in targets if target.live]
        try:
            read(targets)
            tree.decode_objects(values)
        except BaseException as error:
            self.restore_previous_values()
            if isinstance(error, DoesNotFit):
                raise DoesNotFit(f"{who}: {error}. Nothing has changed.", differences=(), remedy=_REMEDY) from error
            raise

    def restore_previous_values(self) -> None:
        """Restore the previous values of the template's arrays that were filled."""
        for buffer, before in self._before:
            buffer[...] = before


@contextmanager
def pause_gc() -> Iterator[None]:
    """Pause the garbage collector in all threads, if it is on.

    Otherwise code that makes and keeps thousands of objects would cause many scans that free nothing.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
