"""An index and a plan to test with: blocks of uneven length, no file behind them."""

from __future__ import annotations

import random

from allranks.data import plan
from allranks.data.index import DatasetIndex, SourceFile
from allranks.data.ledger import Ledger, SampleSum, sums_of_batches


def index_of(samples: int, *, block: int = 7, seed: int = 0) -> DatasetIndex:
    """Return an index of this many samples in blocks of about ``block``."""
    draw, blocks, left = random.Random(seed), [], samples
    while left:
        rows = min(draw.randint(1, 2 * block), left)
        blocks.append((0, 0, 0, rows, 0))
        left -= rows
    return DatasetIndex.from_blocks("test", [SourceFile("a", 1000 * samples, "1")], blocks)


def plan_of(samples: int, global_batch: int, *, epoch: int = 0, **layout: object) -> plan.EpochPlan:
    """Return the plan of an epoch of such an index."""
    index = index_of(samples)
    settings = {"seed": 0, "shuffle": True, **layout}
    return plan.EpochPlan(index, plan.choose_layout(index, global_batch=global_batch, **settings), epoch)  # type: ignore[arg-type]


def read(
    one: plan.EpochPlan, rows: range | tuple[int, ...], begin: int, end: int, seen: SampleSum | None = None
) -> Ledger:
    """Return the ledger of a rank that took steps ``begin`` to ``end`` of these rows, as planned."""
    ledger = Ledger(one.steps, rows, begin=begin, seen=seen)
    go_on(one, ledger, begin, end)
    return ledger


def go_on(one: plan.EpochPlan, ledger: Ledger, begin: int, end: int) -> None:
    """Take further steps, as planned."""
    ids = one.row_ids(ledger.rows, begin, end)
    for step, count, mixed in zip(range(begin, end), *sums_of_batches(ids), strict=True):
        ledger.record_batch(step, count, mixed)
