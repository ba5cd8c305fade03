"""Divide samples that can only be iterated over the ranks, in rounds on which all ranks agree."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from allranks.data.arguments import check_number
from allranks.data.base import Guarantees
from allranks.data.index import DECODE_ERRORS
from allranks.data.plan import Tail
from allranks.data.sample_comparison import FirstSamples
from allranks.data.start import start_on_all_ranks
from allranks.errors import DataError, name_ranks
from allranks.world.base import World
from allranks.world.claims import by_claim, mismatch_of_ranks
from allranks.world.outcome import exception_as_json, remote_error

_AHEAD = 32  # samples that a rank has in hand when all agree how many rounds there are
_EMPTY = (
    "Does a generator function return gen() where it should yield from gen()? Was a generator used up in the epoch "
    "before? Are there fewer samples than ranks?"
)


@dataclass(frozen=True, slots=True)
class IterableState:
    """The position of one rank. ``gathered()`` returns the positions of all ranks, for a checkpoint."""

    world: World
    epoch: int
    rounds: int
    facts: Mapping[str, Any]
    place: Any

    def gathered(self) -> dict[str, Any]:
        """Return the state of all ranks as JSON values, the same on all. **Every rank must call.** One exchange."""
        said = [self.epoch, self.rounds, dict(self.facts), self.place]
        document: dict[str, Any] = self.world.exchange("shard", "state", said, decide=_merge_states)
        return document


class IterableShard:
    """This rank's share of samples that can only be iterated; ``allranks.shard`` returns it. See its ``guarantees``.

    An object with shards (``num_shards`` and ``shard(num_shards=, index=)``, such as a datasets.IterableDataset) is
    split by its shards, if each rank gets at least one. Any other object is read completely by every rank, which keeps
    every N-th sample. After 32 samples, the next one waits until all ranks have agreed how many more each rank takes.
    So **every rank must iterate equally far.**
    """

    def __init__(
        self,
        samples: Any,
        world: World,
        *,
        tail: Tail,
        padding: Any,
        state: Mapping[str, Any] | None,
        compare: bool,
    ) -> None:
        self._world, self._tail, self._padding = world, tail, padding
        shards = getattr(samples, "num_shards", 0) if hasattr(samples, "shard") else 0
        self._by_shard = isinstance(shards, int) and shards >= world.size
        self._samples = self._all = samples
        if compare and world.size > 1:
            self._all = FirstSamples(samples)
            self._all.compare_over_ranks(world)
        if self._by_shard:
            self._samples = self._all = samples.shard(num_shards=world.size, index=world.rank)
        self._own_state = self._by_shard and hasattr(self._samples, "load_state_dict")
        self.guarantees = _shard_guarantees(by_shard=self._by_shard, own_state=self._own_state, tail=tail)
        self._facts = {"samples": type(samples).__qualname__, "shards": shards, "ranks": world.size, "tail": tail}
        epoch, rounds, place = self._resumed(state)
        start_on_all_ranks(
            world, {**self._facts, "epoch": epoch, "depth": rounds}, [world.rank], global_batch=world.size
        )
        self._begin(epoch, rounds, place)

    @property
    def epoch(self) -> int:
        """The number of this epoch, from 0."""
        return self._epoch

    def __iter__(self) -> Iterator[Any]:
        while self._agreed or (self._more and self._agree()):
            self._agreed -= 1
            self._rounds += 1
            self._place[1] += 1
            yield self._ready.popleft() if self._ready else self._padding
        self._begin(self._epoch + 1, 0, [None, 0])

    def state(self) -> IterableState:
        """Return this rank's position, for a checkpoint: ``extra={"data": shard.state()}``. Cheap; local."""
        return IterableState(self._world, self._epoch, self._rounds, self._facts, list(self._place))

    def _begin(self, epoch: int, rounds: int, place: Sequence[Any]) -> None:
        """Go to a position in an epoch.

        ``place`` is a state of the samples themselves (None: their start), and a number of samples after that state.
        """
        self._epoch, self._rounds = epoch, rounds
        self._ready: deque[Any] = deque()
        self._agreed, self._more = 0, True
        if hasattr(self._samples, "set_epoch"):
            self._samples.set_epoch(epoch)
        at, behind = place
        if at is not None:
            self._samples.load_state_dict(at)
        self._place = [at, behind]
        self._iterator: Iterator[Any] | None = None

    def _opened(self) -> Iterator[Any]:
        """Return an iterator over this rank's samples that were not taken yet."""
        mine = iter(self._all)
        if not self._by_shard:
            mine = islice(mine, self._world.rank, None, self._world.size)
        return islice(mine, self._place[1], None)

    def _agree(self) -> bool:
        """Read the next samples ahead, and agree how many rounds follow; return whether at least one follows.

        A round gives one sample to each rank.

        Every rank must call. If reading fails on one rank, all ranks raise.
        """
        if self._iterator is None:
            self._iterator = self._opened()
            self._latest = self._samples.state_dict() if self._own_state else None
        elif self._own_state and (latest := self._samples.state_dict()) != self._latest:
            # One that has not moved says nothing: in datasets 5.0.0, none moves in a program that was resumed.
            self._place, self._latest = [latest, 0], latest
        failed: Exception | None = None
        try:
            self._ready.extend(islice(self._iterator, _AHEAD))
        except Exception as error:  # whatever it is: all ranks are told, and none waits for this one
            failed = error
        rank, where = self._world.rank, f"epoch {self._epoch}"
        said = [len(self._ready), self._rounds, failed and exception_as_json(failed, rank=rank)]
        verdict = self._world.exchange("shard", where, said, decide=lambda values: _agree_on_round(values, self._tail))
        if failed:
            raise failed
        if "failed" in verdict:
            raise remote_error(verdict["failed"], rank=rank, where=f"{where} of a shard")
        if "empty" in verdict:
            raise DataError(f"rank {rank}: {where}: there is no sample on {verdict['empty']}.", remedy=_EMPTY)
        self._agreed, self._more = verdict["rounds"], verdict["more"]
        return self._agreed > 0

    def _resumed(self, state: Mapping[str, Any] | None) -> tuple[int, int, list[Any]]:
        if state is None:
            return 0, 0, [None, 0]
        who = f"rank {self._world.rank}: resuming a shard"
        try:
            epoch, rounds, facts, places = state["epoch"], state["rounds"], dict(state["of"]), list(state["places"])
            place = list(places[self._world.rank]) if facts.get("ranks") == self._world.size else [None, 0]
            numbers = [check_number("a state", one, "a position") for one in (epoch, rounds, place[1])]
            if len(place) != 2 or max(numbers) >> 40:
                raise ValueError("expected a position")
        except (*DECODE_ERRORS, DataError) as error:
            remedy = "Give what state().gathered() returned and a checkpoint brought back."
            raise DataError(f"{who}: the value is not the state of a shard.", remedy=remedy) from error
        if facts != self._facts:
            odd = [name for name in self._facts if facts.get(name) != self._facts[name]]
            told = "; ".join(f"{name}: {facts.get(name)} in the state, {self._facts[name]} here" for name in odd)
            raise DataError(
                f"{who}: {told}.",
                remedy="What can only be iterated goes on with as many ranks, and in the same way, only; give files to "
                "allranks.Dataset, or what has a length and items, to go on with another number of ranks.",
            )
        return epoch, rounds, place


def _shard_guarantees(*, by_shard: bool, own_state: bool, tail: Tail) -> Guarantees:
    but = [
        "ranks read whole shards, and those that run out early are padded"
        if by_shard
        else "every rank reads everything and keeps every N-th sample, so each is read once only if all ranks iterate "
        "over the same",
        "resuming stands on the data set's own state, which forgets what a shuffle buffer held"
        if own_state
        else "resuming reads again what was taken",
        "it can be resumed only with as many ranks",
        "how many steps there are is agreed as it goes",
    ]
    if tail == "drop":
        but.append("what others have left when the first rank has run out is dropped")
    return Guarantees(
        complete=by_shard and tail == "pad",
        equal_steps=True,
        known_length=False,
        elastic=False,
        exact_resume=not own_state,
        reads_its_part=by_shard,
        but="; ".join(but),
    )


def _agree_on_round(values: Sequence[Any], tail: Tail) -> dict[str, Any]:
    failed = next((error for _, _, error in values if error), None)
    if failed:
        return {"failed": failed}
    empty = [rank for rank, (count, rounds, _) in enumerate(values) if not count and not rounds]
    if empty:
        return {"empty": name_ranks(empty)}
    counts = [count for count, _, _ in values]
    rounds = min(counts) if tail == "drop" else max(counts)
    return {"rounds": rounds, "more": rounds == _AHEAD}


def _merge_states(values: Sequence[Any]) -> dict[str, Any]:
    where = by_claim(
        (rank, f"epoch {epoch}, after {rounds} samples of each rank")
        for rank, (epoch, rounds, _, _) in enumerate(values)
    )
    if len(where) > 1:
        remedy = "Did a rank take a sample more, or restore another checkpoint?"
        raise mismatch_of_ranks("the ranks are at different positions of the data", where, remedy=remedy)
    epoch, rounds, facts, _ = values[0]
    return {"epoch": epoch, "rounds": rounds, "of": facts, "places": [place for *_, place in values]}
