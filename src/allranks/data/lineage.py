"""Check that the loader states in a run's checkpoints describe one reading of the data, each sample once.

A checkpoint's state has the sum of all samples that led to its weights: of this attempt, and of those that it went on
from. So the attempts that survive tile the epoch from its begin to each checkpoint if that sum is the plan's own, and
if the checkpoints' places follow each other. What was read after a checkpoint and then rolled back is in no sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from allranks.data.ledger import Sum, planned
from allranks.data.plan import Plan
from allranks.data.snapshot import settings_of

_WORDS = {"epoch", "depth", "plan", "of", "seen"}


@dataclass(frozen=True, slots=True)
class ReadPosition:
    """Where the data stood at a step of the training, by the state below ``key`` of the checkpoint's ``extra``."""

    step: int
    key: str
    epoch: int
    depth: int
    seen: Sum
    plan: str
    of: Mapping[str, Any]
    whole: bool

    @property
    def place(self) -> tuple[int, int]:
        return self.epoch, self.depth


def read_positions(step: int, extra: Any, key: str = "extra") -> Iterator[ReadPosition]:
    """Yield the loader states in what a checkpoint has beside the arrays, wherever they stand in it."""
    if isinstance(extra, Mapping) and extra.keys() >= _WORDS:
        try:
            samples, mixed, bad = extra["seen"]
            seen = Sum(int(samples), int(mixed, 16), int(bad))
            epoch, depth, of = int(extra["epoch"]), int(extra["depth"]), settings_of(extra)
        except (TypeError, ValueError):
            return  # something else, of the same words
        yield ReadPosition(step, key, epoch, depth, seen, str(extra["plan"]), of, "part" not in extra)
    elif isinstance(extra, Mapping):
        for name, value in extra.items():
            yield from read_positions(step, value, f"{key}/{name}")
    elif isinstance(extra, list | tuple):
        for number, value in enumerate(extra):
            yield from read_positions(step, value, f"{key}/{number}")


def expected(stand: ReadPosition) -> int | None:
    """Return how many samples lie before a place, by what the state says of its plan; None where it does not say."""
    streams, samples = stand.of.get("streams"), stand.of.get("samples")
    if not isinstance(streams, int) or streams < 1 or "packing" in stand.of:  # whose depth counts packed rows
        return None
    if "quotas" in stand.of:  # a mixture, whose streams have no end before the epoch's
        return streams * stand.depth
    if not isinstance(samples, int):
        return None
    edges = [stream * samples // streams for stream in range(streams + 1)]
    return sum(min(stand.depth, end - begin) for begin, end in pairwise(edges))


def faults(stand: ReadPosition, before: ReadPosition | None) -> list[str]:
    """Return what does not hold of a state, by itself and after the one before it."""
    found = []
    if not stand.whole:
        found.append("it is what one rank knew, not the state of all: save state.gathered()")
    wanted = expected(stand)
    if stand.whole and wanted is not None and stand.seen.samples != wanted:
        found.append(f"{stand.seen.samples:,} samples were taken, and {wanted:,} lie before this place")
    if before is not None and before.plan != stand.plan:
        words = dict.fromkeys([*before.of, *stand.of])
        others = [f"{word}: {before.of.get(word)}, {stand.of.get(word)}" for word in words]
        differ = [told for word, told in zip(words, others, strict=True) if before.of.get(word) != stand.of.get(word)]
        found.append(f"another plan than at step {before.step} ({'; '.join(differ) or 'digest'})")
    elif before is not None and stand.place <= before.place:
        found.append(f"it does not go on from step {before.step}, at epoch {before.epoch}, depth {before.depth:,}")
    return found


def differs(stand: ReadPosition, plan: Plan) -> str:
    """Return how a state's sum differs from that of the samples of a plan before its place; empty if it does not.

    ``plan`` is of the state's epoch. One of other data, or of another order, differs by what its facts say.
    """
    if plan.digest() != stand.plan:
        here = plan.facts()
        words = [word for word, value in stand.of.items() if value != here.get(word)]
        told = "; ".join(f"{word}: {stand.of[word]} in the state, {here.get(word)} here" for word in words)
        return f"the data is not that of the state ({told or 'another version of the plan'})"
    steps, rest = divmod(stand.depth, plan.layout.depth_of_step)
    if rest:
        return f"depth {stand.depth:,} is in the middle of a batch of {plan.layout.global_batch}"
    wanted = planned(plan, range(plan.layout.global_batch), 0, steps)
    if stand.seen.same_samples(wanted):
        return ""
    if stand.seen.samples != wanted.samples:
        return f"{stand.seen.samples:,} samples were taken, and the plan has {wanted.samples:,}"
    return f"{stand.seen.samples:,} samples were taken, but not those of the plan: some twice, others never"


def rows_per_step(found: Sequence[ReadPosition]) -> tuple[float, ...]:
    """Return how many rows a step of the training took between checkpoints of one epoch: one number, if always as many.

    Empty where no two checkpoints are of one epoch, or the plan's streams are not known.
    """
    pairs = [(a, b) for a, b in pairwise(found) if a.epoch == b.epoch and b.step > a.step]
    speeds = {b.of.get("streams", 0) * (b.depth - a.depth) / (b.step - a.step) for a, b in pairs}
    return tuple(sorted(speeds - {0.0}))
