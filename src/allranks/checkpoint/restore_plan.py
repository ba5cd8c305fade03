"""Plan which chunks of which files a rank reads, and where their bytes go.

A chunk is the smallest unit that can be read and verified. It holds a range of a file's bytes. Of every shard in that
range it holds a range of elements, in row-major order. Of those elements, the rank wants the ones in its extents.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from allranks.checkpoint.dtypes import DTYPES
from allranks.checkpoint.manifest import Manifest, Shard, ShardRun, StoredLeaf
from allranks.errors import Damaged
from allranks.extent import Extent
from allranks.storage.base import BLOCK, PAGE


class ChunkCopy(NamedTuple):
    """A copy of a part of a chunk into a buffer.

    The chunk has a box of ``shape`` (row-major) at byte ``source``; ``take``: slices of that box. ``into``: slices of
    the buffer for wanted extent number ``wanted``.
    """

    wanted: int
    source: int
    shape: tuple[int, ...]
    take: tuple[slice, ...]
    into: tuple[slice, ...]


class ShardOverlap(NamedTuple):
    """The elements that one wanted extent (number ``wanted``) and one shard have in common.

    ``both``: the shared box, in indices of the leaf. ``item``: the bytes of an element.
    ``first``, ``last``: the bounds of the shared elements in the shard's row-major order.
    ``shift``: if the shared elements are contiguous in the shard and in the wanted extent, the shard's element i is the
    extent's element i + ``shift``. Otherwise None.
    ``row``: at most so many elements are contiguous in both. ``period``: among any so many successive elements of the
    shard, at least one is wanted.
    """

    wanted: int
    extent: Extent
    shard: Extent
    both: Extent
    item: int
    first: int
    last: int
    shift: int | None
    row: int
    period: int


class ChunkPart(NamedTuple):
    """The part of a ShardOverlap that one chunk holds: elements ``first`` to ``last`` of the shard, from byte
    ``source`` on.
    """

    link: ShardOverlap
    source: int
    first: int
    last: int

    def plan_copies(self) -> Iterator[ChunkCopy]:
        """Yield the copies out of the chunk, in ascending order of their source."""
        wanted, extent, shard, both, item, *_ = self.link
        at = self.source
        for box in boxes_of_range(shard.shape, self.first, self.last):
            here = Extent(tuple([a + b for a, b in zip(shard.offset, box.offset, strict=True)]), box.shape)
            common = here.overlap(both)
            if common is not None:
                yield ChunkCopy(wanted, at, box.shape, common.within(here).slices, common.within(extent).slices)
            at += box.size * item


class ChunkRead(NamedTuple):
    """A chunk to read: bytes ``begin`` to ``end`` of the file, and the ``parts`` of it that are wanted.

    ``direct``: set if the complete chunk is one contiguous piece of one wanted extent (row-major), number
    ``parts[0].link.wanted``. It is then the byte of the extent at which the piece begins, and the chunk can be read
    into a contiguous buffer without a copy. Otherwise None.
    """

    chunk: int
    begin: int
    end: int
    parts: tuple[ChunkPart, ...]
    direct: int | None

    @property
    def plan_copies(self) -> Iterator[ChunkCopy]:
        """The copies out of the chunk. A direct chunk has copies, too, because its buffer may have strides."""
        return chain.from_iterable(part.plan_copies() for part in self.parts)


@dataclass(frozen=True, slots=True)
class FileReads:
    """The chunks to read of file number ``file``, in ascending order."""

    file: int
    reads: tuple[ChunkRead, ...]


@dataclass(frozen=True, slots=True)
class PlanCost:
    """The cost of a plan: the bytes of the wanted extents (``needed``), and of the chunks that hold them (``read``)."""

    needed: int
    read: int


def plan_reads(manifest: Manifest, wanted_extents: Sequence[tuple[str, Extent]]) -> tuple[FileReads, ...]:
    """Return the reads for these extents of leaves, by file and position. Each chunk is read once.

    Empty extents need no read. The manifest must be valid (see ``decode_manifest``). Raises KeyError for a leaf that it
    lacks, and Damaged if a chunk ends within an element.
    """
    found: dict[tuple[int, int], list[ChunkPart]] = {}
    for number, (path, extent) in enumerate(wanted_extents):
        leaf = manifest.leaves[path]
        item = DTYPES[leaf.dtype].size
        for shard in _touched_shards(leaf, extent):
            link = _link_of(number, extent, shard.extent, item)
            if link is not None and not _add_to_chunks(shard, link, manifest.files[shard.file].ends, found):
                name = manifest.files[shard.file].name
                raise Damaged(
                    f"a chunk of {name} ends within an element of leaf {path!r}: expected chunks of complete elements.",
                    path=name,
                    leaf=path,
                )
    files: dict[int, list[ChunkRead]] = {}
    for file, chunk in sorted(found):
        ends, parts = manifest.files[file].ends, found[file, chunk]
        begin, end = ends[chunk - 1] if chunk else 0, ends[chunk]
        direct = _direct_offset(parts[0], end - begin) if len(parts) == 1 else None
        files.setdefault(file, []).append(ChunkRead(chunk, begin, end, tuple(parts), direct))
    return tuple([FileReads(file, tuple(reads)) for file, reads in files.items()])


def group_reads(reads: Iterable[ChunkRead], *, max_bytes: int = BLOCK) -> Iterator[tuple[ChunkRead, ...]]:
    """Yield the reads of a file in groups for one call: at most ``max_bytes`` bytes, or a single larger chunk.

    The chunks of a group are adjacent, except for gaps of one page at most. All of them are direct, or none.
    """
    group: list[ChunkRead] = []
    for read in reads:
        if group and not (_is_adjacent(group[-1], read) and read.end - group[0].begin <= max_bytes):
            yield tuple(group)
            group = []
        group.append(read)
    if group:
        yield tuple(group)


def plan_cost(manifest: Manifest, wanted_extents: Sequence[tuple[str, Extent]], files: Iterable[FileReads]) -> PlanCost:
    """Return the bytes that a plan needs, and those that it reads."""
    needed = sum(extent.size * DTYPES[manifest.leaves[path].dtype].size for path, extent in wanted_extents)
    return PlanCost(needed, sum(read.end - read.begin for file in files for read in file.reads))


def boxes_of_range(shape: tuple[int, ...], begin: int, end: int) -> list[Extent]:
    """Return the elements ``begin`` to ``end`` (row-major) as boxes in order: at most 2n - 1 for n dimensions."""
    if begin >= end:
        return []
    if not shape:
        return [Extent((), ())]
    rest = shape[1:]
    row = math.prod(rest)
    (top, head), (bottom, tail) = divmod(begin, row), divmod(end, row)
    if top == bottom:
        return _in_row(top, boxes_of_range(rest, head, tail))
    found = []
    if head:
        found += _in_row(top, boxes_of_range(rest, head, row))
        top += 1
    if top < bottom:
        found.append(Extent((top, *(0,) * len(rest)), (bottom - top, *rest)))
    if tail:
        found += _in_row(bottom, boxes_of_range(rest, 0, tail))
    return found


def _in_row(row: int, found: list[Extent]) -> list[Extent]:
    return [Extent((row, *box.offset), (1, *box.shape)) for box in found]


def _touched_shards(leaf: StoredLeaf, extent: Extent) -> Iterator[Shard]:
    """Yield the shards of a leaf that may hold elements of the extent. Shards that cannot reach it are not computed."""
    for run in leaf.runs:
        if run.count == 1:
            yield run.first
        else:
            yield from _shards_of_run(run, extent)


def _shards_of_run(run: ShardRun, extent: Extent) -> Iterator[Shard]:
    """Yield the shards of a run that reach the extent. In each dimension, its bounds limit the shard's number k."""
    low, high = 0, run.count - 1
    first = run.first.extent
    for at, many, step, start, stop in zip(
        first.offset, first.shape, run.offset_step, extent.offset, extent.end, strict=True
    ):
        if step == 0 and not (at < stop and at + many > start):
            return
        if step > 0:
            low, high = max(low, -((at + many - 1 - start) // step)), min(high, (stop - 1 - at) // step)
        if step < 0:
            low, high = max(low, -((stop - 1 - at) // -step)), min(high, (at + many - 1 - start) // -step)
    for k in range(low, high + 1):
        offset = tuple([at + k * step for at, step in zip(first.offset, run.offset_step, strict=True)])
        place = run.first.begin + k * run.begin_step
        yield Shard(run.first.file + k * run.file_step, place, Extent(offset, first.shape))


def _link_of(wanted: int, extent: Extent, shard: Extent, item: int) -> ShardOverlap | None:
    if extent == shard:
        size = extent.size
        return ShardOverlap(wanted, extent, shard, extent, item, 0, size, 0, size, 1) if size else None
    both = shard.overlap(extent)
    if both is None:
        return None
    (first, last), (begin, end) = _position_range(both, shard), _position_range(both, extent)
    if last - first == end - begin == both.size:
        return ShardOverlap(wanted, extent, shard, both, item, first, last, begin - first, both.size, 1)
    row, period = both.size, 1
    for d in range(len(both.shape) - 1, 0, -1):
        if both.shape[d] != shard.shape[d]:
            period = math.prod(shard.shape[d:])
        if not both.shape[d] == shard.shape[d] == extent.shape[d]:
            row = min(row, math.prod(both.shape[d:]))
    return ShardOverlap(wanted, extent, shard, both, item, first, last, None, row, period)


def _position_range(inner: Extent, outer: Extent) -> tuple[int, int]:
    """Return the range of positions, in the row-major order of ``outer``, from the first to the last of ``inner``.

    The second number is one after the last position.
    """
    first = last = 0
    for at, many, base, length in zip(inner.offset, inner.shape, outer.offset, outer.shape, strict=True):
        first = first * length + at - base
        last = last * length + at - base + many - 1
    return first, last + 1


def _add_to_chunks(
    shard: Shard, link: ShardOverlap, ends: tuple[int, ...], found: dict[tuple[int, int], list[ChunkPart]]
) -> bool:
    """Divide an overlap at the borders of chunks, and add each part to its chunk in ``found``.

    Return False if a chunk ends within an element.
    """
    item = link.item
    begin, end = shard.begin + link.first * item, shard.begin + link.last * item
    for chunk in range(bisect_right(ends, begin), bisect_left(ends, end) + 1):
        chunk_begin = ends[chunk - 1] if chunk else 0
        low, high = max(begin, chunk_begin), min(end, ends[chunk])
        if (low - shard.begin) % item:
            return False
        part = ChunkPart(link, low - chunk_begin, (low - shard.begin) // item, (high - shard.begin) // item)
        if part.last - part.first >= link.period or next(part.plan_copies(), None):
            found.setdefault((shard.file, chunk), []).append(part)
    return True


def _direct_offset(part: ChunkPart, length: int) -> int | None:
    """Return the byte of the wanted extent at which the complete chunk is contiguous; None if it is not contiguous."""
    link = part.link
    if (part.last - part.first) * link.item != length:
        return None
    if link.shift is not None:
        return (part.first + link.shift) * link.item
    begin = at = -1
    left = part.last - part.first
    if left > link.row:
        return None
    for copy in part.plan_copies():
        taken = Extent(tuple([index.start for index in copy.into]), tuple([i.stop - i.start for i in copy.into]))
        first, last = _position_range(taken, Extent.of_shape(link.extent.shape))
        if taken.shape != copy.shape or last - first != taken.size or at not in (-1, first):
            return None
        begin, at, left = first if begin < 0 else begin, last, left - taken.size
    return None if left else begin * link.item


def _is_adjacent(one: ChunkRead, other: ChunkRead) -> bool:
    return other.begin - one.end <= PAGE and (one.direct is None) == (other.direct is None)
