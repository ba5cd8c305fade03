"""Plan an epoch: compute the sample of each step and row from the index alone.

The blocks are permuted, and their samples are cut into ``streams`` of equal length (some have one sample more). A
stream is read window by window. A window is a few consecutive blocks, whose samples are permuted. Row j of global batch
s is the sample at depth ``s * m + j % m`` of stream ``j // m``, where m = global_batch / streams. A rank reads only the
streams of its rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isqrt
from typing import Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from allranks.data import order
from allranks.data.arguments import check_number
from allranks.data.index import DatasetIndex
from allranks.digest import digest, show
from allranks.errors import DataError

VERSION = 1
Tail = Literal["pad", "drop"]
TAILS: tuple[str, ...] = get_args(Tail)

_MOST_ROWS = 1 << 24
_HELD_BYTES = 208 << 20  # by all streams: four ranks hold 52 MB each
_MOST_WINDOW = 32
_BLOCKS_PER_STREAM = 20  # with fewer, a stream's end in the middle of a block costs too much reading
_FEW_STREAMS = 8  # so many pay all the same: ranks that share a stream each read all of it


@dataclass(frozen=True, slots=True)
class IndexLayout:
    """The settings that decide the order of the samples: ``seed``, the number of ``streams``, and ``window`` in blocks.

    ``tail`` decides what happens to the last samples if they do not fill a batch: padded with masked rows, or dropped.
    """

    global_batch: int
    streams: int
    window: int
    seed: int
    shuffle: bool
    tail: Tail = "pad"

    def __post_init__(self) -> None:
        check_batch(self.global_batch, self.streams, self.window)

    @property
    def depth_of_step(self) -> int:
        """How many samples of a stream are in one global batch."""
        return self.global_batch // self.streams


def check_batch(global_batch: int, streams: int | None, window: int | None) -> None:
    """Raise DataError for an invalid global batch, number of streams, or window."""
    check_number("global_batch", global_batch, "the rows of a batch of all ranks", least=1, most=_MOST_ROWS)
    if streams is not None and global_batch % check_number("streams", streams, "a divisor of global_batch", least=1):
        raise DataError(
            f"streams={streams} does not divide the global batch of {global_batch}.",
            remedy=f"Choose one of {_number_list(divisors(global_batch))}.",
        )
    if window is not None:
        check_number("window", window, "the blocks that are permuted together", least=1)


def choose_layout(
    index: DatasetIndex,
    *,
    global_batch: int,
    seed: int,
    shuffle: bool,
    streams: int | None = None,
    window: int | None = None,
    tail: Tail = "pad",
) -> IndexLayout:
    """Choose the streams and the window for an index so that it is shuffled well and little is read twice.

    By default there are as many streams as leave 20 blocks to each, or up to 8 streams of at least 2 blocks. A window
    has 32 blocks, or fewer if all streams together would hold too many bytes.
    """
    check_batch(global_batch, streams, window)
    fits = [d for d in divisors(global_batch) if d * (2 if d <= _FEW_STREAMS else _BLOCKS_PER_STREAM) <= len(index)]
    many = streams or max(fits, default=1)
    return IndexLayout(global_batch, many, window or _default_window(index, many), seed, shuffle, tail)


def _default_window(index: DatasetIndex, streams: int) -> int:
    nbytes = streams * index.nbytes / max(len(index), 1)
    return int(np.clip(_HELD_BYTES // max(nbytes, 1), 1, _MOST_WINDOW))


def divisors(dividend: int) -> list[int]:
    """Return the divisors of a number, in ascending order."""
    low = [n for n in range(1, isqrt(dividend) + 1) if dividend % n == 0]
    return low + [dividend // n for n in reversed(low) if n * n != dividend]


def rows_of_rank(rank: int, size: int, global_batch: int) -> range:
    """Return the rows of the global batch of a rank, if rows follow the ranks.

    Raises DataError if ``size`` does not divide the batch.
    """
    return _rows_of_part(rank, size, global_batch, rank=rank, noun="ranks")


def rows_of_part(part: int, parts: int, global_batch: int, *, rank: int) -> range:
    """Return the rows in one of the ``parts`` into which a mesh or sharding divides the global batch.

    Raises DataError if ``parts`` does not divide the batch; the message names ``rank``.
    """
    return _rows_of_part(part, parts, global_batch, rank=rank, noun="parts of the mesh")


def _rows_of_part(part: int, parts: int, global_batch: int, *, rank: int, noun: str) -> range:
    if global_batch % parts:
        below = global_batch // parts * parts
        near = " or ".join(str(size) for size in (below, below + parts) if size)
        raise DataError(
            f"rank {rank}: a global batch of {global_batch} rows does not divide over {parts} {noun}.",
            remedy=f"Use {_number_list(divisors(global_batch))} of them, or choose a global_batch of {near}.",
        )
    return range(part * global_batch // parts, (part + 1) * global_batch // parts)


def _number_list(numbers: Sequence[int]) -> str:
    text = ", ".join(map(str, numbers[:40]))
    return text + (f", ... {numbers[-1]}" if len(numbers) > 40 else "")


@dataclass(frozen=True, slots=True)
class BlockPiece:
    """A part of a block: its samples ``start`` to ``stop``.

    Samples that do not belong to the data set are not counted.
    """

    block: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True, eq=False)
class StreamWindow:
    """Depths ``begin`` to ``end`` of a stream: the samples of ``pieces``, one after the other, taken in ``order``.

    The sample at depth d is number ``order[d - begin]`` of these samples.
    """

    stream: int
    begin: int
    end: int
    pieces: tuple[BlockPiece, ...]
    order: NDArray[np.int64]


class EpochPlan:
    """The plan of one epoch of an index, in a layout."""

    once = True

    def __init__(self, index: DatasetIndex, layout: IndexLayout, epoch: int) -> None:
        self.layout, self.epoch = layout, epoch
        self.index = index
        self.samples = index.samples
        count = len(index)
        self._blocks = order.permutation(self._key("blocks"), count) if layout.shuffle else np.arange(count)

    @cached_property
    def _ends(self) -> NDArray[np.int64]:
        """For each of the permuted blocks, the number of samples up to its end."""
        return np.cumsum(self.index.rows[self._blocks])

    @property
    def block_order(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The blocks in their permuted order, and for each of them the number of samples up to its end."""
        return self._blocks, self._ends

    def digest(self) -> str:
        """Return 16 hexadecimal digits that identify the order of the samples.

        The digest does not depend on the global batch, as long as the streams divide it.
        """
        how = self.layout
        words = (VERSION, self.index.digest, how.streams, how.window, how.seed, int(how.shuffle))
        return show(digest(*map(str, words)))[:16]

    def facts(self) -> dict[str, str | int]:
        """Return the settings that decide the order, by name: ranks compare them, and a state stores them."""
        how = self.layout
        return {
            "plan": self.digest(),
            "index": self.index.digest[:8],
            "samples": self.index.samples,
            "streams": how.streams,
            "window": how.window,
            "seed": how.seed,
            "shuffle": how.shuffle,
        }

    @property
    def steps(self) -> int:
        """The number of global batches of the epoch, for every rank."""
        batch = self.layout.global_batch
        if self.layout.tail == "drop":
            return (self.samples // self.layout.streams) // self.layout.depth_of_step
        return -(-self.samples // batch)

    def stream_bounds(self, stream: int) -> tuple[int, int]:
        """Return the start and the end of a stream, as positions among all samples in their permuted order."""
        streams = self.layout.streams
        return stream * self.samples // streams, (stream + 1) * self.samples // streams

    def stream_length(self, stream: int) -> int:
        """Return the number of samples of a stream."""
        begin, end = self.stream_bounds(stream)
        return end - begin

    def window_at(self, stream: int, depth: int) -> StreamWindow:
        """Return the window of a stream that contains a depth; the depth must be below the stream's length."""
        begin, end = self.stream_bounds(stream)
        assert 0 <= depth < end - begin, (stream, depth)
        first, at = np.searchsorted(self._ends, (begin, begin + depth), side="right").tolist()
        low, high = self._block_span(stream, at - first)
        blocks = self._blocks[first + low : first + high]
        block_ends = self._ends[first + low : first + high]
        block_begins = block_ends - self.index.rows[blocks]
        starts, stops = np.maximum(block_begins, begin), np.minimum(block_ends, end)
        inside = stops > starts
        pieces = np.stack([blocks, starts - block_begins, stops - block_begins], 1)[inside]
        window_begin, window_end = int(starts[0]), int(stops[inside][-1])
        many = window_end - window_begin
        shuffled = order.permutation(self._key("window", stream, low), many) if self.layout.shuffle else np.arange(many)
        return StreamWindow(
            stream,
            window_begin - begin,
            window_end - begin,
            tuple(BlockPiece(*piece) for piece in pieces.tolist()),
            shuffled,
        )

    def _block_span(self, stream: int, block: int) -> tuple[int, int]:
        """Return the first block, and the last block + 1, of the window that contains a stream's ``block``-th block.

        The first windows of the streams have different lengths, so that not all streams need new blocks at the same
        step. A first window has at least half of the usual length, because few blocks mix little.
        """
        size = self.layout.window
        shift = size - stream * size // (2 * self.layout.streams)
        if block < shift:
            return 0, shift
        low = shift + (block - shift) // size * size
        return low, low + size

    def window_ids(self, window: StreamWindow) -> NDArray[np.int64]:
        """Return the ids of a window's samples, in the order of their depths."""
        first = self.index.first_ids
        ranges = [np.arange(first[one.block] + one.start, first[one.block] + one.stop) for one in window.pieces]
        return np.concatenate(ranges)[window.order]

    def stream_ids(self, stream: int, begin: int, end: int) -> NDArray[np.int64]:
        """Return the ids at depths ``begin`` to ``end`` of a stream; -1 after the end of the stream."""
        found = np.full(end - begin, -1, np.int64)
        depth, last = begin, min(end, self.stream_length(stream))
        while depth < last:
            window = self.window_at(stream, depth)
            stop = min(window.end, last)
            found[depth - begin : stop - begin] = self.window_ids(window)[depth - window.begin : stop - window.begin]
            depth = stop
        return found

    def row_ids(self, rows: Sequence[int], begin: int, end: int) -> NDArray[np.int64]:
        """Return the ids of these rows of the global batches ``begin`` to ``end``: (steps, rows), -1 for padding."""
        return rows_ids(self, rows, begin, end)

    def _key(self, *words: int | str) -> int:
        return order.make_key("allranks", VERSION, self.layout.seed, self.epoch, *words)


class SamplePlan(Protocol):
    """The plan of one epoch, of one data set or of a mixture."""

    @property
    def layout(self) -> IndexLayout: ...

    @property
    def epoch(self) -> int: ...

    @property
    def steps(self) -> int:
        """The number of global batches of the epoch, for every rank."""

    @property
    def samples(self) -> int:
        """The number of ids; they count from 0."""

    @property
    def once(self) -> bool:
        """Whether the epoch has each id once. In a mixture some ids are repeated, and some are missing."""

    def digest(self) -> str:
        """Return 16 hexadecimal digits that identify the order of the samples, for all epochs."""

    def facts(self) -> dict[str, str | int]:
        """Return the settings that decide the order, by name: ranks compare them, and a state stores them."""

    def stream_length(self, stream: int, /) -> int:
        """Return the number of samples of a stream."""

    def stream_ids(self, stream: int, begin: int, end: int) -> NDArray[np.int64]:
        """Return the ids at depths ``begin`` to ``end`` of a stream; -1 after the end of the stream."""

    def row_ids(self, rows: Sequence[int], begin: int, end: int) -> NDArray[np.int64]:
        """Return the ids of these rows of the global batches ``begin`` to ``end``: (steps, rows), -1 for padding."""


def streams_of(rows: Sequence[int], rows_per_stream: int) -> dict[int, tuple[int, ...]]:
    """Return the streams of these rows of the global batch, each with the offsets of its rows within a step."""
    found: dict[int, list[int]] = {}
    for row in rows:
        found.setdefault(row // rows_per_stream, []).append(row % rows_per_stream)
    return {stream: tuple(offsets) for stream, offsets in found.items()}


def rows_ids(plan: SamplePlan, rows: Sequence[int], begin: int, end: int) -> NDArray[np.int64]:
    """Return the result of ``plan.row_ids``; ``rows`` must be in ascending order."""
    many = plan.layout.depth_of_step
    streams = streams_of(rows, many).items()
    found = [
        plan.stream_ids(stream, begin * many, end * many).reshape(-1, many)[:, list(offsets)]
        for stream, offsets in streams
    ]
    return np.concatenate(found, 1) if found else np.empty((end - begin, 0), np.int64)
