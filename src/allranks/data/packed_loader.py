"""Yield batches of packed rows. The number of steps is not known in advance, so the ranks agree on it repeatedly."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from allranks.data.agreement import RowShares
from allranks.data.batch import Batch
from allranks.data.device_iterator import DeviceIterator, LoaderAudit, place_ahead
from allranks.data.ledger import SampleSum, sum_of_ids
from allranks.data.loader import OpenedData
from allranks.data.pack import RowCarry
from allranks.data.packed import CountedPackedBatch, StepGroup
from allranks.data.plan import SamplePlan
from allranks.data.prefetch import iterate_ahead
from allranks.data.snapshot import ResumePosition, Snapshot, single_rank_error
from allranks.errors import DataError, LedgerMismatch, NoLength
from allranks.world.base import World

B = TypeVar("B")


class PackedAudit(LoaderAudit, Protocol):
    """What a loader of packed rows needs of its audit."""

    def begin_epoch(self, plan: SamplePlan, row_carries: Mapping[int, RowCarry], earlier_sum: SampleSum) -> None:
        """Begin an epoch at these positions; ``earlier_sum`` is the sum of the samples that earlier jobs took of it."""

    def max_steps_over_ranks(self, local_steps: int) -> int:
        """Return the maximum of ``local_steps``, the number of next steps for which a rank has rows, over all ranks.

        Collective.
        """

    def record_batch(self, counted_batch: CountedPackedBatch) -> None:
        """Count a batch that the loader yields."""

    def end_epoch(self, row_carries: Mapping[int, RowCarry]) -> None:
        """End the epoch at these positions of the streams, because no rank has another row."""


class PackedLoader(DeviceIterator):
    """This rank's packed rows of the global batches; ``Dataset.pack(...).batch(...).loader`` returns it.

    It behaves like ``Loader``, but the number of steps, and so ``len()``, is not known in advance. Every rank takes as
    many steps as the rank with the most rows, with masked rows if it has no more. The ranks agree on up to 32 steps at
    once, in the thread that iterates. ``audit`` raises DataError in the middle of an epoch that is packed by best-fit,
    because only at the end of the epoch is it known which samples should have ended.
    """

    _audit: PackedAudit
    _carries: Mapping[int, RowCarry]

    def __init__(
        self,
        groups: Callable[[SamplePlan, int, Mapping[int, RowCarry]], Iterator[StepGroup]],
        opened_data: OpenedData,
        rows: Sequence[int],
        *,
        audit: PackedAudit,
        resume: ResumePosition,
    ) -> None:
        self.rows = rows
        self._groups, self._plan_of, self._audit = groups, opened_data.plan, audit
        self._rest, self._close = opened_data.rest, opened_data.close
        carries = {stream: RowCarry.from_json(carry) for stream, carry in resume.carry.items()}
        self._begin(resume.epoch, resume.step, carries, resume.seen)
        for stream, carry in carries.items():
            _check_carry(self._plan, stream, carry)

    def __len__(self) -> int:
        raise NoLength(
            "there is no len(loader): the number of packed rows is known only once all samples are tokenized.",
            remedy="All ranks take the same number of steps: iterate to the end. For a schedule, choose a number of "
            "steps, and start the next epoch until they are done.",
        )

    def __bool__(self) -> bool:
        return True  # not by a length

    def _place_each(self, place: Callable[[Batch], B], *, ahead: int) -> Generator[B, None, None]:
        with iterate_ahead(self._groups(self._plan, self._step, self._carries), 1) as made:
            for counted, placed in place_ahead(
                self._agreed_batches(made), lambda counted: place(counted.batch), batches_ahead=ahead
            ):
                self._step, self._carries = self._step + 1, counted.carries
                self._audit.record_batch(counted)
                yield placed
        self._audit.end_epoch(self._end)
        self._audit.verify_taken()
        self._begin(self.epoch + 1, 0, {}, SampleSum())

    def _agreed_batches(self, groups: Iterable[StepGroup]) -> Iterator[CountedPackedBatch]:
        """Yield the steps for which at least one rank has rows."""
        for group in groups:
            agreed = self._audit.max_steps_over_ranks(group.have)
            yield from group.steps[:agreed]
            if agreed < len(group.steps):
                self._end = group.steps[-1].carries
                return

    def _begin(self, epoch: int, step: int, carries: Mapping[int, RowCarry], seen: SampleSum) -> None:
        self._plan, self._step, self._carries = self._plan_of(epoch), step, carries
        self._audit.begin_epoch(self._plan, carries, seen)


def _check_carry(plan: SamplePlan, stream: int, carry: RowCarry) -> None:
    """Raise DataError if a state is at a position that a stream does not have."""
    last = max([carry.depth, *(depth + 1 for depth in carry.depths_to_read_again)])
    length = plan.stream_length(stream) if 0 <= stream < plan.layout.streams else -1
    if last > length:
        raise DataError(
            f"resuming the data: the state is at sample {last:,} of stream {stream}: expected a stream below "
            f"{plan.layout.streams:,}, and at most {max(length, 0):,} samples."
        )


class PackedSharedAudit:
    """The audit over all ranks. Of the ranks that hold a row, one counts its samples."""

    def __init__(self, world: World, shares: RowShares, facts: Mapping[str, str | int]) -> None:
        self._world, self._facts, self._shares = world, facts, shares
        self._counted = np.flatnonzero(self.counted_rows(shares.rows)).tolist()

    def counted_rows(self, rows: Sequence[int]) -> NDArray[np.bool_]:
        return np.isin(rows, self._shares.counted)

    def begin_epoch(self, plan: SamplePlan, row_carries: Mapping[int, RowCarry], earlier_sum: SampleSum) -> None:
        self._plan, self._carries = plan, dict(row_carries)
        self._seen, self._taken = earlier_sum, SampleSum()

    def max_steps_over_ranks(self, local_steps: int) -> int:
        most: float = self._world.max(local_steps, name="packed steps")
        return int(most)

    def record_batch(self, counted_batch: CountedPackedBatch) -> None:
        self._carries = dict(counted_batch.carries)
        for at in self._counted:
            self._taken = self._taken.plus(sum_of_ids(counted_batch.ids[at], counted_batch.bad[at]))

    def end_epoch(self, row_carries: Mapping[int, RowCarry]) -> None:
        self._carries = dict(row_carries)

    def verify_taken(self) -> SampleSum:
        wanted = {
            str(stream): list(_sum_of_ended_samples(self._plan, stream, carry))
            for stream, carry in self._carries.items()
        }
        said = [list(self._taken), list(self._seen), wanted]
        verdict = self._world.exchange("ledger", f"packed epoch {self._plan.epoch}", said, decide=_merge_states)
        total, due = SampleSum(*verdict[0]), SampleSum(*verdict[1])
        if not total.same_samples(due):
            raise LedgerMismatch(
                f"rank {self._world.rank}: the ledger of epoch {self._plan.epoch}: {total.samples} samples have ended, "
                f"and {due.samples} should have{', other ones' if total.samples == due.samples else ''}.",
                remedy="Restore an earlier checkpoint: it restores the data position together with the weights.",
            )
        return total

    def snapshot(self, epoch: int, depth: int, /) -> Snapshot:
        carry = {stream: one.to_json() for stream, one in self._carries.items()}
        return Snapshot(
            self._world, epoch, depth, {**self._plan.facts(), **self._facts}, self._taken, self._seen, carry
        )


def _sum_of_ended_samples(plan: SamplePlan, stream: int, carry: RowCarry) -> SampleSum:
    """Return the sum of the samples of a stream that end before the position ``carry``.

    Raises DataError in the middle of best-fit.
    """
    if carry.open or carry.skip:
        raise DataError(
            "rows packed by best-fit can be audited at the end of an epoch only.",
            remedy='Do not call audit() before, or pack by method="split".',
        )
    return sum_of_ids(plan.stream_ids(stream, 0, carry.depth))


def _merge_states(values: Sequence[Any]) -> list[list[int]]:
    total, streams = SampleSum(*values[0][1]), dict[str, list[int]]()
    for taken, _, wanted in values:
        total = total.plus(SampleSum(*taken))
        streams |= wanted
    due = SampleSum()
    for one in streams.values():
        due = due.plus(SampleSum(*one))
    return [list(total), list(due)]


class PackedLocalAudit:
    """The audit of a single rank, without other ranks. The epoch ends with this rank's last row."""

    def __init__(self, rank: int) -> None:
        self._rank = rank

    def counted_rows(self, rows: Sequence[int]) -> NDArray[np.bool_]:
        return np.ones(len(rows), bool)

    def begin_epoch(self, _plan: SamplePlan, _carries: Mapping[int, RowCarry], earlier_sum: SampleSum) -> None:
        self._taken = earlier_sum

    def max_steps_over_ranks(self, local_steps: int) -> int:
        return local_steps

    def record_batch(self, counted_batch: CountedPackedBatch) -> None:
        for ids, bad in zip(counted_batch.ids, counted_batch.bad, strict=True):
            self._taken = self._taken.plus(sum_of_ids(ids, bad))

    def end_epoch(self, _carries: Mapping[int, RowCarry]) -> None:
        pass

    def verify_taken(self) -> SampleSum:
        return self._taken

    def snapshot(self, _epoch: int, _depth: int, /) -> Snapshot:
        raise single_rank_error(self._rank)
