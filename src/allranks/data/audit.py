"""Count every batch that is taken, and prove that the samples are exactly those of the plan, each taken once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allranks.data import agreement
from allranks.data.agreement import Shares
from allranks.data.batch import Column
from allranks.data.gaps import Gap, describe_gap, gaps
from allranks.data.ledger import Ledger, Sum, dropped, planned, sum_of_range, sums
from allranks.data.pipeline import CountedBatch
from allranks.data.plan import Plan
from allranks.data.snapshot import Snapshot, state_of_one
from allranks.data.start import compare_shared_rows, row_hashes
from allranks.errors import LedgerMismatch
from allranks.world.base import World
from allranks.world.claims import by_claim, mismatch_of_ranks

_MOST = 8  # places that an error tells, and ids of each


def verify(world: World, plan: Plan, ledger: Ledger, *, copies: Ledger | None = None) -> Sum:
    """Prove that all ranks and earlier jobs took the planned samples of the epoch, and return the sum of these samples.

    **Every rank must call**, at the same step. ``ledger`` has the rows that this rank counts, so that each row of the
    batch is counted by one rank. ``copies`` has the rows that this rank holds but another rank counts. At the end of an
    epoch the sum is compared with the sum of all ids, which does not depend on the plan. Before that, it is compared
    with the plan's sum.

    Raises LedgerMismatch on every rank. It names ranks, steps and, if they can be known, the samples that are missing
    or were taken in excess. Raises Mismatch if the ranks are at different steps.
    """
    copied = copies is None or planned(plan, copies.rows, copies.begin, copies.end).same_samples(copies.total)
    at = [ledger.begin, ledger.end, list(ledger.seen)]
    report = [at, list(ledger.total), list(_share(plan, ledger.end, world.rank, world.size)), copied]
    taken, wanted, right = world.exchange("ledger", f"epoch {plan.epoch}", report, decide=_add)
    if not right:
        _localise(world, plan, ledger, copies, f"{taken[0]} samples were taken, and {wanted[0]} planned")
    return Sum(*taken)


def _share(plan: Plan, end: int, rank: int, size: int) -> Sum:
    """Return one rank's part of the sum of all samples that should have been taken until step ``end``."""

    def part(count: int) -> range:
        return range(rank * count // size, (rank + 1) * count // size)

    if end < plan.steps or not plan.once:
        return planned(plan, part(plan.layout.global_batch), 0, end)
    ids = part(plan.samples)
    return sum_of_range(ids.start, ids.stop).minus(dropped(plan, part(plan.layout.streams)))


def _add(values: Sequence[Any]) -> list[Any]:
    """Return the sum of the samples that were taken, the sum that is expected, and whether they are equal."""
    places = by_claim(
        (rank, f"steps {begin}-{end - 1}, after {seen[0]} samples ({seen[1]:016x})")
        for rank, ((begin, end, seen), *_) in enumerate(values)
    )
    if len(places) > 1:
        remedy = "Did a rank skip a step, or restore another checkpoint?"
        raise mismatch_of_ranks("the ranks took different steps of the epoch", places, remedy=remedy)
    taken, wanted = Sum(*values[0][0][2]), Sum()
    for _, mine, share, _ in values:
        taken, wanted = taken.plus(Sum(*mine)), wanted.plus(Sum(*share))
    right = taken.same_samples(wanted) and all(copied for *_, copied in values)
    return [list(taken), list(wanted), right]


def _localise(world: World, plan: Plan, ledger: Ledger, copies: Ledger | None, counts: str) -> None:
    """Raise, on every rank, the LedgerMismatch that names ranks, steps and samples."""
    found = [gap for one in (ledger, copies) if one for gap in gaps(plan, one, world.rank)]
    gaps_shown = [[one.rank, one.begin, one.end, one.missing[:_MOST], one.extra[:_MOST]] for one in found[:_MOST]]

    def gather(values: Sequence[Any]) -> list[Any]:
        wrong = agreement.count_error([rows for _, _, rows in values], plan.layout.global_batch)
        return [sum(count for count, _, _ in values), [gap for _, some, _ in values for gap in some][:_MOST], wrong]

    report = [len(found), gaps_shown, agreement.ranges(ledger.rows)]
    count, listed, wrong = world.exchange("ledger", f"epoch {plan.epoch}: where", report, decide=gather)
    places = [Gap(rank, begin, end, tuple(missing), tuple(extra)) for rank, begin, end, missing, extra in listed]
    where = "; ".join(map(describe_gap, places)) + (f"; and {count - len(places)} more" if count > len(places) else "")
    if wrong:
        where = f"{wrong} counted" + (f"; {where}" if where else "")
    before = f"before step {ledger.begin}, by an earlier job: what the checkpoint says of it is not what was planned"
    raise LedgerMismatch(
        f"rank {world.rank}: the ledger of epoch {plan.epoch} to step {ledger.end}: {counts}: {where or before}.",
        gaps=places,
        ranks=[gap.rank for gap in places],
        step=places[0].begin if places else None,
        sample=next((sample for gap in places for sample in (*gap.missing, *gap.extra)), None),
        remedy="Restore an earlier checkpoint: it restores the data position together with the weights.",
    )


class SharedAudit:
    """The audit of all ranks together.

    One of the ranks that hold a row of the batch counts that row. The other ranks count their copies of the row.
    """

    def __init__(self, world: World, shares: Shares) -> None:
        self._world, self._shares = world, shares
        counted = self.counts(shares.rows)
        self._counted, self._copied = np.flatnonzero(counted), np.flatnonzero(~counted)
        self._to_compare = shares.anywhere

    def counts(self, rows: Sequence[int]) -> NDArray[np.bool_]:
        return np.isin(rows, self._shares.counted)

    def begin(self, plan: Plan, step: int, seen: Sum) -> None:
        self._plan = plan
        rows = self._shares.rows
        self._ledger = Ledger(plan.steps, [rows[at] for at in self._counted], begin=step, seen=seen)
        self._copies = Ledger(plan.steps, [rows[at] for at in self._copied], begin=step) if len(self._copied) else None

    def record(self, counted: CountedBatch) -> None:
        batch = counted.batch
        if self._to_compare:
            self._to_compare = False
            self._compare(counted)
        if self._copies is None:
            self._ledger.record(batch.step, *counted.sum, batch.ids)
            return
        for ledger, places in ((self._ledger, self._counted), (self._copies, self._copied)):
            ids = batch.ids[places]
            count, mixed = sums(ids[None])
            unusable = int((~batch.mask[places] & (ids >= 0)).sum())
            ledger.record(batch.step, count[0], mixed[0], unusable, ids)

    def verify(self) -> Sum:
        return verify(self._world, self._plan, self._ledger, copies=self._copies)

    def snapshot(self, epoch: int, depth: int) -> Snapshot:
        ledger = self._ledger
        return Snapshot(self._world, epoch, depth, self._plan.facts(), ledger.total, ledger.seen)

    def _compare(self, counted: CountedBatch) -> None:
        shared = set(self._shares.shared)
        places = [at for at, row in enumerate(self._shares.rows) if row in shared]
        columns = {name: _rows_of_column(column, places) for name, column in counted.batch.columns.items()}
        hashes = row_hashes(columns) if places else np.empty(0, np.uint64)
        compare_shared_rows(self._world, self._shares.shared, hashes)


def _rows_of_column(column: Column, places: Sequence[int]) -> NDArray[Any]:
    if isinstance(column, np.ndarray):
        return column[list(places)]
    values = np.empty(len(places), object)
    values[:] = [column[at] for at in places]
    return values


class LocalAudit:
    """The audit of a single rank without a world: the samples that it takes are compared with its part of the plan."""

    def __init__(self, rows: Sequence[int], rank: int) -> None:
        self._rows, self._rank = rows, rank

    def counts(self, rows: Sequence[int]) -> NDArray[np.bool_]:
        return np.ones(len(rows), bool)

    def begin(self, plan: Plan, step: int, seen: Sum) -> None:
        self._plan = plan
        self._ledger = Ledger(plan.steps, self._rows, begin=step, seen=seen)

    def record(self, counted: CountedBatch) -> None:
        self._ledger.record(counted.batch.step, *counted.sum, counted.batch.ids)

    def verify(self) -> Sum:
        found = gaps(self._plan, self._ledger, self._rank)
        if found:
            raise LedgerMismatch(
                f"rank {self._rank}: the ledger of epoch {self._plan.epoch}: {describe_gap(found[0])}.", gaps=found
            )
        return self._ledger.total

    def snapshot(self, _epoch: int, _depth: int) -> Snapshot:
        raise state_of_one(self._rank)
