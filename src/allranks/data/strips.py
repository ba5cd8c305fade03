"""Steps are prepared a strip at a time: what is done once for a strip is not done for every sample."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from allranks.data.plan import Plan, lanes_of

_MOST_SAMPLES = 1 << 13
_MOST_BYTES = 8 << 20


@dataclass(frozen=True, slots=True, eq=False)
class Strip:
    """Steps from ``begin`` on: ``samples`` with their ``ids``, lane by lane; the sample of a step and row is number
    ``places[step - begin, row]``.

    Samples that were made one after the other lie beside each other in memory, so all that is done to them is done in
    this order; in the order of the rows it would take three times as long.
    """

    begin: int
    samples: list[Any]
    ids: NDArray[np.int64]
    places: NDArray[np.int64]


class Taking(Protocol):
    """A lane whose samples are taken."""

    def ask(self, depths: NDArray[np.int64], /) -> None: ...

    def take(self, depths: NDArray[np.int64], /) -> tuple[list[Any], NDArray[np.int64]]: ...


def strips(
    plan: Plan, rows: Sequence[int], begin: int, *, open_lane: Callable[[int], Taking], sample_bytes: float
) -> Iterator[Strip]:
    """Yield the strips of rows of the global batches, from step ``begin`` to the end of the epoch.

    The first ones are short, so that the first batch waits for one block of each lane only. While one is made, the
    blocks of the next are read. ``sample_bytes`` is the mean of a sample: it says how long a strip may be.
    """
    many = plan.layout.depth_of_step
    lanes = {open_lane(lane): np.array(offsets) for lane, offsets in lanes_of(rows, many).items()}
    most = max(1, min(int(_MOST_BYTES / max(sample_bytes, 1)), _MOST_SAMPLES) // len(rows))

    def depths(steps: range, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
        return (np.arange(steps.start, steps.stop)[:, None] * many + offsets).reshape(-1)

    for steps, following in _pairs(_cuts(begin, plan.steps, most=most)):
        for ahead in (steps, following):
            for lane, offsets in lanes.items():
                lane.ask(depths(ahead, offsets))
        samples: list[Any] = []
        ids, places = [], []
        for lane, offsets in lanes.items():
            places.append(np.arange(len(steps) * len(offsets)).reshape(len(steps), len(offsets)) + len(samples))
            some, own = lane.take(depths(steps, offsets))
            samples += some
            ids.append(own)
        yield Strip(steps.start, samples, np.concatenate(ids), np.concatenate(places, 1))


def _cuts(begin: int, end: int, *, most: int) -> Iterator[range]:
    length = 1
    while begin < end:
        yield range(begin, min(begin + length, end))
        begin += length
        length = min(2 * length, most)


def _pairs(cuts: Iterator[range]) -> Iterator[tuple[range, range]]:
    """Yield every range with the one that follows it, the last one with an empty one."""
    last: range | None = None
    for one in cuts:
        if last is not None:
            yield last, one
        last = one
    if last is not None:
        yield last, range(0)
