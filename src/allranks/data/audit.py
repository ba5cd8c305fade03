"""Prove that what all ranks took is what was planned, each sample once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from allranks.data import agreement
from allranks.data.gaps import Gap, gaps, in_words
from allranks.data.ledger import Ledger, Sum, dropped, planned, whole
from allranks.data.plan import Plan
from allranks.errors import LedgerMismatch
from allranks.world.base import World
from allranks.world.claims import by_claim, mismatch

_MOST = 8  # places that an error tells, and ids of each


def verify(world: World, plan: Plan, ledger: Ledger, *, copies: Ledger | None = None) -> Sum:
    """Return what was taken of the epoch until now, by all ranks and by the jobs before, once it is proven.

    **Every rank must call**, at the same step. ``ledger`` is of the rows that this rank counts, so that each row of the
    batch is counted by one rank; ``copies`` of those that it holds, too, and another counts. At the end of an epoch the
    sum is compared with that of all ids there are, which knows nothing of the plan; before, with the plan's.

    Raises LedgerMismatch on every rank: ranks, steps and, where they can be known, the samples that were lost or taken
    in excess. Raises Mismatch where the ranks are at different steps.
    """
    copied = copies is None or planned(plan, copies.rows, copies.begin, copies.end).same_samples(copies.total)
    at = [ledger.begin, ledger.end, list(ledger.seen)]
    said = [at, list(ledger.total), list(_share(plan, ledger.end, world.rank, world.size)), copied]
    taken, wanted, right = world.exchange("ledger", f"epoch {plan.epoch}", said, decide=_add)
    if not right:
        _localise(world, plan, ledger, copies, f"{taken[0]} samples were taken, and {wanted[0]} planned")
    return Sum(*taken)


def _share(plan: Plan, end: int, rank: int, size: int) -> Sum:
    """Return one rank's part of the work to sum up all that should have been taken until step ``end``."""

    def part(count: int) -> range:
        return range(rank * count // size, (rank + 1) * count // size)

    if end < plan.steps or not plan.once:
        return planned(plan, part(plan.layout.global_batch), 0, end)
    ids = part(plan.samples)
    return whole(ids.start, ids.stop).minus(dropped(plan, part(plan.layout.streams)))


def _add(values: Sequence[Any]) -> list[Any]:
    """Return what was taken, what should have been, and whether all is right."""
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
    """Raise, on every rank, the error that says where."""
    found = [gap for one in (ledger, copies) if one for gap in gaps(plan, one, world.rank)]
    told = [[one.rank, one.begin, one.end, one.lost[:_MOST], one.extra[:_MOST]] for one in found[:_MOST]]

    def gather(values: Sequence[Any]) -> list[Any]:
        wrong = agreement.count_error([rows for _, _, rows in values], plan.layout.global_batch)
        return [sum(count for count, _, _ in values), [gap for _, some, _ in values for gap in some][:_MOST], wrong]

    said = [len(found), told, agreement.ranges(ledger.rows)]
    count, listed, wrong = world.exchange("ledger", f"epoch {plan.epoch}: where", said, decide=gather)
    places = [Gap(rank, begin, end, tuple(lost), tuple(extra)) for rank, begin, end, lost, extra in listed]
    where = "; ".join(map(in_words, places)) + (f"; and {count - len(places)} more" if count > len(places) else "")
    if wrong:
        where = f"{wrong} counted" + (f"; {where}" if where else "")
    before = f"before step {ledger.begin}, by an earlier job: what the checkpoint says of it is not what was planned"
    raise LedgerMismatch(
        f"rank {world.rank}: the ledger of epoch {plan.epoch} to step {ledger.end}: {counts}: {where or before}.",
        gaps=places,
        ranks=[gap.rank for gap in places],
        step=places[0].begin if places else None,
        sample=next((sample for gap in places for sample in (*gap.lost, *gap.extra)), None),
        remedy="Restore an earlier checkpoint: it restores the data position together with the weights.",
    )
