"""Find the samples of many steps in the blocks that were read, and decode a few of them at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from allranks.data.base import BadSample, BlockRows, RowGatherer, gatherer_of
from allranks.data.plan import SamplePlan, streams_of
from allranks.data.sample_columns import SampleColumns, insert_samples

PADDING = BadSample("padding behind the last sample")

Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class BlockSamples:
    """The locations of samples: the sample ``ids[i]`` is at ``positions[i]`` of ``blocks[keys[i]]``; -1 for padding.

    The arrays have one shape. A position is a result of ``Rows.positions``, or else the number of a row in the block.
    """

    keys: Ids
    positions: Ids
    ids: Ids
    blocks: Mapping[int, BlockRows]


def join_samples(stream_samples: Sequence[BlockSamples]) -> BlockSamples:
    """Return the samples of several streams, joined along the last dimension."""
    if len(stream_samples) == 1:
        return stream_samples[0]
    keys, positions, ids = (
        np.concatenate([getattr(part, name) for part in stream_samples], -1)
        if stream_samples
        else np.empty(0, np.int64)
        for name in ("keys", "positions", "ids")
    )
    return BlockSamples(
        keys, positions, ids, {key: block for part in stream_samples for key, block in part.blocks.items()}
    )


class SampleDecoder:
    """Decodes samples of blocks.

    With ``any_order``, samples can be decoded in any order. Then a few are decoded at a time, so that they stay in the
    processor's cache until they are in a batch. Without it, each block is decoded once, for all samples that are needed
    of it. With ``holds_values``, the blocks were decoded when they were read, and samples are only gathered.
    """

    def __init__(self, blocks: Mapping[int, BlockRows]) -> None:
        self._kinds: dict[RowGatherer | None, dict[int, BlockRows]] = {}
        for key, block in blocks.items():
            self._kinds.setdefault(gatherer_of(block), {})[key] = block
        self.any_order = None not in self._kinds
        self.holds_values = all(getattr(gatherer, "holds_values", False) for gatherer in self._kinds)

    def decode_samples(self, keys: Ids, positions: Ids) -> Sequence[Any]:
        """Return the samples at these positions, PADDING if a key is -1; the arrays have one dimension.

        They are SampleColumns if all but the padding can be decoded as columns, and a list otherwise.
        """
        kinds = [(one, np.flatnonzero(self._are_of(keys, one))) for one in self._kinds]
        kinds = [(one, here) for one, here in kinds if len(here)]
        if len(kinds) == 1:
            ((gatherer, here),) = kinds
            columns = gather_columns(gatherer, self._kinds[gatherer], keys[here], positions[here])
            if columns is not None:
                return insert_samples(columns, here, dict.fromkeys(np.flatnonzero(keys < 0).tolist(), PADDING))
        found: list[Any] = [PADDING] * len(keys)
        for gatherer, here in kinds:
            blocks = self._kinds[gatherer]
            some = _gather_samples(gatherer, blocks, keys[here], positions[here])
            for place, sample in zip(here.tolist(), some, strict=True):
                found[place] = sample
        return found

    def find_column_steps(self, keys: Ids) -> NDArray[np.bool_]:
        """Return for each step (a row of ``keys``) whether its samples can be decoded as columns, or are padding."""
        found: NDArray[np.bool_] = keys < 0
        for gatherer in self._kinds:
            if hasattr(gatherer, "gather_columns"):
                found |= self._are_of(keys, gatherer)
        return cast(NDArray[np.bool_], found.all(axis=1))

    def _are_of(self, keys: Ids, gatherer: RowGatherer | None) -> NDArray[np.bool_]:
        """Return for each key whether its block has this decoder."""
        return keys >= 0 if len(self._kinds) == 1 else np.isin(keys, list(self._kinds[gatherer]))


def gather_columns(
    gatherer: RowGatherer | None, blocks: Mapping[int, BlockRows], keys: Ids, positions: Ids
) -> SampleColumns | None:
    """Return the rows of several blocks as columns; None if ``gatherer`` has no columns, or not for these rows."""
    gather = getattr(gatherer, "gather_columns", None)
    return None if gather is None else gather(blocks, keys, positions)


def _gather_samples(
    gatherer: RowGatherer | None, blocks: Mapping[int, BlockRows], keys: Ids, positions: Ids
) -> list[Any]:
    return (
        _block_by_block(blocks, keys, positions)
        if gatherer is None
        else gatherer.gather_samples(blocks, keys, positions)
    )


def _block_by_block(blocks: Mapping[int, BlockRows], keys: Ids, rows: Ids) -> list[Any]:
    """Return the samples of these rows of several blocks, in the order of the arrays."""
    by_block = np.argsort(keys, kind="stable")
    sorted_keys, sorted_rows = keys[by_block], rows[by_block]
    bounds = [0, *(np.flatnonzero(np.diff(sorted_keys)) + 1).tolist(), len(keys)]
    grouped: list[Any] = []
    for begin, end in pairwise(bounds if len(keys) else []):
        grouped += blocks[int(sorted_keys[begin])].take(sorted_rows[begin:end])
    places = np.empty(len(keys), np.int64)
    places[by_block] = np.arange(len(keys))
    return [grouped[place] for place in places.tolist()]


_MOST_SAMPLES = 1 << 13
_MOST_BYTES = 8 << 20
# Of samples at a time: their lines and objects fill half of a cache of 1 MB.
_DECODED, _DECODED_BYTES = 512, 1 << 17


@dataclass(frozen=True, slots=True, eq=False)
class StepChunk:
    """Some consecutive steps, with the location of each of their samples: arrays of shape (steps, rows)."""

    steps: range
    located: BlockSamples


@dataclass(frozen=True, slots=True, eq=False)
class StepSamples:
    """The samples of some steps, step by step and row by row, and their ids with the shape (steps, rows)."""

    steps: range
    samples: Sequence[Any]
    ids: NDArray[np.int64]


class StreamReader(Protocol):
    """A reader of one stream, whose samples must be located in ascending order."""

    def prefetch_blocks(self, depths: NDArray[np.int64], /) -> None:
        """Start to read the blocks of these depths in the background."""

    def locate_samples(self, depths: NDArray[np.int64], /) -> BlockSamples:
        """Return the locations of the samples at these depths; padding after the end of the stream."""


def locate_step_chunks(
    plan: SamplePlan,
    rows: Sequence[int],
    steps: range,
    *,
    open_stream: Callable[[int], StreamReader],
    sample_bytes: float,
) -> Iterator[StepChunk]:
    """Yield chunks of ``steps``, in ascending order, for these rows of the global batches.

    The first chunks are short, so that the first batch waits only for one block of each stream. While one chunk is
    used, the blocks of the next chunk are read. ``sample_bytes`` is the mean size of a sample, which decides the length
    of a chunk.
    """
    many = plan.layout.depth_of_step
    streams = [(open_stream(stream), np.array(offsets)) for stream, offsets in streams_of(rows, many).items()]
    most = max(1, min(int(_MOST_BYTES / max(sample_bytes, 1)), _MOST_SAMPLES) // len(rows))

    def depths(part: range, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
        return (np.arange(part.start, part.stop, part.step)[:, None] * many + offsets).reshape(-1)

    def prefetch(part: range) -> None:
        for stream, offsets in streams:
            stream.prefetch_blocks(depths(part, offsets))

    def locate(part: range, stream: StreamReader, offsets: NDArray[np.int64]) -> BlockSamples:
        found, shape = stream.locate_samples(depths(part, offsets)), (len(part), len(offsets))
        return BlockSamples(
            found.keys.reshape(shape), found.positions.reshape(shape), found.ids.reshape(shape), found.blocks
        )

    cuts = _growing_ranges(steps, most=most)
    part = next(cuts, steps)
    prefetch(part)
    while part:
        following = next(cuts, steps[:0])
        prefetch(following)
        yield StepChunk(part, join_samples([locate(part, stream, offsets) for stream, offsets in streams]))
        part = following


def decode_chunks(located_chunks: Iterable[StepChunk], *, workers: int, sample_bytes: float) -> Iterator[StepSamples]:
    """Yield the decoded samples of chunks, as many at a time as fit the cache, or as make a message for each worker."""
    at_once = max(1, min(_DECODED, int(_DECODED_BYTES / max(sample_bytes, 1)))) * max(2 * workers, 1)
    for chunk in located_chunks:
        found = chunk.located
        decoder = SampleDecoder(found.blocks)
        rows = found.ids.shape[1]
        many = max(at_once // rows, 1) if decoder.any_order and not decoder.holds_values else len(chunk.steps)
        for here in _cut_steps(decoder.find_column_steps(found.keys), many):
            samples = decoder.decode_samples(found.keys[here].ravel(), found.positions[here].ravel())
            yield StepSamples(chunk.steps[here], samples, found.ids[here])


def _cut_steps(in_columns: NDArray[np.bool_], many: int) -> Iterator[slice]:
    """Yield slices of ``many`` steps or less, in order. Steps in columns are not in one slice with others."""
    for begin, end in pairwise([0, *(np.flatnonzero(np.diff(in_columns)) + 1).tolist(), len(in_columns)]):
        yield from (slice(at, min(at + many, end)) for at in range(begin, end, many))


def _growing_ranges(steps: range, *, most: int) -> Iterator[range]:
    length = 1
    while steps:
        yield steps[:length]
        steps = steps[length:]
        length = min(2 * length, most)
