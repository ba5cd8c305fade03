"""Compare two checkpoints leaf by leaf: what changed, and by how much. Their shardings may differ.

Leaves whose bytes are equal according to the manifests are not read. The others are read in the shards of the first
checkpoint, a few megabytes at a time.
"""

from __future__ import annotations

import math
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from allranks.arrays.base import FillTarget
from allranks.arrays.leaves.numpy import DTYPES
from allranks.checkpoint import summary
from allranks.checkpoint.chunk_reader import ChunkReader
from allranks.checkpoint.manifest import Manifest, Shard, StoredLeaf
from allranks.checkpoint.restore_plan import ChunkRead, group_reads, plan_reads
from allranks.extent import Extent
from allranks.storage.base import Storage

Kind = Literal["added", "removed", "reshaped", "recast", "changed"]

# Elements that are looked at together: their differences, in float64, stay in the processor's cache.
_SLICE = 1 << 14
_ALIGNED = 64


@dataclass(frozen=True, slots=True)
class ArrayDistance:
    """How far two arrays of equal shape differ: ``changed`` of their ``elements`` are unequal.

    ``unmeasured``: how many of the changed elements are not finite in both arrays. ``largest`` and ``relative`` leave
    these out.
    ``largest``: the greatest absolute difference.
    ``relative``: the L2 norm of the differences divided by the L2 norm of the first array (infinite if that is zero).
    """

    elements: int
    changed: int
    unmeasured: int
    largest: float
    relative: float


@dataclass(frozen=True, slots=True)
class LeafChange:
    """A leaf that differs between two checkpoints.

    ``before``, ``after``: its dtype and shape in each checkpoint, e.g. ``float32[512, 64]``; None if it is not there.
    """

    path: str
    kind: Kind
    before: str | None
    after: str | None
    distance: ArrayDistance | None = None


@dataclass(frozen=True, slots=True)
class ValueChange:
    """A JSON value that differs; ``before`` and ``after`` are (value,), or () if it is missing there."""

    path: str
    before: tuple[Any, ...]
    after: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class CheckpointComparison:
    """The result of a comparison. ``unchanged``: the number of leaves that are equal to the bit."""

    leaves: tuple[LeafChange, ...]
    values: tuple[ValueChange, ...]
    unchanged: int

    @property
    def is_equal(self) -> bool:
        return not self.leaves and not self.values


@dataclass(frozen=True, slots=True)
class ComparedCheckpoint:
    """A checkpoint to compare: its manifest, the storage that has it, and its ``folder`` (see ``ChunkReader``)."""

    storage: Storage
    manifest: Manifest
    folder: str | None = None


def leaves_to_read(first: Manifest, second: Manifest) -> tuple[str, ...]:
    """Return the paths of the leaves that must be read: those with equal shapes whose bytes may differ."""
    both = [(path, leaf, second.leaves[path]) for path, leaf in first.leaves.items() if path in second.leaves]
    return tuple(
        path
        for path, one, other in both
        if one.shape == other.shape and not _are_leaves_known_equal(first, one, second, other)
    )


def compare_checkpoints(
    first: ComparedCheckpoint,
    second: ComparedCheckpoint,
    *,
    threads: int = 2,
    report_progress: Callable[[int], None] = lambda _: None,
) -> CheckpointComparison:
    """Return what changed from checkpoint ``first`` to checkpoint ``second``. Raises Damaged, StorageError.

    ``report_progress``: called with the number of bytes of every piece that was read, from any thread.
    """
    distances = _leaf_distances(
        first, second, leaves_to_read(first.manifest, second.manifest), threads, report_progress
    )
    changes = [
        _leaf_change(path, first.manifest, second.manifest, distances)
        for path in _merged_paths(first.manifest.leaves, second.manifest.leaves)
    ]
    found = tuple(change for change in changes if change)
    common = len(first.manifest.leaves.keys() & second.manifest.leaves.keys())
    touched = sum(change.kind not in ("added", "removed") for change in found)
    return CheckpointComparison(found, _value_changes(first.manifest, second.manifest), common - touched)


def are_known_equal(manifest: Manifest, path: str, other_path: str) -> bool:
    """Return whether the manifest alone shows that two of its leaves hold the same bytes."""
    a, b = manifest.leaves[path], manifest.leaves[other_path]
    return a.runs == b.runs or _are_leaves_known_equal(manifest, a, manifest, b)


def _merged_paths(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    return [*a, *(path for path in b if path not in a)]


def _leaf_change(path: str, a: Manifest, b: Manifest, distances: Mapping[str, ArrayDistance]) -> LeafChange | None:
    one, other = a.leaves.get(path), b.leaves.get(path)
    before, after = (summary.describe_leaf(leaf) if leaf else None for leaf in (one, other))
    if one is None or other is None:
        return LeafChange(path, "added" if one is None else "removed", before, after)
    if one.shape != other.shape:
        return LeafChange(path, "reshaped", before, after)
    distance = distances.get(path)
    if before != after:
        return LeafChange(path, "recast", before, after, distance)
    return LeafChange(path, "changed", before, after, distance) if distance and distance.changed else None


def _value_changes(a: Manifest, b: Manifest) -> tuple[ValueChange, ...]:
    one, other = _json_values(a), _json_values(b)
    pairs = [
        ValueChange(path, *((side[path],) if path in side else () for side in (one, other)))
        for path in _merged_paths(one, other)
    ]
    return tuple(pair for pair in pairs if repr(pair.before) != repr(pair.after))  # a NaN is itself, True is not 1


def _json_values(manifest: Manifest) -> dict[str, Any]:
    """Return the JSON values of a checkpoint by path: values of the state, ``extra`` and metrics."""
    return {
        **manifest.values,
        **{path: value for path, value in summary.flatten_json(manifest.extra, "extra") if value is not None},
        **{f"metrics/{name}": value for name, value in manifest.metrics.items()},
    }


def _are_leaves_known_equal(a: Manifest, one: StoredLeaf, b: Manifest, other: StoredLeaf) -> bool:
    """Return whether the manifests alone show that two leaves hold the same bytes: equal shards, equal digests."""
    if (one.dtype, one.kind, a.integrity) != (other.dtype, other.kind, b.integrity):
        return False
    item = DTYPES[one.dtype].itemsize
    shards = list(one.shards), list(other.shards)
    return len(shards[0]) == len(shards[1]) and all(
        first.extent == second.extent and _chunks_of_shard(a, first, item) == _chunks_of_shard(b, second, item)
        for first, second in zip(*shards, strict=True)
    )


def _chunks_of_shard(manifest: Manifest, shard: Shard, item: int) -> list[tuple[int, int, str]]:
    """Return the chunks that hold a shard, each as (begin, end, digest), in bytes from the first byte of the shard."""
    file = manifest.files[shard.file]
    nbytes = shard.extent.size * item
    first, last = bisect_right(file.ends, shard.begin), bisect_left(file.ends, shard.begin + nbytes)
    return [
        ((file.ends[chunk - 1] if chunk else 0) - shard.begin, file.ends[chunk] - shard.begin, file.digests[chunk])
        for chunk in range(first, last + 1 if nbytes else first)
    ]


def _leaf_distances(
    a: ComparedCheckpoint, b: ComparedCheckpoint, leaves: Sequence[str], threads: int, progress: Callable[[int], None]
) -> dict[str, ArrayDistance]:
    readers = [
        ChunkReader(side.storage, side.manifest, threads=1, folder=side.folder, progress=progress) for side in (a, b)
    ]
    sums = {path: _DistanceSums(math.prod(a.manifest.leaves[path].shape)) for path in leaves}
    reads = plan_reads(a.manifest, [(path, Extent.of_shape(a.manifest.leaves[path].shape)) for path in leaves])
    spans_of_all = [span for file in reads for span in group_reads(one._replace(direct=None) for one in file.reads)]

    rooms = [_ThreadBuffers(side.manifest) for side in (a, b)]

    def work(span: Sequence[ChunkRead]) -> None:
        extents = list(_extents_of_span(leaves, span))
        pairs = [room.buffers_for_extents(extents) for room in rooms]
        for reader, targets in zip(readers, pairs, strict=True):
            reader.fill_targets(targets)
        for (path, one), (_, other) in zip(*pairs, strict=True):
            sums[path].add_parts(one.buffer, other.buffer)

    with ThreadPoolExecutor(threads) as workers:
        for _ in workers.map(work, spans_of_all):
            pass
    return {path: total.distance for path, total in sums.items()}


def _extents_of_span(leaves: Sequence[str], span: Sequence[ChunkRead]) -> Iterator[tuple[str, Extent]]:
    """Yield (leaf, extent) for each part of a leaf that these reads cover.

    The reads must be planned for complete leaves.
    """
    for read in span:
        for copy in read.plan_copies:
            begin = tuple(index.start for index in copy.into)
            yield leaves[copy.wanted], Extent(begin, tuple(index.stop - index.start for index in copy.into))


class _ThreadBuffers(threading.local):
    """One buffer for each thread, for parts of leaves. It is reused, because fresh memory is slower than a disk."""

    def __init__(self, manifest: Manifest) -> None:
        self._leaves = manifest.leaves
        self._memory = np.empty(0, np.uint8)

    def buffers_for_extents(self, extents: Sequence[tuple[str, Extent]]) -> list[tuple[str, FillTarget]]:
        """Return a target in this thread's buffer for each of these parts. The thread's next call reuses the buffer."""
        dtypes = [DTYPES[self._leaves[path].dtype] for path, _ in extents]
        sizes = [extent.size * dtype.itemsize for (_, extent), dtype in zip(extents, dtypes, strict=True)]
        begins = [0, *accumulate(-(-size // _ALIGNED) * _ALIGNED for size in sizes)]
        if begins[-1] > len(self._memory):
            self._memory = np.empty(begins[-1], np.uint8)
        found = []
        for (path, extent), dtype, begin, size in zip(extents, dtypes, begins, sizes, strict=False):
            buffer = self._memory[begin : begin + size].view(dtype).reshape(extent.shape)
            found.append((path, FillTarget(extent, buffer)))
        return found


class _DistanceSums:
    """Running sums for the distance of two leaves. Thread-safe."""

    def __init__(self, elements: int) -> None:
        self._elements = elements
        self._changed = self._unmeasured = 0
        self._largest = self._before = self._apart = 0.0
        self._turn = threading.Lock()

    def add_parts(self, a: NDArray[Any], b: NDArray[Any]) -> None:
        """Add the same part of both leaves to the sums."""
        one, other = a.reshape(-1), b.reshape(-1)
        for start in range(0, len(one), _SLICE):
            self._add_part(one[start : start + _SLICE], other[start : start + _SLICE])

    def _add_part(self, a: NDArray[Any], b: NDArray[Any]) -> None:
        before, after = _as_float64(a), _as_float64(b)
        changed = _differing_bits(a, b) if a.dtype == b.dtype else before != after
        finite = np.isfinite(before) & np.isfinite(after)
        if not finite.all():
            before, after = before[finite], after[finite]
        apart, size = np.abs(after - before), np.abs(before)
        largest, squares = float(apart.max(initial=0.0)), (_sum_of_squares(size), _sum_of_squares(apart))
        with self._turn:
            self._changed += int(np.count_nonzero(changed))
            self._unmeasured += int(np.count_nonzero(changed & ~finite))
            self._largest = max(self._largest, largest)
            self._before += squares[0]
            self._apart += squares[1]

    @property
    def distance(self) -> ArrayDistance:
        norm, apart = math.sqrt(self._before), math.sqrt(self._apart)
        relative = apart / norm if norm else (math.inf if apart else 0.0)
        return ArrayDistance(self._elements, self._changed, self._unmeasured, self._largest, relative)


def _as_float64(array: NDArray[Any]) -> NDArray[Any]:
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _sum_of_squares(array: NDArray[Any]) -> float:
    """Return the sum of squares. BLAS is not used, because its threads wait for each other on a busy machine."""
    return float(np.square(array).sum())


def _differing_bits(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.bool_]:
    """Return, for each element, whether the two arrays differ in a bit of it."""
    words = np.dtype(f"u{min(a.itemsize, 8)}")
    differs: NDArray[np.bool_] = a.view(words) != b.view(words)
    return differs if a.itemsize <= 8 else np.logical_or.reduce(differs.reshape(len(a), -1), axis=1)
