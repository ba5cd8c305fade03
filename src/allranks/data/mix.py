"""Plan a mixture of several data sets by weight: decide which data set fills each position of a stream.

Of every 2,048 positions of a stream, each part (data set) has exactly the share of its weight. A permutation decides
which positions these are. Positions continue over epochs. So a part that an epoch reads only partly continues in the
next epoch. A part that is read to its end begins a new epoch of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from allranks.data import order
from allranks.data.index import DatasetIndex
from allranks.data.plan import EpochPlan, IndexLayout, choose_layout, rows_ids
from allranks.digest import digest, show
from allranks.errors import DataError

CYCLE = 2048
Stop = Literal["first", "all"]
Ids = NDArray[np.int64]


def quotas_of_weights(weights: Sequence[float]) -> tuple[int, ...]:
    """Divide the CYCLE positions of a stream by weight.

    Each weight gets at least one. Raises DataError for invalid weights.
    """
    numbers = all(hasattr(weight, "__float__") for weight in weights)
    if not weights or not numbers or not all(0 < weight < float("inf") for weight in weights) or len(weights) > CYCLE:
        raise DataError(f"the weights of a mixture: expected positive numbers, found {list(weights)}.")
    exact = np.array(weights, np.float64) / sum(weights) * CYCLE
    many = np.maximum(np.floor(exact), 1).astype(int)
    while many.sum() != CYCLE:  # the largest remainders get what is left; parts of one position keep it
        over = many.sum() > CYCLE
        rest = np.where(many > 1, exact - many, np.inf) if over else many - exact
        many[int(np.argmin(rest))] += -1 if over else 1
    return tuple(many.tolist())


@dataclass(frozen=True, slots=True)
class MixPositions:
    """For each position of a stream: the data set (``part``) that fills it, and its number in that part."""

    part: Ids
    number: Ids


class MixPlan:
    """The plan of one epoch of a mixture of indexes. The ids count the samples of all parts, one part after the other.

    An epoch ends when, by the weights, the ``first`` of the parts has been read, or ``all`` have been.
    """

    once = False

    def __init__(
        self, indexes: Sequence[DatasetIndex], weights: Sequence[float], layout: IndexLayout, epoch: int, *, stop: Stop
    ) -> None:
        self.layout, self.epoch = layout, epoch
        self.indexes = tuple(indexes)
        self.quotas = quotas_of_weights(weights)
        self._stop = stop
        self.bases = np.concatenate([np.zeros(1, np.int64), np.cumsum([index.samples for index in indexes])])
        empty = [number for number, index in enumerate(indexes) if index.samples < layout.streams]
        if empty:
            raise DataError(
                f"part {empty[0]} of the mixture has {indexes[empty[0]].samples} samples, fewer than the "
                f"{layout.streams} streams.",
                remedy="Set streams=1, or leave the part out.",
            )
        self.samples = int(self.bases[-1])
        self._part_epoch = lru_cache(maxsize=4 * len(self.indexes))(self._make_part)

    @cached_property
    def depth(self) -> int:
        """How many samples an epoch takes of each stream."""
        streams, many = self.layout.streams, self.layout.depth_of_step
        full = [index.samples / streams * CYCLE / quota for index, quota in zip(self.indexes, self.quotas, strict=True)]
        if self._stop == "first":
            return max(int(min(full)) // many, 1) * many
        return -(-int(np.ceil(max(full))) // many) * many

    @property
    def steps(self) -> int:
        return self.depth // self.layout.depth_of_step

    def stream_length(self, _stream: int) -> int:
        return self.depth

    def digest(self) -> str:
        """Return 16 hexadecimal digits that identify the order of the samples."""
        parts = [self.part_plan(number, 0).digest() for number in range(len(self.indexes))]
        return show(digest("mix", *parts, *map(str, self.quotas), str(self.depth)))[:16]

    def facts(self) -> dict[str, str | int]:
        """Return the settings that decide the order, by name: ranks compare them, and a state stores them."""
        how = self.layout
        return {
            "plan": self.digest(),
            "samples": "/".join(str(index.samples) for index in self.indexes),
            "quotas": "/".join(map(str, self.quotas)),
            "streams": how.streams,
            "seed": how.seed,
            "shuffle": how.shuffle,
            "epoch depth": self.depth,
        }

    def mix_positions(self, stream: int, depths: Ids) -> MixPositions:
        """Return which part fills each position of a stream, for the positions at these depths."""
        places = depths + self.epoch * self.depth
        cycles, inside = np.divmod(places, CYCLE)
        part, number = np.empty_like(places), np.empty_like(places)
        for cycle in np.unique(cycles).tolist():
            here = cycles == cycle
            whose, before = self._cycle(stream, cycle)
            part[here] = whose[inside[here]]
            number[here] = cycle * np.array(self.quotas)[part[here]] + before[inside[here]]
        return MixPositions(part, number)

    def _cycle(self, stream: int, cycle: int) -> tuple[Ids, Ids]:
        """Return the part of each position of a cycle, and how many positions of that part are before it."""
        key = order.make_key("allranks", "mix", self.layout.seed, stream, cycle)
        many = np.repeat(np.arange(len(self.quotas)), self.quotas)
        whose = many[order.permutation(key, CYCLE)]
        before = np.empty(CYCLE, np.int64)
        by_part = np.argsort(whose, kind="stable")
        before[by_part] = np.concatenate([np.arange(quota) for quota in self.quotas])
        return whose, before

    def part_plan(self, part_number: int, epoch: int) -> EpochPlan:
        """Return the plan of one part for an epoch of that part."""
        return self._part_epoch(part_number, epoch)

    def _make_part(self, number: int, epoch: int) -> EpochPlan:
        own = choose_layout(
            self.indexes[number],
            global_batch=self.layout.global_batch,
            seed=order.make_key("allranks", "part", self.layout.seed, number) >> 65,
            shuffle=self.layout.shuffle,
            streams=self.layout.streams,
        )
        return EpochPlan(self.indexes[number], own, epoch)

    def stream_ids(self, stream: int, begin: int, end: int) -> Ids:
        """Return the ids of the samples at depths ``begin`` to ``end`` of a stream."""
        turns = self.mix_positions(stream, np.arange(begin, end))
        found = np.empty(end - begin, np.int64)
        for number in np.unique(turns.part).tolist():
            mine = turns.part == number
            epochs, depths = np.divmod(turns.number[mine], self.part_plan(number, 0).stream_length(stream))
            ids = np.empty(len(depths), np.int64)
            for epoch in np.unique(epochs).tolist():
                here = epochs == epoch
                low, high = int(depths[here].min()), int(depths[here].max()) + 1
                ids[here] = self.part_plan(number, epoch).stream_ids(stream, low, high)[depths[here] - low]
            found[mine] = ids + self.bases[number]
        return found

    def row_ids(self, rows: Sequence[int], begin: int, end: int) -> Ids:
        """Return the ids of these rows of the global batches ``begin`` to ``end``, with the shape (steps, rows)."""
        return rows_ids(self, rows, begin, end)
