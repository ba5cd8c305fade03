"""Count every batch that is taken, and prove that the samples are exactly those of the plan, each taken once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allranks.data import agreement
from allranks.data.agreement import RowShares
from allranks.data.gaps import LedgerGap, describe_gap, find_gaps
from allranks.data.ledger import Ledger, SampleSum, dropped_sum, planned_sum, sum_of_range, sums_of_batches
from allranks.data.pipeline import CountedBatch
from allranks.data.plan import SamplePlan
from allranks.data.sample_columns import Column
from allranks.data.snapshot import Snapshot, single_rank_error
from allranks.data.start import compare_columns, compare_shared_rows, row_hashes
from allranks.errors import LedgerMismatch
from allranks.world.base import World
from allranks.world.claims import by_claim, mismatch_of_ranks

_MOST = 8  # places that an error tells, and ids of each


def verify_epoch(world: World, plan: SamplePlan, ledger: Ledger, *, copied_rows: Ledger | None = None) -> SampleSum:
    """Prove that all ranks and earlier jobs took the planned samples of the epoch, and return the sum of these samples.

    **Every rank must call**, at the same step. ``ledger`` has the rows that this rank counts, so that each row of the
    batch is counted by one rank. ``copied_rows`` has the rows that this rank holds but another rank counts. At the end
    of an epoch the sum is compared with the sum of all ids, which does not depend on the plan. Before that, it is
    compared with the plan's sum.

    Raises LedgerMismatch on every rank. It names ranks, steps and, if they can be known, the samples that are missing
    or were taken in excess. Raises Mismatch if the ranks are at different steps.
    """
    copied = copied_rows is None or planned_sum(
        plan, copied_rows.rows, copied_rows.begin, copied_rows.end
    ).same_samples(copied_rows.total)
    at = [ledger.begin, ledger.end, list(ledger.seen)]
    report = [at, list(ledger.total), list(_planned_sum_of_rank(plan, ledger.end, world.rank, world.size)), copied]
    taken, wanted, right = world.exchange("ledger", f"epoch {plan.epoch}", report, decide=_compare_total)
    if not right:
        _raise_located_mismatch(
            world, plan, ledger, copied_rows, f"{taken[0]} samples were taken, and {wanted[0]} planned"
        )
    return SampleSum(*taken)


def _planned_sum_of_rank(plan: SamplePlan, end: int, rank: int, size: int) -> SampleSum:
    """Return one rank's part of the sum of all samples that should have been taken until step ``end``."""

    def part(count: int) -> range:
        return range(rank * count // size, (rank + 1) * count // size)

    if end < plan.steps or not plan.once:
        return planned_sum(plan, part(plan.layout.global_batch), 0, end)
    ids = part(plan.samples)
    return sum_of_range(ids.start, ids.stop).minus(dropped_sum(plan, part(plan.layout.streams)))


def _compare_total(values: Sequence[Any]) -> list[Any]:
    """Add up the ranks' sums. Return the sum that was taken, the sum that is expected, and whether they are equal."""
    places = by_claim(
        (rank, f"steps {begin}-{end - 1}, after {seen[0]} samples ({seen[1]:016x})")
        for rank, ((begin, end, seen), *_) in enumerate(values)
    )
    if len(places) > 1:
        remedy = "Did a rank skip a step, or restore another checkpoint?"
        raise mismatch_of_ranks("the ranks took different steps of the epoch", places, remedy=remedy)
    taken, wanted = SampleSum(*values[0][0][2]), SampleSum()
    for _, mine, share, _ in values:
        taken, wanted = taken.plus(SampleSum(*mine)), wanted.plus(SampleSum(*share))
    right = taken.same_samples(wanted) and all(copied for *_, copied in values)
    return [list(taken), list(wanted), right]


def _raise_located_mismatch(world: World, plan: SamplePlan, ledger: Ledger, copies: Ledger | None, counts: str) -> None:
    """Find out which ranks, steps and samples differ from the plan, and raise LedgerMismatch on every rank."""
    found = [gap for one in (ledger, copies) if one for gap in find_gaps(plan, one, world.rank)]
    gaps_shown = [[one.rank, one.begin, one.end, one.missing[:_MOST], one.extra[:_MOST]] for one in found[:_MOST]]

    def gather(values: Sequence[Any]) -> list[Any]:
        wrong = agreement.count_error([rows for _, _, rows in values], plan.layout.global_batch)
        return [sum(count for count, _, _ in values), [gap for _, some, _ in values for gap in some][:_MOST], wrong]

    report = [len(found), gaps_shown, agreement.rows_to_ranges(ledger.rows)]
    count, listed, wrong = world.exchange("ledger", f"epoch {plan.epoch}: where", report, decide=gather)
    places = [LedgerGap(rank, begin, end, tuple(missing), tuple(extra)) for rank, begin, end, missing, extra in listed]
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
    """Checks that all ranks together take each sample of the plan once.

    One of the ranks that hold a row of the batch counts that row. The other ranks count their copies of the row.
    """

    def __init__(self, world: World, shares: RowShares) -> None:
        self._world, self._shares = world, shares
        counted = self.counted_rows(shares.rows)
        self._counted, self._copied = np.flatnonzero(counted), np.flatnonzero(~counted)
        self._is_first = world.size > 1

    def counted_rows(self, rows: Sequence[int]) -> NDArray[np.bool_]:
        return np.isin(rows, self._shares.counted)

    def begin_epoch(self, plan: SamplePlan, step: int, earlier_sum: SampleSum) -> None:
        self._plan = plan
        rows = self._shares.rows
        self._ledger = Ledger(plan.steps, [rows[at] for at in self._counted], begin=step, seen=earlier_sum)
        self._copies = Ledger(plan.steps, [rows[at] for at in self._copied], begin=step) if len(self._copied) else None

    def record_batch(self, counted_batch: CountedBatch) -> None:
        batch = counted_batch.batch
        if self._is_first:
            self._is_first = False
            compare_columns(self._world, batch.columns)
            if self._shares.anywhere:
                self._compare_shared_rows(counted_batch)
        if self._copies is None:
            self._ledger.record_batch(batch.step, *counted_batch.sum, batch.ids)
            return
        for ledger, places in ((self._ledger, self._counted), (self._copies, self._copied)):
            ids = batch.ids[places]
            count, mixed = sums_of_batches(ids[None])
            unusable = int((~batch.mask[places] & (ids >= 0)).sum())
            ledger.record_batch(batch.step, count[0], mixed[0], unusable, ids)

    def verify_taken(self) -> SampleSum:
        return verify_epoch(self._world, self._plan, self._ledger, copied_rows=self._copies)

    def snapshot(self, epoch: int, depth: int) -> Snapshot:
        ledger = self._ledger
        return Snapshot(self._world, epoch, depth, self._plan.facts(), ledger.total, ledger.seen)

    def _compare_shared_rows(self, counted: CountedBatch) -> None:
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
    """Checks a single rank, without other ranks: the samples that it takes must be those of its part of the plan."""

    def __init__(self, rows: Sequence[int], rank: int) -> None:
        self._rows, self._rank = rows, rank

    def counted_rows(self, rows: Sequence[int]) -> NDArray[np.bool_]:
        return np.ones(len(rows), bool)

    def begin_epoch(self, plan: SamplePlan, step: int, earlier_sum: SampleSum) -> None:
        self._plan = plan
        self._ledger = Ledger(plan.steps, self._rows, begin=step, seen=earlier_sum)

    def record_batch(self, counted_batch: CountedBatch) -> None:
        self._ledger.record_batch(counted_batch.batch.step, *counted_batch.sum, counted_batch.batch.ids)

    def verify_taken(self) -> SampleSum:
        found = find_gaps(self._plan, self._ledger, self._rank)
        if found:
            raise LedgerMismatch(
                f"rank {self._rank}: the ledger of epoch {self._plan.epoch}: {describe_gap(found[0])}.", gaps=found
            )
        return self._ledger.total

    def snapshot(self, _epoch: int, _depth: int) -> Snapshot:
        raise single_rank_error(self._rank)
