"""Steps are found a strip at a time, since what is done once for a strip is not done for every sample; they are decoded
a few at a time, since samples that were just made lie in the processor's cache."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from allranks.data.found import Decoder, Found, beside
from allranks.data.plan import Plan, lanes_of

_MOST_SAMPLES = 1 << 13
_MOST_BYTES = 8 << 20
_DECODED = 512  # samples at a time: their lines and objects fill half of a cache of 1 MB


@dataclass(frozen=True, slots=True, eq=False)
class Strip:
    """Some steps, and where their samples are: arrays of shape (steps, rows)."""

    steps: range
    found: Found


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """The samples of some steps, step by step and row by row, and their ids: (steps, rows)."""

    steps: range
    samples: list[Any]
    ids: NDArray[np.int64]


class Finding(Protocol):
    """A lane in which samples are found, in ascending order."""

    def ask(self, depths: NDArray[np.int64], /) -> None:
        """Have the blocks of these depths read, in the background."""

    def find(self, depths: NDArray[np.int64], /) -> Found:
        """Return where the samples at these depths are; behind the end of the lane there is padding."""


def strips(
    plan: Plan, rows: Sequence[int], steps: range, *, open_lane: Callable[[int], Finding], sample_bytes: float
) -> Iterator[Strip]:
    """Yield the strips of rows of the global batches of ``steps``, which ascend.

    The first ones are short, so that the first batch waits for one block of each lane only. While one is used, the
    blocks of the next are read. ``sample_bytes`` is the mean of a sample: it says how long a strip may be.
    """
    many = plan.layout.depth_of_step
    lanes = [(open_lane(lane), np.array(offsets)) for lane, offsets in lanes_of(rows, many).items()]
    most = max(1, min(int(_MOST_BYTES / max(sample_bytes, 1)), _MOST_SAMPLES) // len(rows))

    def depths(part: range, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
        return (np.arange(part.start, part.stop, part.step)[:, None] * many + offsets).reshape(-1)

    def ask(part: range) -> None:
        for lane, offsets in lanes:
            lane.ask(depths(part, offsets))

    def find(part: range, lane: Finding, offsets: NDArray[np.int64]) -> Found:
        found, shape = lane.find(depths(part, offsets)), (len(part), len(offsets))
        return Found(found.keys.reshape(shape), found.spots.reshape(shape), found.ids.reshape(shape), found.blocks)

    cuts = _cuts(steps, most=most)
    part = next(cuts, steps)
    ask(part)
    while part:
        following = next(cuts, steps[:0])
        ask(following)
        yield Strip(part, beside([find(part, lane, offsets) for lane, offsets in lanes]))
        part = following


def decoded(strips: Iterable[Strip], *, workers: int) -> Iterator[Samples]:
    """Yield the samples of strips: as many as the cache holds, or as make a message to each of the workers."""
    at_once = _DECODED * max(2 * workers, 1)
    for strip in strips:
        found = strip.found
        decoder = Decoder(found.blocks)
        rows = found.ids.shape[1]
        many = max(at_once // rows, 1) if decoder.any_order else len(strip.steps)
        for at in range(0, len(strip.steps), many):
            here = slice(at, at + many)
            samples = decoder.samples(found.keys[here].ravel(), found.spots[here].ravel())
            yield Samples(strip.steps[here], samples, found.ids[here])


def _cuts(steps: range, *, most: int) -> Iterator[range]:
    length = 1
    while steps:
        yield steps[:length]
        steps = steps[length:]
        length = min(2 * length, most)
