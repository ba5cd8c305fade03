"""Find random numbers that are equal on all ranks although each rank needs its own.

The evidence is the state of torch's random generator at the steps. This module does no I/O.
"""

from __future__ import annotations

from collections.abc import Iterator

from allranks.findings import Finding
from allranks.rehearse.judge.base import Case, Kind, finding
from allranks.rehearse.trace import Event, Trace

SAME_MASKS = Kind(
    "AR701",
    "same-prng-key-on-every-device",
    "warning",
    "All ranks drop the same elements: the noise of N ranks is that of one, and does not average out.",
    "After the model is made, seed each rank by its number: torch.manual_seed(seed + rank).",
)
_FEWEST = 3


def judge(case: Case) -> Iterator[Finding]:
    """Yield a finding if all ranks have the same random state at their steps, and the model has dropout."""
    steps: dict[int, dict[int, Event]] = {}
    for event in case.trace.of("weights"):
        if event.data["optimizer"] == 0:
            steps.setdefault(event.data["number"], {})[event.rank] = event
    complete = [by_rank for by_rank in steps.values() if len(by_rank) == case.trace.ranks > 1]
    if len(complete) < _FEWEST or not all(event.data.get("dropout") for event in complete[0].values()):
        return
    states = [{event.data["random"] for event in by_rank.values()} for by_rank in complete]
    if all(len(state) == 1 for state in states) and len(set.union(*states)) > 1:
        first = complete[0][0]
        name, number = first.data["dropout"], len(complete)
        text = f"all ranks have the same random state at {number} steps, so dropout ({name}) is the same on all"
        evidence = [(f"rank {rank}: random state {event.data['random']}", event) for rank, event in complete[0].items()]
        if one := finding(SAME_MASKS, text, first, evidence[:2]):
            yield one


def is_of_rank_0(before: Trace, after: Trace, step: int) -> bool:
    """Return whether all ranks have one random state after a resume at ``step``, though their states
    differed before.
    """
    before_it = {e.data["random"] for e in before.of("weights") if e.data["number"] == step and "random" in e.data}
    now = [e.data["random"] for e in after.of("weights") if e.data["number"] == 0 and "random" in e.data]
    return len(before_it) == before.ranks > 1 and len(now) == before.ranks and len(set(now)) == 1
