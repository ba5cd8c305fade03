"""Load packed rows. The number of steps is not known in advance, so the ranks agree on it as they go."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from allranks.data.agreement import Shares
from allranks.data.batch import Batch
from allranks.data.device_iterator import DeviceIterator, LoaderAudit, in_flight
from allranks.data.ledger import Sum, sum_of
from allranks.data.pack import Carry
from allranks.data.packed import CountedPackedBatch, Group
from allranks.data.plan import Plan
from allranks.data.prefetch import prefetched
from allranks.data.snapshot import Resume, Snapshot, state_of_one
from allranks.errors import DataError, LedgerMismatch, NoLength
from allranks.world.base import World

B = TypeVar("B")


class PackedAudit(LoaderAudit, Protocol):
    """The audit of a loader of packed rows."""

    def begin(self, plan: Plan, carries: Mapping[int, Carry], seen: Sum) -> None:
        """Begin an epoch at these positions; ``seen`` is the sum of the samples that earlier jobs took of it."""

    def agree(self, have: int) -> int:
        """Return the maximum of ``have`` over all ranks: for how many next steps a rank has rows. Collective."""

    def record(self, counted: CountedPackedBatch) -> None:
        """Count a batch that the loader yields."""

    def end(self, carries: Mapping[int, Carry]) -> None:
        """End the epoch at these positions of the streams, because no rank has another row."""


class PackedLoader(DeviceIterator):
    """This rank's packed rows of the global batches; ``Dataset.pack(...).batch(...).loader`` returns it.

    It behaves like ``Loader``, but the number of steps, and so ``len()``, is not known in advance. Every rank takes as
    many steps as the rank with the most rows, with masked rows if it has no more. The ranks agree on up to 32 steps at
    once, in the thread that iterates. ``audit`` raises DataError in the middle of an epoch that is packed by best-fit,
    because only at the end of the epoch is it known which samples should have ended.
    """

    _audit: PackedAudit
    _carries: Mapping[int, Carry]

    def __init__(
        self,
        groups: Callable[[Plan, int, Mapping[int, Carry]], Iterator[Group]],
        plan: Callable[[int], Plan],
        rows: Sequence[int],
        *,
        audit: PackedAudit,
        close: Callable[[], None],
        resume: Resume,
    ) -> None:
        self.rows = rows
        self._groups, self._plan_of, self._audit, self._close = groups, plan, audit, close
        carries = {stream: Carry.from_json(carry) for stream, carry in resume.carry.items()}
        self._begin(resume.epoch, resume.step, carries, resume.seen)

    def __len__(self) -> int:
        raise NoLength(
            "there is no len(loader): the number of packed rows is known only once all samples are tokenized.",
            remedy="All ranks take the same number of steps: iterate to the end. For a schedule, choose a number of "
            "steps, and start the next epoch until they are done.",
        )

    def __bool__(self) -> bool:
        return True  # not by a length

    def _each(self, place: Callable[[Batch], B], *, ahead: int) -> Iterator[B]:
        with prefetched(self._groups(self._plan, self._step, self._carries), 1) as made:
            for counted, placed in in_flight(self._agreed(made), lambda counted: place(counted.batch), ahead=ahead):
                self._step, self._carries = self._step + 1, counted.carries
                self._audit.record(counted)
                yield placed
        self._audit.end(self._end)
        self._audit.verify()
        self._begin(self.epoch + 1, 0, {}, Sum())

    def _agreed(self, groups: Iterable[Group]) -> Iterator[CountedPackedBatch]:
        """Yield the steps for which at least one rank has rows."""
        for group in groups:
            agreed = self._audit.agree(group.have)
            yield from group.steps[:agreed]
            if agreed < len(group.steps):
                self._end = group.steps[-1].carries
                return

    def _begin(self, epoch: int, step: int, carries: Mapping[int, Carry], seen: Sum) -> None:
        self._plan, self._step, self._carries = self._plan_of(epoch), step, carries
        self._audit.begin(self._plan, carries, seen)


class PackedSharedAudit:
    """The audit of all ranks together. One of the ranks that hold a row counts its samples."""

    def __init__(self, world: World, shares: Shares, facts: Mapping[str, str | int]) -> None:
        self._world, self._facts, self._shares = world, facts, shares
        self._counted = np.flatnonzero(self.counts(shares.rows)).tolist()

    def counts(self, rows: Sequence[int]) -> NDArray[np.bool_]:
        return np.isin(rows, self._shares.counted)

    def begin(self, plan: Plan, carries: Mapping[int, Carry], seen: Sum) -> None:
        self._plan, self._carries = plan, dict(carries)
        self._seen, self._taken = seen, Sum()

    def agree(self, have: int) -> int:
        most: float = self._world.max(have, name="packed steps")
        return int(most)

    def record(self, counted: CountedPackedBatch) -> None:
        self._carries = dict(counted.carries)
        for at in self._counted:
            self._taken = self._taken.plus(sum_of(counted.ids[at], counted.bad[at]))

    def end(self, carries: Mapping[int, Carry]) -> None:
        self._carries = dict(carries)

    def verify(self) -> Sum:
        wanted = {str(stream): list(_ended(self._plan, stream, carry)) for stream, carry in self._carries.items()}
        said = [list(self._taken), list(self._seen), wanted]
        verdict = self._world.exchange("ledger", f"packed epoch {self._plan.epoch}", said, decide=_merge_states)
        total, due = Sum(*verdict[0]), Sum(*verdict[1])
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


def _ended(plan: Plan, stream: int, carry: Carry) -> Sum:
    """Return the sum of the samples of a stream that end before a carry. Raises DataError in the middle of best-fit."""
    if carry.open or carry.skip:
        raise DataError(
            "rows packed by best-fit can be audited at the end of an epoch only.",
            remedy='Do not call audit() before, or pack by method="split".',
        )
    return sum_of(plan.stream_ids(stream, 0, carry.depth))


def _merge_states(values: Sequence[Any]) -> list[list[int]]:
    total, streams = Sum(*values[0][1]), dict[str, list[int]]()
    for taken, _, wanted in values:
        total = total.plus(Sum(*taken))
        streams |= wanted
    due = Sum()
    for one in streams.values():
        due = due.plus(Sum(*one))
    return [list(total), list(due)]


class PackedLocalAudit:
    """The audit of a single rank without a world: its epoch ends with its own last row."""

    def __init__(self, rank: int) -> None:
        self._rank = rank

    def counts(self, rows: Sequence[int]) -> NDArray[np.bool_]:
        return np.ones(len(rows), bool)

    def begin(self, _plan: Plan, _carries: Mapping[int, Carry], seen: Sum) -> None:
        self._taken = seen

    def agree(self, have: int) -> int:
        return have

    def record(self, counted: CountedPackedBatch) -> None:
        for ids, bad in zip(counted.ids, counted.bad, strict=True):
            self._taken = self._taken.plus(sum_of(ids, bad))

    def end(self, _carries: Mapping[int, Carry]) -> None:
        pass

    def verify(self) -> Sum:
        return self._taken

    def snapshot(self, _epoch: int, _depth: int, /) -> Snapshot:
        raise state_of_one(self._rank)
