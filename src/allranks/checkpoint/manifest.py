"""Define the manifest, which says where the bytes of each leaf of a checkpoint are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allranks.extent import Extent

Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Shard:
    """One part of a leaf. Its bytes are in file number ``file`` from byte ``begin`` on, in row-major order."""

    file: int
    begin: int
    extent: Extent


@dataclass(frozen=True, slots=True)
class ShardRun:
    """``count`` shards of one shape at regular distances.

    Shard k is ``first`` plus k times the steps of file, byte and offset.
    """

    first: Shard
    count: int = 1
    file_step: int = 0
    begin_step: int = 0
    offset_step: tuple[int, ...] = ()

    def __iter__(self) -> Iterator[Shard]:
        first, shape = self.first, self.first.extent.shape
        step = self.offset_step or (0,) * len(shape)
        for k in range(self.count):
            offset = tuple(at + k * by for at, by in zip(first.extent.offset, step, strict=True))
            yield Shard(first.file + k * self.file_step, first.begin + k * self.begin_step, Extent(offset, shape))


@dataclass(frozen=True, slots=True)
class StoredLeaf:
    """An array of a checkpoint and its shards.

    ``dtype``, ``kind`` and ``per_rank`` are as in ``arrays.DeclaredArray``.
    """

    shape: tuple[int, ...]
    dtype: str
    kind: str
    runs: tuple[ShardRun, ...]
    per_rank: bool = False

    @property
    def shards(self) -> Iterator[Shard]:
        for run in self.runs:
            yield from run


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A shard file: chunk i ends at byte ``ends[i]`` (the last at the file's end) and has the digest ``digests[i]``.

    In a compressed file, chunk i ends at byte ``stored[i]`` of the file; all other numbers are of the uncompressed
    file.
    """

    name: str
    bytes: int
    ends: tuple[int, ...]
    digests: tuple[str, ...]
    stored: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """The size of the file on the storage, in bytes."""
        return self.stored[-1] if self.stored else self.bytes

    def stored_range(self, first_chunk: int, last_chunk: int) -> tuple[int, int]:
        """Return the byte positions in the stored file at which these chunks begin and end."""
        ends = self.stored or self.ends
        return (ends[first_chunk - 1] if first_chunk else 0), ends[last_chunk]


@dataclass(frozen=True, slots=True)
class Manifest:
    """The content of manifest.json.

    ``integrity``: the digest of chunks and of the manifest itself, ``xxh3-128`` or ``blake3``.
    ``nonce``: identifies the save; it is also in every file's header. ``created``: the time in UTC, ISO 8601.
    ``ties``: for arrays that shared their memory with another array, the path of that array; ``leaves`` has both.
    ``rank_values``: paths for which ``values`` has a list with the value of each rank.
    """

    step: int
    nonce: str
    created: str
    world_size: int
    integrity: str
    files: tuple[StoredFile, ...]
    leaves: Mapping[str, StoredLeaf]
    values: Mapping[str, Any]
    extra: Any
    metrics: Mapping[str, float]
    versions: Mapping[str, str]
    ties: Mapping[str, str] = field(default_factory=dict)
    rank_values: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ShardTable:
    """n shards as arrays. ``file``, ``begin``: shape [n]. ``offset``, ``shape``: shape [n, dimensions]."""

    file: Integers
    begin: Integers
    offset: Integers
    shape: Integers


def compress_shards(shards: ShardTable) -> tuple[ShardRun, ...]:
    """Return the shards as runs, in order. Successive shards of one shape at equal distances form one run."""
    count = len(shards.file)
    if not count:
        return ()
    place = np.column_stack([shards.file, shards.begin, shards.offset])
    step = np.diff(place, axis=0)
    alike = (shards.shape[1:] == shards.shape[:-1]).all(axis=1)
    # Step i is from shard i to shard i + 1; a turn is a step that differs from the one before.
    turns = np.flatnonzero((step[1:] != step[:-1]).any(axis=1) | ~alike[1:] | ~alike[:-1]) + 1
    runs, begin = [], 0
    for end in [*turns.tolist(), count - 1]:
        if begin < end:
            last = end if alike[begin] else begin
            runs.append(_run_of_shards(shards, step, begin, last))
            begin = last + 1
    if begin < count:
        runs.append(_run_of_shards(shards, step, begin, begin))
    return tuple(runs)


def expand_runs(runs: tuple[ShardRun, ...], dimension_count: int) -> ShardTable:
    """Return every shard of the runs of a leaf: the inverse of ``compress_shards``."""
    file, begin, offset, shape = [], [], [], []
    for run in runs:
        k, first = np.arange(run.count), run.first
        file.append(first.file + k * run.file_step)
        begin.append(first.begin + k * run.begin_step)
        step = np.array(run.offset_step or (0,) * dimension_count, np.int64)
        offset.append(np.array(first.extent.offset, np.int64) + k[:, None] * step)
        shape.append(np.broadcast_to(np.array(first.extent.shape, np.int64), (run.count, dimension_count)))
    if not runs:
        return ShardTable(*(np.zeros(0, np.int64),) * 2, *(np.zeros((0, dimension_count), np.int64),) * 2)
    return ShardTable(np.concatenate(file), np.concatenate(begin), np.concatenate(offset), np.concatenate(shape))


def _run_of_shards(shards: ShardTable, step: Integers, begin: int, last: int) -> ShardRun:
    extent = Extent(tuple(shards.offset[begin].tolist()), tuple(shards.shape[begin].tolist()))
    first = Shard(int(shards.file[begin]), int(shards.begin[begin]), extent)
    if last == begin:
        return ShardRun(first)
    file_step, begin_step, *offset_step = step[begin].tolist()
    return ShardRun(first, last - begin + 1, file_step, begin_step, tuple(offset_step))
