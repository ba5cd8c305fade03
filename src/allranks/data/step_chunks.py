"""Locate samples for many steps at a time, and decode a few of them at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from allranks.data.block_samples import BlockSamples, Decoder, join_samples
from allranks.data.plan import Plan, streams_of

_MOST_SAMPLES = 1 << 13
_MOST_BYTES = 8 << 20
_DECODED = 512  # samples at a time: their lines and objects fill half of a cache of 1 MB


@dataclass(frozen=True, slots=True, eq=False)
class StepChunk:
    """Some steps, and the places of their samples: arrays of shape (steps, rows)."""

    steps: range
    located: BlockSamples


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """The samples of some steps, step by step and row by row, and their ids: (steps, rows)."""

    steps: range
    samples: list[Any]
    ids: NDArray[np.int64]


class StreamReader(Protocol):
    """A stream whose samples are located in ascending order."""

    def prefetch(self, depths: NDArray[np.int64], /) -> None:
        """Prefetch the blocks of these depths in the background."""

    def locate(self, depths: NDArray[np.int64], /) -> BlockSamples:
        """Return the places of the samples at these depths; padding after the end of the stream."""


def step_chunks(
    plan: Plan, rows: Sequence[int], steps: range, *, open_stream: Callable[[int], StreamReader], sample_bytes: float
) -> Iterator[StepChunk]:
    """Yield chunks of ``steps``, in ascending order, for rows of the global batches.

    The first ones are short, so that the first batch waits for one block of each stream only. While one is used, the
    blocks of the next are read. ``sample_bytes`` is the mean size of a sample: it decides the length of a chunk.
    """
    many = plan.layout.depth_of_step
    streams = [(open_stream(stream), np.array(offsets)) for stream, offsets in streams_of(rows, many).items()]
    most = max(1, min(int(_MOST_BYTES / max(sample_bytes, 1)), _MOST_SAMPLES) // len(rows))

    def depths(part: range, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
        return (np.arange(part.start, part.stop, part.step)[:, None] * many + offsets).reshape(-1)

    def prefetch(part: range) -> None:
        for stream, offsets in streams:
            stream.prefetch(depths(part, offsets))

    def locate(part: range, stream: StreamReader, offsets: NDArray[np.int64]) -> BlockSamples:
        found, shape = stream.locate(depths(part, offsets)), (len(part), len(offsets))
        return BlockSamples(
            found.keys.reshape(shape), found.positions.reshape(shape), found.ids.reshape(shape), found.blocks
        )

    cuts = _cuts(steps, most=most)
    part = next(cuts, steps)
    prefetch(part)
    while part:
        following = next(cuts, steps[:0])
        prefetch(following)
        yield StepChunk(part, join_samples([locate(part, stream, offsets) for stream, offsets in streams]))
        part = following


def decode_chunks(step_chunks: Iterable[StepChunk], *, workers: int) -> Iterator[Samples]:
    """Yield the samples of chunks: as many as fit the cache, or as make a message to each of the workers."""
    at_once = _DECODED * max(2 * workers, 1)
    for chunk in step_chunks:
        found = chunk.located
        decoder = Decoder(found.blocks)
        rows = found.ids.shape[1]
        many = max(at_once // rows, 1) if decoder.any_order else len(chunk.steps)
        for at in range(0, len(chunk.steps), many):
            here = slice(at, at + many)
            samples = decoder.samples(found.keys[here].ravel(), found.positions[here].ravel())
            yield Samples(chunk.steps[here], samples, found.ids[here])


def _cuts(steps: range, *, most: int) -> Iterator[range]:
    length = 1
    while steps:
        yield steps[:length]
        steps = steps[length:]
        length = min(2 * length, most)
