"""Check that the loader states in a run's checkpoints describe one reading of the data, each sample once.

A checkpoint's state has the sum of all samples that led to its weights, of this attempt and of earlier attempts. The
attempts cover the epoch from its start to each checkpoint if two things hold: that sum is the plan's, and the positions
of the checkpoints follow each other. Samples that were read after a checkpoint and then rolled back are in no sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from allranks.data.ledger import SampleSum, planned_sum
from allranks.data.plan import SamplePlan
from allranks.data.snapshot import settings_of_state

_WORDS = {"epoch", "depth", "plan", "of", "seen"}


@dataclass(frozen=True, slots=True)
class ReadPosition:
    """The position in the data at one checkpoint, from the loader state at ``key`` of the checkpoint's ``extra``."""

    step: int
    key: str
    epoch: int
    depth: int
    seen: SampleSum
    plan: str
    of: Mapping[str, Any]
    complete: bool

    @property
    def epoch_and_depth(self) -> tuple[int, int]:
        return self.epoch, self.depth


def read_positions(step: int, extra: Any, key: str = "extra") -> Iterator[ReadPosition]:
    """Yield the position of each loader state in a checkpoint's ``extra``, at any depth of nesting."""
    if isinstance(extra, Mapping) and extra.keys() >= _WORDS:
        try:
            samples, mixed, bad = extra["seen"]
            seen = SampleSum(int(samples), int(mixed, 16), int(bad))
            epoch, depth, of = int(extra["epoch"]), int(extra["depth"]), settings_of_state(extra)
        except (TypeError, ValueError):
            return  # something else, of the same names
        yield ReadPosition(step, key, epoch, depth, seen, str(extra["plan"]), of, "part" not in extra)
    elif isinstance(extra, Mapping):
        for name, value in extra.items():
            yield from read_positions(step, value, f"{key}/{name}")
    elif isinstance(extra, list | tuple):
        for number, value in enumerate(extra):
            yield from read_positions(step, value, f"{key}/{number}")


def expected_samples(position: ReadPosition) -> int | None:
    """Return the number of samples before a position, from the state's settings; None if they do not determine it."""
    streams, samples = position.of.get("streams"), position.of.get("samples")
    if not isinstance(streams, int) or streams < 1 or "packing" in position.of:  # whose depth counts packed rows
        return None
    if "quotas" in position.of:  # a mixture, whose streams have no end before the epoch's
        return streams * position.depth
    if not isinstance(samples, int):
        return None
    edges = [stream * samples // streams for stream in range(streams + 1)]
    return sum(min(position.depth, end - begin) for begin, end in pairwise(edges))


def find_faults(position: ReadPosition, previous: ReadPosition | None) -> list[str]:
    """Return texts that describe what is wrong with a loader state, also compared with the previous state."""
    found = []
    if not position.complete:
        found.append("it is what one rank knew, not the state of all: save state.gathered()")
    wanted = expected_samples(position)
    if position.complete and wanted is not None and position.seen.samples != wanted:
        found.append(f"{position.seen.samples:,} samples were taken, and {wanted:,} lie before this place")
    if previous is not None and previous.plan != position.plan:
        names = dict.fromkeys([*previous.of, *position.of])
        others = [f"{word}: {previous.of.get(word)}, {position.of.get(word)}" for word in names]
        differ = [
            told for word, told in zip(names, others, strict=True) if previous.of.get(word) != position.of.get(word)
        ]
        found.append(f"another plan than at step {previous.step} ({'; '.join(differ) or 'digest'})")
    elif previous is not None and position.epoch_and_depth <= previous.epoch_and_depth:
        found.append(
            f"it does not go on from step {previous.step}, at epoch {previous.epoch}, depth {previous.depth:,}"
        )
    return found


def difference_from_plan(position: ReadPosition, plan: SamplePlan) -> str:
    """Return a text that says how the sum in a loader state differs from the plan's sum at its position; "" if equal.

    ``plan`` must be of the state's epoch. For a plan of other data, or of another order, the text names the settings
    that differ.
    """
    if plan.digest() != position.plan:
        here = plan.facts()
        names = [word for word, value in position.of.items() if value != here.get(word)]
        told = "; ".join(f"{word}: {position.of[word]} in the state, {here.get(word)} here" for word in names)
        return f"the data is not that of the state ({told or 'another version of the plan'})"
    steps, rest = divmod(position.depth, plan.layout.depth_of_step)
    if rest:
        return f"depth {position.depth:,} is in the middle of a batch of {plan.layout.global_batch}"
    wanted = planned_sum(plan, range(plan.layout.global_batch), 0, steps)
    if position.seen.same_samples(wanted):
        return ""
    if position.seen.samples != wanted.samples:
        return f"{position.seen.samples:,} samples were taken, and the plan has {wanted.samples:,}"
    return f"{position.seen.samples:,} samples were taken, but not those of the plan: some twice, others never"


def rows_per_step(positions: Sequence[ReadPosition]) -> tuple[float, ...]:
    """Return how many rows a step of the training took between checkpoints of one epoch: one number if always equal.

    Empty if no two checkpoints are of one epoch, or if the plan's streams are not known.
    """
    pairs = [(a, b) for a, b in pairwise(positions) if a.epoch == b.epoch and b.step > a.step]
    speeds = {b.of.get("streams", 0) * (b.depth - a.depth) / (b.step - a.step) for a, b in pairs}
    return tuple(sorted(speeds - {0.0}))
