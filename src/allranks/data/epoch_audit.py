"""Count every batch that is taken, over all ranks or on one rank alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allranks.data import audit, gaps
from allranks.data.agreement import Shares
from allranks.data.batch import Column
from allranks.data.ledger import Ledger, Sum, sums
from allranks.data.pipeline import CountedBatch
from allranks.data.plan import Plan
from allranks.data.snapshot import Snapshot, state_of_one
from allranks.data.start import compare_shared_rows, row_hashes
from allranks.errors import LedgerMismatch
from allranks.world.base import World


class SharedAudit:
    """The audit of all ranks. Each row of the batch is counted by one rank that holds it; the others count copies."""

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
        return audit.verify(self._world, self._plan, self._ledger, copies=self._copies)

    def snapshot(self, epoch: int, depth: int) -> Snapshot:
        ledger = self._ledger
        return Snapshot(self._world, epoch, depth, self._plan.facts(), ledger.total, ledger.seen)

    def _compare(self, counted: CountedBatch) -> None:
        shared = set(self._shares.shared)
        places = [at for at, row in enumerate(self._shares.rows) if row in shared]
        columns = {name: _some(column, places) for name, column in counted.batch.columns.items()}
        hashes = row_hashes(columns) if places else np.empty(0, np.uint64)
        compare_shared_rows(self._world, self._shares.shared, hashes)


def _some(column: Column, places: Sequence[int]) -> NDArray[Any]:
    if isinstance(column, np.ndarray):
        return column[list(places)]
    values = np.empty(len(places), object)
    values[:] = [column[at] for at in places]
    return values


class LocalAudit:
    """The audit of a rank that reads alone: the samples that it takes are compared with its part of the plan."""

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
        found = gaps.gaps(self._plan, self._ledger, self._rank)
        if found:
            raise LedgerMismatch(
                f"rank {self._rank}: the ledger of epoch {self._plan.epoch}: {gaps.describe_gap(found[0])}.", gaps=found
            )
        return self._ledger.total

    def snapshot(self, _epoch: int, _depth: int) -> Snapshot:
        raise state_of_one(self._rank)
