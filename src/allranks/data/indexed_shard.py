"""Divide samples that have a length and items over the ranks: each rank takes one sample in every round."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from allranks.data.base import Guarantees
from allranks.data.ledger import SampleSum, sum_of_ids, sum_of_range, sums_of_batches
from allranks.data.plan import EpochPlan, Tail, choose_layout
from allranks.data.snapshot import ResumePosition, Snapshot
from allranks.data.sources.sequence import Indexable, SequenceRows, sequence
from allranks.data.start import sample_facts, start_on_all_ranks
from allranks.errors import DataError, LedgerMismatch
from allranks.world.base import World

_ROUNDS = 1024  # planned at once


class IndexedShard:
    """This rank's share of samples that have a length and items; ``allranks.shard`` returns it.

    The plan is one stream of samples, and each rank takes one of them in every round. So the world's size only decides
    which rank takes a sample, and a state can be restored with any other size. Iterating yields the samples to the end
    of the epoch, and then proves that the epoch was read once. ``len()`` is the number of this rank's samples in an
    epoch, padding included.
    """

    _plan: EpochPlan
    _depth: int  # samples of the epoch that all ranks together have taken
    _seen: SampleSum
    _taken: SampleSum

    def __init__(
        self,
        samples: Indexable,
        world: World,
        *,
        seed: int,
        shuffle: bool,
        tail: Tail,
        padding: Any,
        state: Mapping[str, Any] | None,
        compare: bool,
    ) -> None:
        self._world, self._tail, self._padding = world, tail, padding
        self.guarantees = Guarantees(
            complete=tail == "pad",
            equal_steps=True,
            known_length=True,
            elastic=True,
            exact_resume=True,
            reads_its_part=True,
            but="" if tail == "pad" else "the samples behind the last whole round are dropped",
        )
        source = sequence(samples, compare=compare)
        self._index = source.index()
        self._rows = SequenceRows(samples, 0, mask=False)
        self._layout = choose_layout(self._index, global_batch=1, seed=seed, shuffle=shuffle, streams=1)
        facts = EpochPlan(self._index, self._layout, 0).facts()
        resume = ResumePosition.from_optional_state(state, facts, self._layout, rank=world.rank)
        start_on_all_ranks(
            world,
            {**facts, **resume.as_facts, "tail": tail, **sample_facts([source], world)},
            [world.rank],
            global_batch=world.size,
        )
        if not len(samples):
            raise DataError(f"rank {world.rank}: {source.where}: the data has no sample: expected at least one.")
        self._begin(resume.epoch, resume.depth, resume.seen)

    def __len__(self) -> int:
        return self._rounds(self._plan.samples)

    @property
    def epoch(self) -> int:
        """The number of this epoch, from 0."""
        return self._plan.epoch

    def __iter__(self) -> Iterator[Any]:
        size, rank = self._world.size, self._world.rank
        while left := self._rounds(self._plan.samples - self._depth):
            ids = self._plan.stream_ids(0, self._depth, self._depth + min(left, _ROUNDS) * size)[rank::size]
            for here, count, mixed in zip(ids[:, None], *sums_of_batches(ids[:, None]), strict=True):
                sample = self._rows.take(here)[0] if count else self._padding
                self._depth = min(self._depth + size, self._plan.samples)
                self._taken = self._taken.plus(SampleSum(count, mixed))
                yield sample
        self._verify()
        self._begin(self.epoch + 1, 0, SampleSum())

    def state(self) -> Snapshot:
        """Return this rank's position, for a checkpoint: ``extra={"data": shard.state()}``. Cheap; local.

        ``allranks.Checkpointer`` gathers it from all ranks when it saves; for other checkpoints store
        ``state().gathered()``, which every rank must call.
        """
        return Snapshot(self._world, self.epoch, self._depth, self._plan.facts(), self._taken, self._seen)

    def _begin(self, epoch: int, depth: int, seen: SampleSum) -> None:
        self._plan = EpochPlan(self._index, self._layout, epoch)
        self._depth = depth
        self._seen, self._taken = seen, SampleSum()

    def _rounds(self, samples: int) -> int:
        return samples // self._world.size if self._tail == "drop" else -(-samples // self._world.size)

    def _verify(self) -> None:
        """Prove that all ranks together took every sample once; else raise LedgerMismatch. Every rank must call."""
        world, many = self._world, self._plan.samples
        share = sum_of_range(world.rank * many // world.size, (world.rank + 1) * many // world.size)
        dropped = sum_of_ids(self._plan.stream_ids(0, self._depth, many))
        said = [list(self._taken), list(share), list(self._seen), list(dropped)]
        taken, wanted = world.exchange("shard", f"epoch {self.epoch}", said, decide=_add)
        if taken != wanted:
            raise LedgerMismatch(
                f"rank {world.rank}: epoch {self.epoch}: {taken[0]} samples were taken: expected {wanted[0]}, the "
                "number in the plan.",
                remedy="Check that all ranks have resumed from the same checkpoint.",
            )


def _add(values: Sequence[Any]) -> list[list[int]]:
    """Add up the ranks' sums. Return the sum that was taken, and the sum that is expected."""
    _, _, seen, dropped = values[0]
    taken, wanted = SampleSum(*seen), SampleSum().minus(SampleSum(*dropped))
    for mine, share, _, _ in values:
        taken, wanted = taken.plus(SampleSum(*mine)), wanted.plus(SampleSum(*share))
    return [list(taken[:2]), list(wanted[:2])]
