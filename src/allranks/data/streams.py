"""Read one stream of an epoch: prefetch its blocks, and release each block at the end of its window."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from functools import partial
from itertools import count

import numpy as np

from allranks.data.base import BlockRows, Reader, gatherer_of, is_gathered
from allranks.data.index import DatasetIndex
from allranks.data.mix import MixPlan
from allranks.data.plan import EpochPlan, StreamWindow
from allranks.data.random_plan import RandomPlan
from allranks.data.step_chunks import BlockSamples, Ids

_MERGED_KEYS = count(1 << 40)  # of merged blocks; above all numbers of blocks
_MOST_MERGED_BYTES = 1 << 14  # of a sample: copies of larger ones take longer than finding them
_AT_ONCE = 4  # blocks that a thread reads before it lets another go on


class SampleStream:
    """One stream of an epoch; its samples must be located in ascending order.

    ``pool`` reads blocks ahead. ``first_key`` is the key of the index's block 0, which differs between the parts of a
    mixture.
    """

    def __init__(self, plan: EpochPlan, stream: int, *, reader: Reader, pool: Executor, first_key: int = 0) -> None:
        self._plan, self._stream, self._first_key = plan, stream, first_key
        self._reader, self._pool = reader, pool
        self._length = plan.stream_length(stream)
        self._open: list[_OpenWindow] = []

    def prefetch_blocks(self, depths: Ids) -> None:
        """Start to read the blocks of these depths in the background."""
        for opened, inside in self._split_depths(depths):
            opened.prefetch_blocks(inside)

    def locate_samples(self, depths: Ids) -> BlockSamples:
        """Return the locations of the samples at these ascending depths; padding after the end of the stream."""
        parts = [opened.locate_samples(inside) for opened, inside in self._split_depths(depths)]
        if len(depths):
            self._open = [opened for opened in self._open if opened.window.end > depths[-1] + 1]
        if len(parts) == 1 and len(parts[0].keys) == len(depths):
            return parts[0]
        keys, positions, ids = np.full((3, len(depths)), -1, np.int64)
        at = 0
        for part in parts:
            here = slice(at, at + len(part.keys))
            keys[here], positions[here], ids[here] = part.keys, part.positions, part.ids
            at = here.stop
        return BlockSamples(keys, positions, ids, {key: block for part in parts for key, block in part.blocks.items()})

    def _split_depths(self, depths: Ids) -> list[tuple[_OpenWindow, Ids]]:
        """Divide depths at the ends of windows; in each part, the depths are counted from the start of its window."""
        parts, left = [], depths[: np.searchsorted(depths, self._length)]
        while len(left):
            opened = self._open_window(int(left[0]))
            many = len(left) if left[-1] < opened.window.end else int(np.searchsorted(left, opened.window.end))
            parts.append((opened, left[:many] - opened.window.begin))
            left = left[many:]
        return parts

    def _open_window(self, depth: int) -> _OpenWindow:
        for opened in self._open:
            if opened.window.begin <= depth < opened.window.end:
                return opened
        window = self._plan.window_at(self._stream, depth)
        made = _OpenWindow(window, self._plan.index, self._first_key, reader=self._reader, pool=self._pool)
        self._open.append(made)
        return made


class _OpenWindow:
    """A window of a stream that is being read: some of its blocks were requested.

    Its samples are counted from 0, in the order in which they are taken.
    """

    def __init__(
        self, window: StreamWindow, index: DatasetIndex, first_key: int, *, reader: Reader, pool: Executor
    ) -> None:
        self.window = window
        self._first_key, self._reader, self._pool = first_key, reader, pool
        blocks = np.array([piece.block for piece in window.pieces])
        starts = np.array([piece.start for piece in window.pieces])
        counts = np.array([piece.stop - piece.start for piece in window.pieces])
        piece = np.repeat(np.arange(len(counts), dtype=np.int32), counts)[window.order]
        # Of the n-th sample of all pieces, n + shift is its row in the block, n + number its id.
        shift = starts - (np.cumsum(counts) - counts)
        self._keys = (blocks + first_key)[piece]
        self._ids = window.order + (shift + index.first_ids[blocks])[piece]
        self._positions = window.order + (shift + index.skip[blocks])[piece]  # rows, until their block is there
        self._unread = set((blocks + first_key).tolist())
        self._requests: dict[int, Future[BlockRows] | None] = {}  # by key; None: hinted at, and read when it is needed
        self._there: dict[int, BlockRows] = {}
        self._is_mergeable = len(blocks) > 1 and index.nbytes <= _MOST_MERGED_BYTES * index.samples

    def prefetch_blocks(self, places: Ids) -> None:
        if self._unread:
            self._request_blocks(self._unread.intersection(self._keys[places].tolist()))

    def locate_samples(self, places: Ids) -> BlockSamples:
        if self._unread or self._requests:
            keys = set(self._keys[places].tolist())
            self._request_blocks(self._unread & keys)
            for key in self._requests.keys() & keys:
                self._wait_for_block(key)
        found = BlockSamples(self._keys[places], self._positions[places], self._ids[places], self._there)
        if self._is_mergeable and not self._unread and not self._requests:
            self._merge_blocks(int(places[-1]) + 1)
        return found

    def _merge_blocks(self, begin: int) -> None:
        """Put the samples from ``begin`` on, if their blocks have columns, into one block, in the order of taking.

        Then neighbours in the order are neighbours in memory, too.
        """
        self._is_mergeable = False
        first = gatherer_of(next(iter(self._there.values())))
        merge = getattr(first, "merge_blocks", None)
        alike = all(gatherer_of(rows) == first for rows in self._there.values())
        if merge is None or not alike or 2 * begin > len(self._keys):
            return
        merged = merge(self._there, self._keys[begin:], self._positions[begin:])
        if merged is not None:
            key = next(_MERGED_KEYS)
            self._keys[begin:], self._positions[begin:] = key, np.arange(len(self._keys) - begin)
            self._there = {key: merged}

    def _request_blocks(self, keys: Iterable[int]) -> None:
        """Request blocks: the system prefetches a block, or a thread reads several blocks one after the other."""
        wanted = list(keys)
        self._unread.difference_update(wanted)
        self._requests |= {key: None for key in wanted if self._reader.hint(key - self._first_key)}
        wanted = [key for key in wanted if key not in self._requests]
        for at in range(0, len(wanted), _AT_ONCE):
            futures = {key: Future[BlockRows]() for key in wanted[at : at + _AT_ONCE]}
            self._requests |= futures
            requests = [(key - self._first_key, future) for key, future in futures.items()]
            task = self._pool.submit(_fill_futures, self._reader, requests)
            task.add_done_callback(partial(_cancel_futures, list(futures.values())))

    def _wait_for_block(self, key: int) -> None:
        """Wait for a requested block, and replace its row numbers by the positions that its decoder reads."""
        request = self._requests.pop(key)
        rows = self._reader.read(key - self._first_key) if request is None else request.result()
        self._there[key] = rows
        if is_gathered(rows) and not getattr(rows.gatherer, "holds_values", False):  # which are found by their rows
            here = np.flatnonzero(self._keys == key)
            self._positions[here] = rows.positions_of(self._positions[here])


def _cancel_futures(futures: Sequence[Future[BlockRows]], task: Future[None]) -> None:
    """Cancel the requests of a task that the pool has dropped, so that nobody waits for them for ever."""
    if task.cancelled():
        for future in futures:
            future.cancel()


def _fill_futures(reader: Reader, requests: Sequence[tuple[int, Future[BlockRows]]]) -> None:
    for block, future in requests:
        try:
            future.set_result(reader.read(block))
        except BaseException as error:  # whatever it is: the one who waits gets it
            future.set_exception(error)


class RandomStream:
    """The draws of a RandomPlan, with the methods of ``SampleStream``. Their samples are read one by one."""

    def __init__(self, plan: RandomPlan, reader: Reader) -> None:
        self._plan, self._reader = plan, reader
        self._blocks: dict[int, BlockRows] = {}

    def prefetch_blocks(self, _depths: Ids) -> None:
        """Do nothing: a sample is read when it is needed, and the thread of the loader is ahead."""

    def locate_samples(self, depths: Ids) -> BlockSamples:
        """Return the locations of the draws at these depths; padding after the end of the epoch."""
        index = self._plan.index
        ids = self._plan.ids_of_draws(depths)
        keys = np.searchsorted(index.first_ids, ids, side="right") - 1
        positions = index.skip[keys] + ids - index.first_ids[keys]
        for key in np.unique(keys).tolist():
            if key not in self._blocks:
                self._blocks[key] = self._reader.read(key)
            rows = self._blocks[key]
            if is_gathered(rows):
                here = keys == key
                positions[here] = rows.positions_of(positions[here])
        return BlockSamples(keys, positions, ids, {key: self._blocks[key] for key in np.unique(keys).tolist()})


class MixStream:
    """One stream of a mixture, with the methods of ``Stream``; its samples come from the streams of the parts."""

    def __init__(self, plan: MixPlan, stream: int, *, readers: Sequence[Reader], pool: Executor) -> None:
        self._plan, self._stream = plan, stream
        self._readers, self._pool = readers, pool
        self._length = plan.stream_length(stream)
        self._streams: dict[tuple[int, int], SampleStream] = {}
        blocks = [len(plan.part_plan(number, 0).index) for number in range(len(readers))]
        self._first_keys = np.cumsum([0, *blocks]).tolist()

    def prefetch_blocks(self, depths: Ids) -> None:
        """Start to read the blocks of these depths in the background."""
        for stream, _, _, inside in self._split_depths(depths):
            stream.prefetch_blocks(inside)

    def locate_samples(self, depths: Ids) -> BlockSamples:
        """Return the locations of the samples at these ascending depths; padding after the end of the stream."""
        keys, positions, ids = np.full((3, len(depths)), -1, np.int64)
        blocks: dict[int, BlockRows] = {}
        begun: dict[int, int] = {}
        for stream, (number, epoch), places, inside in self._split_depths(depths):
            found = stream.locate_samples(inside)
            keys[places], positions[places], ids[places] = (
                found.keys,
                found.positions,
                found.ids + self._plan.bases[number],
            )
            blocks |= found.blocks
            begun[number] = epoch
        for number, epoch in list(self._streams):
            if epoch < begun.get(number, 0):
                del self._streams[number, epoch]
        return BlockSamples(keys, positions, ids, blocks)

    def _split_depths(self, depths: Ids) -> Iterator[tuple[SampleStream, tuple[int, int], Ids, Ids]]:
        """Yield (stream, (part number, epoch), positions in ``depths``, depths in that stream) for each part."""
        turns = self._plan.mix_positions(self._stream, depths[: np.searchsorted(depths, self._length)])
        for number in np.unique(turns.part).tolist():
            places = np.flatnonzero(turns.part == number)
            epochs, inside = np.divmod(
                turns.number[places], self._plan.part_plan(number, 0).stream_length(self._stream)
            )
            for epoch in np.unique(epochs).tolist():
                here = epochs == epoch
                yield self._open_part_stream(number, epoch), (number, epoch), places[here], inside[here]

    def _open_part_stream(self, number: int, epoch: int) -> SampleStream:
        if (number, epoch) not in self._streams:
            plan, reader, first_key = (
                self._plan.part_plan(number, epoch),
                self._readers[number],
                self._first_keys[number],
            )
            self._streams[number, epoch] = SampleStream(
                plan, self._stream, reader=reader, pool=self._pool, first_key=first_key
            )
        return self._streams[number, epoch]
