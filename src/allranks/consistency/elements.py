"""Find out which elements of a leaf differ, and by how much. Blocks of bytes that differ are sent to rank 0."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allranks.arrays.base import DeclaredArray
from allranks.arrays.grid import cell_extent
from allranks.arrays.leaves.numpy import DTYPES
from allranks.consistency.differences import FoundDifferences
from allranks.consistency.digests import Copies
from allranks.consistency.plan import VALUE, ComparedEntry
from allranks.consistency.verdict import Difference, Elements
from allranks.consistency.vote import CopyGroup
from allranks.digest import hasher_by_name
from allranks.world.base import World

Bytes = NDArray[np.uint8]

# The most leaves, groups of a leaf, and blocks of a pair of groups that are compared; the most elements listed.
_LEAVES, _GROUPS, _BLOCKS, _LISTED = 4, 4, 16, 8
# The least bytes of a block; larger blocks are used if there would be more than _MANY.
_LEAST, _MANY = 4096, 8192


@dataclass(frozen=True, slots=True)
class _ExaminedDifference:
    """A difference whose elements are to be compared: the entry, and its groups of equal copies.

    The first is the reference.
    """

    entry: ComparedEntry
    groups: tuple[CopyGroup, ...]


def compare_elements(
    world: World, name: str, declared_arrays: Sequence[DeclaredArray], copies: Copies, differences: FoundDifferences
) -> list[Difference]:
    """Return the differences, the first few with the elements that differ. **Every rank must call.** Two exchanges."""
    arrays = [(entry, one) for entry, one in differences.first if entry.array != VALUE][:_LEAVES]
    cases = [_ExaminedDifference(entry, one.groups[:_GROUPS]) for entry, one in arrays]
    mine = {number: part for number, part in enumerate(_speaking_devices(cases)) if part[1] == world.rank}
    bytes_of = {
        str(number): bytes_of_copy(copies, cases[case].entry, device) for number, (case, _, device) in mine.items()
    }
    blocks = {number: _block_digests(data) for number, data in bytes_of.items()}
    chosen = world.exchange("verify blocks", name, blocks, decide=partial(_blocks_to_send, cases))
    wanted = {number: _blocks_of(data, chosen[number][1]) for number, data in bytes_of.items()}
    told = world.exchange(
        "verify elements", name, wanted, decide=partial(_compare_groups, cases, declared_arrays, chosen)
    )
    elements = {
        (case.entry.array, case.entry.cell): tuple(_elements_from_json(case.groups[1:], of))
        for case, of in zip(cases, told, strict=True)
    }
    return [replace(one, elements=elements.get((entry.array, entry.cell), ())) for entry, one in differences.first]


def bytes_of_copy(copies: Copies, entry: ComparedEntry, device: str) -> Bytes:
    """Return the bytes of this rank's copy of an entry, on the named device ("" for any device)."""
    return next(c.fetch() for c in copies[entry.array] if c.cell == entry.cell and device in ("", c.device))


def sender_of_group(group: CopyGroup) -> tuple[int, str]:
    """Return (rank, device) of the copy that represents a group of equal copies.

    The device is "" if any device has it.
    """
    return (group.ranks[0], "") if group.ranks else group.devices[0]


def _speaking_devices(cases: Sequence[_ExaminedDifference]) -> Iterator[tuple[int, int, str]]:
    """Yield (case number, rank, device) of the speaker of every group of every case, in order."""
    for number, case in enumerate(cases):
        for group in case.groups:
            yield number, *sender_of_group(group)


def _block_size(nbytes: int) -> int:
    return max(_LEAST, -(-nbytes // (_MANY * _LEAST)) * _LEAST)


def _block_digests(data: Bytes) -> bytes:
    of, block = hasher_by_name("xxh3-128"), _block_size(data.size)
    return b"".join(bytes.fromhex(of(data[at : at + block].data))[:8] for at in range(0, data.size, block))


def _blocks_of(data: Bytes, blocks: Sequence[int]) -> list[bytes]:
    block = _block_size(data.size)
    return [data[at * block : (at + 1) * block].tobytes() for at in blocks]


def _blocks_to_send(cases: Sequence[_ExaminedDifference], said: Sequence[Mapping[str, bytes]]) -> dict[str, list[Any]]:
    """Return, for each speaker, how many of its blocks differ from the first group's, and which blocks it must send.

    Speakers are given by their position in the result of ``_speaking_devices``.
    """
    chosen: dict[str, list[Any]] = {}
    number = 0
    for case in cases:
        first, union = number, set[int]()
        blobs = [said[sender_of_group(group)[0]][str(number + at)] for at, group in enumerate(case.groups)]
        for blob in blobs[1:]:
            number += 1
            odd = [at // 8 for at in range(0, len(blob), 8) if blob[at : at + 8] != blobs[0][at : at + 8]]
            chosen[str(number)] = [len(odd), odd[:_BLOCKS]]
            union.update(odd[:_BLOCKS])
        chosen[str(first)] = [0, sorted(union)]
        number += 1
    return chosen


def _compare_groups(
    cases: Sequence[_ExaminedDifference],
    declared: Sequence[DeclaredArray],
    chosen: Mapping[str, Any],
    said: Sequence[Mapping[str, Sequence[bytes]]],
) -> list[list[Any]]:
    """Return, for each case, how each group after the first differs from the first, as JSON."""
    result, number = [], 0
    for case in cases:
        one = declared[case.entry.array]
        first = dict(zip(chosen[str(number)][1], said[sender_of_group(case.groups[0])[0]][str(number)], strict=True))
        told = []
        for group in case.groups[1:]:
            number += 1
            many, blocks = chosen[str(number)]
            pairs = zip(blocks, said[sender_of_group(group)[0]][str(number)], strict=True)
            compared = [(at, first[at], its) for at, its in pairs]
            told.append(_blocks_as_json(one, case.entry.cell, compared, least=many > len(blocks)))
        result.append(told)
        number += 1
    return result


def _blocks_as_json(
    one: DeclaredArray, number: int, blocks: Sequence[tuple[int, bytes, bytes]], *, least: bool
) -> list[Any]:
    if not blocks:
        return [0, False, None, []]
    dtype, extent = DTYPES[one.dtype], cell_extent(number, one.shape, one.split.cuts)
    size = _block_size(extent.size * dtype.itemsize)
    places, pairs = [], []
    for at, first, other in blocks:
        a, b = (np.frombuffer(data, np.uint8).reshape(-1, dtype.itemsize) for data in (first, other))
        odd = np.flatnonzero((a != b).any(axis=1))
        places.append(at * size // dtype.itemsize + odd)
        pairs.append((a[odd], b[odd]))
    place = np.concatenate(places)
    a, b = (np.concatenate([pair[side] for pair in pairs]) for side in (0, 1))
    within = np.stack(np.unravel_index(place[:_LISTED], extent.shape or (1,)), axis=-1)[:, : len(extent.shape)]
    indices = (within + np.array(extent.offset, np.int64)).tolist()
    some = [[index, *_value_texts(x, y, dtype)] for index, x, y in zip(indices, a, b, strict=False)]
    return [len(place), least, _largest_difference(a, b, dtype), some]


def _value_texts(a: Bytes, b: Bytes, dtype: np.dtype[Any]) -> tuple[str, str]:
    one, other = str(a.view(dtype)[0]), str(b.view(dtype)[0])
    if one != other:
        return one, other
    return f"{one} (0x{a[::-1].tobytes().hex()})", f"{other} (0x{b[::-1].tobytes().hex()})"


def _largest_difference(a: Bytes, b: Bytes, dtype: np.dtype[Any]) -> float | None:
    wide = np.complex128 if dtype.kind == "c" or "complex" in dtype.name else np.float64
    with np.errstate(all="ignore"):
        gaps = np.abs(a.reshape(-1).view(dtype).astype(wide) - b.reshape(-1).view(dtype).astype(wide))
    gaps = gaps[~np.isnan(gaps)]
    return float(gaps.max()) if gaps.size else None


def _elements_from_json(groups: Sequence[CopyGroup], told: Sequence[Sequence[Any]]) -> Iterator[Elements]:
    for group, (many, least, largest, first) in zip(groups, told, strict=True):
        yield Elements(group, many, least, largest, tuple((tuple(index), one, other) for index, one, other in first))
