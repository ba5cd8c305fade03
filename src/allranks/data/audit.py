"""Prove that the samples that all ranks took are those of the plan, each once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from allranks.data import agreement
from allranks.data.gaps import Gap, describe_gap, gaps
from allranks.data.ledger import Ledger, Sum, dropped, planned, sum_of_range
from allranks.data.plan import Plan
from allranks.errors import LedgerMismatch
from allranks.world.base import World
from allranks.world.claims import by_claim, mismatch

_MOST = 8  # places that an error tells, and ids of each


def verify(world: World, plan: Plan, ledger: Ledger, *, copies: Ledger | None = None) -> Sum:
    """Return the sum of the samples that were taken of the epoch, by all ranks and earlier jobs, once it is proven.

    **Every rank must call**, at the same step. ``ledger`` has the rows that this rank counts, so that each row of the
    batch is counted by one rank; ``copies`` the rows that it holds, and another rank counts. At the end of an epoch the
    sum is compared with that of all ids, which does not depend on the plan; before, with the plan's.

    Raises LedgerMismatch on every rank: ranks, steps and, where they can be known, the samples that are missing or were
    taken in excess. Raises Mismatch where the ranks are at different steps.
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
        raise mismatch("the ranks took different steps of the epoch", places, remedy=remedy)
    taken, wanted = Sum(*values[0][0][2]), Sum()
    for _, mine, share, _ in values:
        taken, wanted = taken.plus(Sum(*mine)), wanted.plus(Sum(*share))
    right = taken.same_samples(wanted) and all(copied for *_, copied in values)
    return [list(taken), list(wanted), right]


def _localise(world: World, plan: Plan, ledger: Ledger, copies: Ledger | None, counts: str) -> None:
    """Raise, on every rank, the error that names ranks, steps and samples."""
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
