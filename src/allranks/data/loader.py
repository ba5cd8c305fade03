"""This rank's rows of every global batch: read ahead in a thread, handed out in order, added up in the ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

from allranks.data.ahead import Ahead
from allranks.data.base import Bad, Reader
from allranks.data.batch import Batch, Collator
from allranks.data.lanes import Lane, MixLane
from allranks.data.ledger import Ledger
from allranks.data.mix import MixPlan
from allranks.data.pipeline import Taken, batches
from allranks.data.plan import EpochPlan, Plan
from allranks.data.strips import Strip, Taking, strips
from allranks.errors import DataError


@dataclass(frozen=True, slots=True)
class Supply:
    """What a loader reads from, opened. ``plan`` returns that of an epoch; ``prepared`` applies what is to be done to
    the samples of strips; ``sample_bytes`` is the mean of a sample in its file."""

    plan: Callable[[int], Plan]
    readers: tuple[Reader, ...]
    pool: Executor
    prepared: Callable[[Iterator[Strip], int], Iterator[Strip]]
    sample_bytes: float

    def strips(self, plan: Plan, rows: Sequence[int], begin: int) -> Iterator[Strip]:
        """Yield the prepared strips of these rows from a step on."""

        def open_lane(lane: int) -> Taking:
            if isinstance(plan, MixPlan):
                return MixLane(plan, lane, readers=self.readers, pool=self.pool)
            assert isinstance(plan, EpochPlan)
            return Lane(plan, lane, reader=self.readers[0], pool=self.pool)

        raw = strips(plan, rows, begin, open_lane=open_lane, sample_bytes=self.sample_bytes)
        return self.prepared(raw, plan.epoch)

    def example(self) -> Any:
        """Return a sample that can be used. Raises DataError if the first thousand of an epoch cannot."""
        plan, seen = self.plan(0), 0
        for strip in self.strips(plan, range(plan.layout.global_batch), 0):
            seen += len(strip.samples)
            usable = next((sample for sample in strip.samples if not isinstance(sample, Bad)), None)
            if usable is not None:
                return usable
            if seen > _MOST_LOOKED_AT:
                break
        raise DataError(
            f"none of {seen} samples can be used, so nobody knows what a row is.",
            remedy="Look at the reasons: allranks data show.",
        )


_MOST_LOOKED_AT = 1000


class Loader:
    """This rank's rows of the global batches. Made by ``Dataset.loader``.

    Iterating yields the batches from here to the end of the epoch, the same number on every rank; iterating again, the
    next epoch. What was yielded is taken: ``state`` says so, wherever else the threads are. Stopping in the middle of
    an epoch loses nothing. ``len()`` is the number of steps of an epoch.
    """

    def __init__(self, supply: Supply, rows: Sequence[int], *, prefetch: int) -> None:
        self._supply = supply
        self.rows = rows
        self._prefetch = prefetch
        self._collator = Collator(supply.example)
        self._begin(0, 0)

    def _begin(self, epoch: int, step: int) -> None:
        self.plan = self._supply.plan(epoch)
        self.epoch, self.step = epoch, step
        self.ledger = Ledger(self.plan.steps, step)

    def __len__(self) -> int:
        return self.plan.steps

    def __iter__(self) -> Iterator[Batch]:
        made: Iterator[Taken] = batches(
            self._supply.strips(self.plan, self.rows, self.step), self.plan, self.rows, self._collator
        )
        ahead = Ahead(made, self._prefetch, name="allranks-data") if self._prefetch else None
        try:
            for taken in ahead or made:
                self.step = taken.batch.step + 1
                self.ledger.take(taken.batch.step, *taken.sum)
                yield taken.batch
        finally:
            if ahead:
                ahead.close()
        self._end_epoch()

    def _end_epoch(self) -> None:
        self._begin(self.epoch + 1, 0)
