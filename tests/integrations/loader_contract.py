"""One contract for all loaders: a table of adapters, and a list of laws that each of them keeps.

An adapter is a loader of somebody else over data of ours. A law is run on simulated ranks, and returns nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from itertools import chain, islice, pairwise
from typing import Any, Protocol

from worlds import on, together

from allranks import Dataset, World, shard

Steps = list[list[int]]
BATCH = 4


def numbers(samples: int, tail: str = "pad") -> Dataset:
    return Dataset.sequence([{"x": one} for one in range(samples)], seed=5).batch(BATCH, tail=tail)  # type: ignore[arg-type]


class Reading(Protocol):
    """A loader on one rank."""

    def __iter__(self) -> Iterator[list[int]]:
        """Iterate once; a batch is the numbers of its samples, -1 for padding."""

    def state(self, step: int) -> Any:
        """Return what a checkpoint stores after so many steps of this epoch. Every rank calls."""

    def set_epoch(self, epoch: int) -> None: ...


def masked(batch: dict[str, Any]) -> list[int]:
    return [int(x) if kept else -1 for x, kept in zip(batch["x"], batch["mask"], strict=True)]


class Native:
    """``Dataset.loader``."""

    def __init__(self, world: World, state: Any, tail: str, _how: dict[str, Any]) -> None:
        self._loader = numbers(22, tail).loader(world, state=state)

    def __iter__(self) -> Iterator[list[int]]:
        return map(masked, ({**batch.columns, "mask": batch.mask} for batch in self._loader))

    def state(self, _step: int) -> Any:
        return self._loader.state().gathered()


class Torch:
    """``integrations.torch.Batches`` in torch's DataLoader, or in none."""

    def __init__(self, world: World, state: Any, tail: str, how: dict[str, Any]) -> None:
        torch, ours = import_module("torch.utils.data"), import_module("allranks.integrations.torch")
        self._reader = ours.Batches(numbers(22, tail), world, state=state)
        self._loader = torch.DataLoader(self._reader, batch_size=None, **how) if how else self._reader

    def __iter__(self) -> Iterator[list[int]]:
        return map(masked, iter(self._loader))

    def state(self, step: int) -> Any:
        return self._reader.state(step).gathered()

    def set_epoch(self, epoch: int) -> None:
        self._reader.set_epoch(epoch)


class Counting(Torch):
    """The same, which is not told how many steps the loop took."""

    def state(self, step: int) -> Any:
        del step
        return self._reader.state().gathered()


class StateDict(Torch):
    """The same, saved as an object with ``state_dict``, as in a Checkpointer's state."""

    def __init__(self, world: World, state: Any, tail: str, how: dict[str, Any]) -> None:
        super().__init__(world, None, tail, how)
        if state is not None:
            self._reader.load_state_dict(state)

    def state(self, step: int) -> Any:
        del step
        return self._reader.state_dict()


class Sampler(Torch):
    """``integrations.torch.BatchSampler`` in torch's DataLoader."""

    def __init__(self, world: World, state: Any, tail: str, how: dict[str, Any]) -> None:
        torch, ours = import_module("torch.utils.data"), import_module("allranks.integrations.torch")
        many = 26 if tail == "drop" else 24  # what a sampler pads it repeats, which is shown elsewhere
        self._reader = ours.BatchSampler(many, world, global_batch=BATCH, seed=2, tail=tail, state=state)
        self._loader = torch.DataLoader(range(many), batch_sampler=self._reader, **how)

    def __iter__(self) -> Iterator[list[int]]:
        return (batch.tolist() for batch in self._loader)


class Stateful:
    """torchdata's StatefulDataLoader, whose own state is saved, over a data set of ours."""

    def __init__(self, world: World, state: Any, tail: str, how: dict[str, Any]) -> None:
        torchdata, ours = import_module("torchdata.stateful_dataloader"), import_module("allranks.integrations.torch")
        self._reader = ours.Batches(numbers(22, tail), world)
        self._loader = torchdata.StatefulDataLoader(self._reader, batch_size=None, **how)
        if state is not None:
            self._loader.load_state_dict(state)

    def __iter__(self) -> Iterator[list[int]]:
        return map(masked, iter(self._loader))

    def state(self, _step: int) -> Any:
        return self._loader.state_dict()

    def set_epoch(self, epoch: int) -> None:
        self._reader.set_epoch(epoch)


class StatefulSampler(Stateful):
    """The same over a sampler of ours."""

    def __init__(self, world: World, state: Any, tail: str, how: dict[str, Any]) -> None:
        torchdata, ours = import_module("torchdata.stateful_dataloader"), import_module("allranks.integrations.torch")
        many = 26 if tail == "drop" else 24
        self._reader = ours.BatchSampler(many, world, global_batch=BATCH, seed=2, tail=tail)
        self._loader = torchdata.StatefulDataLoader(range(many), batch_sampler=self._reader, **how)
        if state is not None:
            self._loader.load_state_dict(state)

    def __iter__(self) -> Iterator[list[int]]:
        return (batch.tolist() for batch in self._loader)


class Grain:
    """``integrations.grain.Batches``."""

    def __init__(self, world: World, state: Any, tail: str, how: dict[str, Any]) -> None:
        grain, ours = import_module("grain"), import_module("allranks.integrations.grain")
        import_module("absl.flags").FLAGS.mark_as_parsed()
        self._reader = ours.Batches(numbers(22, tail), world, state=self._ours(state))
        self._data = self._reader.mp_prefetch(grain.multiprocessing.MultiprocessingOptions(how["num_workers"]))
        self._state = state

    def _ours(self, state: Any) -> Any:
        return state

    def __iter__(self) -> Iterator[list[int]]:
        self._made = iter(self._data)
        return map(masked, self._made)

    def state(self, step: int) -> Any:
        return self._reader.state(step).gathered()


class GrainState(Grain):
    """The same, saved by grain's own ``get_state``."""

    def _ours(self, state: Any) -> Any:
        del state

    def __iter__(self) -> Iterator[list[int]]:
        made = super().__iter__()
        state, self._state = self._state, None
        if state is not None:
            self._made.set_state(state)
        return made

    def state(self, _step: int) -> Any:
        if not hasattr(self, "_made"):
            self._made = iter(self._data)
        return self._made.get_state()


class Shard:
    """``allranks.shard`` of a list: a step is one sample of each rank."""

    def __init__(self, world: World, state: Any, tail: str, _how: dict[str, Any]) -> None:
        self._mine = shard(
            list(range(26 if tail == "drop" else 22)), world, seed=1, shuffle=True, tail=tail, padding=-1, state=state
        )  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[list[int]]:
        return ([one] for one in self._mine)

    def state(self, _step: int) -> Any:
        return self._mine.state().gathered()


@dataclass(frozen=True)
class Adapter:
    """A row of the table. ``needs``: packages; ``lacks``: laws that it cannot keep, with the reason."""

    kind: Callable[..., Reading]
    how: dict[str, Any]
    needs: tuple[str, ...] = ("torch",)
    lacks: dict[str, str] | None = None

    def open(self, world: World, state: Any = None, tail: str = "pad") -> Reading:
        return self.kind(world, state, tail, self.how)


PLAIN, WORKERS = {"num_workers": 0}, {"num_workers": 2}
PERSISTENT = {"num_workers": 2, "persistent_workers": True}
PREFETCH = {"num_workers": 2, "prefetch_factor": 4}
_GOES_ON = {"interrupted": "goes on where it was stopped", "look": "goes on where it was stopped"}
_ITERATOR = {"look": "the state is of an iterator, and is spent with it"}
ADAPTERS: dict[str, Adapter] = {
    "Dataset.loader": Adapter(Native, {}, (), _GOES_ON),
    "shard of a list": Adapter(Shard, {}, (), _GOES_ON),
    "Batches alone": Adapter(Torch, {}),
    "Batches": Adapter(Torch, PLAIN),
    "Batches, 2 workers": Adapter(Torch, WORKERS),
    "Batches, persistent workers": Adapter(Torch, PERSISTENT),
    "Batches, prefetch_factor=4": Adapter(Torch, PREFETCH),
    "Batches, state()": Adapter(Counting, PERSISTENT),
    "Batches, state_dict": Adapter(StateDict, WORKERS),
    "BatchSampler": Adapter(Sampler, PLAIN),
    "BatchSampler, 2 workers": Adapter(Sampler, WORKERS),
    "BatchSampler, persistent workers": Adapter(Sampler, PERSISTENT),
    "StatefulDataLoader(Batches)": Adapter(Stateful, PLAIN, ("torch", "torchdata")),
    "StatefulDataLoader(Batches), 2 workers": Adapter(Stateful, WORKERS, ("torch", "torchdata"), _ITERATOR),
    "StatefulDataLoader(Batches), persistent": Adapter(Stateful, PERSISTENT, ("torch", "torchdata"), _ITERATOR),
    "StatefulDataLoader(BatchSampler)": Adapter(StatefulSampler, PLAIN, ("torch", "torchdata")),
    "StatefulDataLoader(BatchSampler), 2 workers": Adapter(StatefulSampler, WORKERS, ("torch", "torchdata"), _ITERATOR),
    "grain": Adapter(Grain, PLAIN, ("grain",)),
    "grain, 1 worker": Adapter(Grain, {"num_workers": 1}, ("grain",)),
    "grain, 2 workers": Adapter(Grain, WORKERS, ("grain",)),
    "grain, get_state": Adapter(GrainState, PLAIN, ("grain",), _ITERATOR),
    "grain, 2 workers, get_state": Adapter(GrainState, WORKERS, ("grain",), _ITERATOR),
}


def epochs_of(adapter: Adapter, size: int, many: int, tail: str = "pad", *, named: bool = False) -> list[Steps]:
    """The first epochs on so many ranks: global batches."""

    def program(world: World) -> list[Steps]:
        reading, found = adapter.open(world, tail=tail), []
        for epoch in range(many):
            if named:
                reading.set_epoch(epoch)
            found.append(list(reading))
        return found

    return [together(list(ranks)) for ranks in zip(*on(size, program), strict=True)]


@cache
def _reference(name: str) -> list[Steps]:
    return epochs_of(ADAPTERS[name], 1, 3)


def samples(steps: Steps) -> list[int]:
    return sorted(one for one in chain.from_iterable(steps) if one >= 0)


def flat(name: str, epochs: list[Steps]) -> list[int]:
    """What was read, in order; where a step is one sample of each rank, without the padding of its last round."""
    found = list(chain.from_iterable(chain.from_iterable(epochs)))
    return [one for one in found if one >= 0] if name == "shard of a list" else found


def complete(name: str, _positions: Any) -> None:
    """Each sample once, on 1, 2 and 4 ranks, in as many steps on each, in one order for all; epochs differ."""
    for size in (1, 2, 4):
        found = epochs_of(ADAPTERS[name], size, 3)
        wanted = list(range(len(samples(found[0]))))
        assert wanted in (list(range(22)), list(range(24)))
        assert all(samples(epoch) == wanted for epoch in found)
        assert flat(name, found) == flat(name, _reference(name))
        assert len({tuple(chain.from_iterable(epoch)) for epoch in found}) == 3


def drop_last(name: str, _positions: Any) -> None:
    """Whole batches alone; no sample twice."""
    for epoch in epochs_of(ADAPTERS[name], 2, 2, "drop"):
        assert {len(step) for step in epoch} == {2 if name == "shard of a list" else BATCH}
        found = samples(epoch)
        assert len(found) == len(set(found)) == (26 if name == "shard of a list" else len(found))
        assert len(found) >= 20
        assert -1 not in chain.from_iterable(epoch)


def named_epochs(name: str, _positions: Any) -> None:
    """A loop that calls ``set_epoch`` reads what one that does not reads."""
    assert epochs_of(ADAPTERS[name], 2, 3, named=True) == _reference(name)


def _halves(name: str, stops: tuple[int, ...], sizes: tuple[int, ...], named: bool) -> list[Steps]:
    """Stop and resume at these steps, each part with its number of ranks; then to the end of the epoch, and another."""
    adapter, state, found = ADAPTERS[name], None, []
    for part, size in enumerate(sizes):
        before = stops[part - 1] if part else 0

        def program(
            world: World, state: Any = state, part: int = part, before: int = before
        ) -> tuple[list[Steps], Any]:
            reading = adapter.open(world, state)
            # torchdata goes on behind an epoch that has ended, and so does the loop; where workers have the state, with
            # its rest, which is empty.
            at_once = isinstance(reading, StatefulSampler) or not adapter.how.get("num_workers")
            first = int(isinstance(reading, Stateful) and at_once and before == len(_reference(name)[0]))
            if named:
                reading.set_epoch(first)
            if part == len(stops):
                rest = list(reading)
                if named:
                    reading.set_epoch(first + 1)
                return [rest, list(reading)], None
            if stops[part] == before:
                return [[]], reading.state(before)
            taken = list(islice(iter(reading), stops[part] - before))
            return [taken], reading.state(stops[part])

        ranks = on(size, program)
        found += [together(list(one)) for one in zip(*[epochs for epochs, _ in ranks], strict=True)]
        state = ranks[0][1]
    return found


def _continue(name: str, found: list[Steps], where: str) -> None:
    """What was read is two epochs or more, as of a program that was not stopped."""
    taken, wanted = flat(name, found), flat(name, _reference(name))
    assert taken == wanted[: len(taken)], where
    assert len(taken) * 3 >= len(wanted) * 2, where


def resume(name: str, positions: list[int], *, named: bool = False) -> None:
    """A state of any position, the first and the last too, goes on with other ranks, and then with the next epoch."""
    for stop in positions:
        _continue(name, _halves(name, (stop,), (2, 4), named), f"stopped at {stop}")


def resume_named(name: str, positions: list[int]) -> None:
    """The same where the loop calls ``set_epoch``."""
    resume(name, positions, named=True)


def second_resume(name: str, positions: list[int]) -> None:
    """And so does a state that a resumed program took."""
    for first, second in pairwise(positions):
        _continue(name, _halves(name, (first, second), (4, 1, 2), False), f"stopped at {first} and {second}")


def interrupted(name: str, _positions: Any) -> None:
    """An evaluation that is broken off is followed by a whole one."""

    def program(world: World) -> Steps:
        reading = ADAPTERS[name].open(world)
        list(islice(iter(reading), 3))
        return list(reading)

    assert samples(together(on(2, program))) == samples(_reference(name)[0])


def look(name: str, _positions: Any) -> None:
    """A look at the first batch of a resumed program moves nothing."""
    adapter = ADAPTERS[name]

    def stop(world: World) -> Any:
        reading = adapter.open(world)
        list(islice(iter(reading), 2))
        return reading.state(2)

    state = on(1, stop)[0]

    def program(world: World) -> Steps:
        reading = adapter.open(world, state)
        next(iter(reading))
        return list(reading)

    assert together(on(2, program)) == _reference(name)[0][2:]


LAWS: dict[str, Callable[[str, Any], None]] = {
    "complete": complete,
    "drop_last": drop_last,
    "set_epoch": named_epochs,
    "resume": resume,
    "resume, set_epoch": resume_named,
    "second resume": second_resume,
    "interrupted": interrupted,
    "look": look,
}


def reason(name: str, law: str) -> str:
    """Why an adapter does not keep a law: "" where it does."""
    adapter = ADAPTERS[name]
    if "set_epoch" in law and not hasattr(adapter.kind, "set_epoch"):
        return "has no set_epoch"
    return (adapter.lacks or {}).get(law, "")
