"""Find the steps and samples at which a rank's ledger differs from the plan. This module does no I/O.

The mixing of ids can be undone. So if one sample is missing, read twice or replaced by another, the difference of two
sums names that sample. If more samples differ, the rank's record of its last batches names them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from allranks.data.ledger import Ledger, SampleSum, mix_ids, planned_id_chunks, sum_of_ids, unmix_ids
from allranks.data.plan import SamplePlan

_MOST_GAPS = 1 << 16


@dataclass(frozen=True, slots=True)
class LedgerGap:
    """A range of steps, ``begin`` to ``end``, in which the samples that a rank took differ from the plan.

    ``missing`` are ids that were planned and not taken, ``extra`` are ids that were taken and not planned. Both are
    empty if the ids are not known.
    """

    rank: int
    begin: int
    end: int
    missing: tuple[int, ...] = ()
    extra: tuple[int, ...] = ()


def find_gaps(plan: SamplePlan, ledger: Ledger, rank: int) -> list[LedgerGap]:
    """Return the ranges of steps in which the samples of this rank differ from the plan for its rows."""
    found: list[LedgerGap] = []
    many = ledger.interval
    for begin, ids in planned_id_chunks(plan, ledger.rows, ledger.begin, ledger.end, interval=many):
        end = begin + len(ids)
        counts, sums = ledger.sums_of_steps(begin, end)
        taken = ids >= 0
        edges = np.maximum(np.arange(begin // many, -(-end // many)) * many - begin, 0)
        wanted = np.add.reduceat(taken.sum(axis=1), edges)
        mixed = np.where(taken, mix_ids(ids), np.uint64(0)).sum(axis=1, dtype=np.uint64)
        odd = np.flatnonzero((wanted != counts) | (np.add.reduceat(mixed, edges) != sums))
        for at in odd.tolist():
            low = begin + int(edges[at])
            high = min(low - low % many + many, end)
            mine = SampleSum(int(counts[at]), int(sums[at]))
            found.append(_gap_of_rank(plan, ledger, rank, ids[low - begin : high - begin], low, mine))
        if len(found) >= _MOST_GAPS:
            break
    return found


def _gap_of_rank(
    plan: SamplePlan, ledger: Ledger, rank: int, ids: NDArray[np.int64], begin: int, taken: SampleSum
) -> LedgerGap:
    planned, end = ids[ids >= 0], begin + len(ids)
    known = ledger.ids_of_steps(begin, end)
    if known is None:
        missing, extra = _single_difference(planned, sum_of_ids(planned).minus(taken), plan.samples)
    else:
        wanted, found = Counter(planned.tolist()), Counter(known.tolist())
        missing, extra = tuple((wanted - found).elements()), tuple((found - wanted).elements())
    return LedgerGap(rank, begin, end, missing, extra)


def _single_difference(
    planned: NDArray[np.int64], difference: SampleSum, samples: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return (missing ids, extra ids) if at most one sample is missing and one is extra; else two empty tuples.

    ``difference`` is the planned sum minus the sum that was taken.
    """
    rest = np.array([difference.mixed], np.uint64)
    if difference.samples == 1:
        missing = int(unmix_ids(rest)[0])
        return ((missing,), ()) if missing in planned else ((), ())
    if difference.samples == -1:
        extra = int(unmix_ids(-rest)[0])
        return ((), (extra,)) if extra < samples else ((), ())
    if difference.samples == 0:
        others = unmix_ids(mix_ids(planned) - rest)
        at = np.flatnonzero(others < samples)
        return tuple(planned[at[:1]].tolist()), tuple(others[at[:1]].tolist())
    return (), ()


def describe_gap(gap: LedgerGap) -> str:
    """Return a gap as text, e.g. ``rank 1, step 512: lost sample 77, took sample 5 instead``."""
    steps = f"step {gap.begin}" if gap.end == gap.begin + 1 else f"steps {gap.begin}-{gap.end - 1}"
    what = [f"lost {_sample_text(gap.missing)}"] if gap.missing else []
    what += [f"took {_sample_text(gap.extra)} {'instead' if gap.missing else 'in excess'}"] if gap.extra else []
    return f"rank {gap.rank}, {steps}: {', '.join(what) or 'other samples than planned'}"


def _sample_text(ids: tuple[int, ...]) -> str:
    return f"{'sample' if len(ids) == 1 else 'samples'} {', '.join(map(str, ids))}"
