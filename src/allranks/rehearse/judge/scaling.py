"""Find gradients that are summed where their mean is meant, and gradients that are clipped before they are averaged."""

from __future__ import annotations

import math
from collections.abc import Iterator

from allranks.findings import Finding
from allranks.rehearse.judge.base import Case, Kind, finding
from allranks.rehearse.judge.replicas import tables_of

SCALED = Kind(
    "AR024",
    "gradients-scaled-by-world",
    "error",
    "The step is as many times too long as there are ranks: a learning rate that is right on one rank is wrong here.",
    "Divide summed gradients by the number of ranks (or all_reduce with ReduceOp.AVG), or average over all samples.",
)
CLIPPED = Kind(
    "AR026",
    "clipped-before-reduction",
    "warning",
    "Each rank scales its part of the gradient by another number: the mean is another one, and may exceed the limit.",
    "Average the gradients first, then clip them, on all ranks alike.",
)


def judge(case: Case) -> Iterator[Finding]:
    """Yield a finding for gradients that are summed and not divided, and one for a clip before the reduction."""
    yield from filter(None, (_summed(case), _clipped(case)))


def _summed(case: Case) -> Finding | None:
    found = case.trace.by_rank("summed")
    if case.trace.ranks == 1 or not all(found.values()):
        return None
    first = found[0][0]
    text = (
        f"{first.data['count']} of {first.data['total']} gradients are summed over {case.trace.ranks} ranks, and "
        "nothing divides them: the loss is a mean over the samples of each rank"
    )
    evidence = [(f"rank {rank}, step {events[0].step}", events[0]) for rank, events in list(found.items())[:2]]
    return finding(SCALED, text, first, evidence)


def _clipped(case: Case) -> Finding | None:
    """Return a finding if the ranks clip by different norms, and their optimizers then get equal gradients."""
    averaged = {
        table.number for table in tables_of(case).get(0, []) if table.rows[0] and not table.differing("gradient")
    }
    clips = case.trace.by_rank("clip")
    for events in zip(*clips.values(), strict=False):
        first, norms = events[0], [event.data["norm"] for event in events]
        if case.trace.ranks == 1 or first.step not in averaged or math.isclose(min(norms), max(norms), rel_tol=1e-3):
            continue
        text = (
            f"gradients are clipped before they are averaged: at step {first.step + 1} the norm is {norms[0]:.4g} on "
            f"rank 0 and {norms[1]:.4g} on rank 1, and the optimizer gets equal gradients"
        )
        return finding(
            CLIPPED, text, first, [(f"rank {event.rank}: norm {event.data['norm']:.4g}", event) for event in events[:2]]
        )
    return None
