"""One line for what people already have: whatever it is, all ranks take as many samples, and none is read twice."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import allranks
from allranks import SimulatedWorld, World
from allranks.errors import DataError, LedgerMismatch, Mismatch, RemoteError


def on(size: int, program: Callable[[World], Any]) -> list[Any]:
    """Return what all ranks return."""
    outcome = SimulatedWorld(size).run(program)
    assert not outcome.errors, outcome.errors
    return [outcome.results[rank] for rank in range(size)]


def refused(size: int, program: Callable[[World], Any], kind: type[Exception]) -> str:
    """Return the words of the error that all ranks raise."""
    errors = SimulatedWorld(size).run(program).errors
    assert len(errors) == size
    assert all(isinstance(error, kind) for error in errors.values()), errors
    words = {re.sub(r"^rank \d+: ", "", str(error)) for error in errors.values()}
    assert len(words) == 1, words
    return words.pop()


def rounds(taken: list[list[Any]]) -> list[Any]:
    """Return the samples of all ranks in one list, round after round; all ranks took as many."""
    return [one for together in zip(*taken, strict=True) for one in together]


def numbers(many: int) -> Any:
    """Yield numbers: what can only be iterated."""
    yield from range(many)


def table(many: int) -> Any:
    from datasets import Dataset

    return Dataset.from_dict({"x": list(range(many))})


def stream(many: int, shards: int) -> Any:
    return table(many).to_iterable_dataset(num_shards=shards)


def read(samples: Callable[[], Any], world: World, **options: Any) -> list[Any]:
    return list(allranks.shard(samples(), world, **options))


@settings(max_examples=40)
@given(data=st.data())
def test_what_has_items_is_split_exactly_on_any_number_of_ranks(data: Any) -> None:
    """Through a stop after any round and another number of ranks: one order, each sample once, equal numbers."""
    many = data.draw(st.integers(1, 200))
    before, after = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 6))
    stop = data.draw(st.integers(0, -(-many // before)))
    how = {"seed": data.draw(st.integers(0, 3)), "shuffle": data.draw(st.booleans())}

    def begin(world: World) -> Any:
        mine = allranks.shard(range(many), world, **how)
        return list(islice(mine, stop)), mine.state().gathered()

    def go_on(world: World) -> Any:
        return list(allranks.shard(range(many), world, state=state, **how))

    begun = on(before, begin)
    state = begun[0][1]
    found = rounds([taken for taken, _ in begun]) + rounds(on(after, go_on))
    found = [one for one in found if one is not None]
    assert found == on(1, lambda world: read(lambda: range(many), world, **how))[0]
    assert sorted(found) == list(range(many))


DATASETS = pytest.mark.needs("datasets")


@pytest.mark.parametrize("make", [list, np.array, pytest.param(lambda many: table(len(many)), marks=DATASETS)])
def test_the_last_round_is_padded_or_dropped(make: Any) -> None:
    """10 samples on 4 ranks: three rounds, two places of the last one filled by what the caller chose; or two."""

    def value(one: Any) -> Any:
        return one["x"] if isinstance(one, dict) else one

    def program(world: World, **options: Any) -> Any:
        mine = allranks.shard(make(range(10)), world, **options)
        taken = list(mine)
        assert len(taken) == len(mine)
        assert mine.guarantees.complete == ("tail" not in options)
        return [value(one) for one in taken]

    assert rounds(on(4, lambda world: program(world, padding=-1))) == [*range(10), -1, -1]
    assert rounds(on(4, lambda world: program(world, tail="drop"))) == [*range(8)]


def test_epochs_have_orders_of_their_own() -> None:
    def program(world: World) -> Any:
        mine = allranks.shard(range(50), world, shuffle=True)
        return [list(mine) for _ in range(3)]

    taken = on(2, program)
    orders = [rounds([ranks[epoch] for ranks in taken]) for epoch in range(3)]
    assert all(sorted(order) == list(range(50)) for order in orders)
    assert len(set(map(tuple, orders))) == 3


def test_without_us_a_skipped_sample_makes_the_steps_unequal_and_with_us_it_does_not() -> None:
    """needs.md 001: `i % N == rank`, and one sample that one rank cannot use, is a hang at the end of the epoch."""

    def by_hand(rank: int) -> list[int]:
        return [one for i, one in enumerate(numbers(40)) if i % 4 == rank and one != 2]

    assert len({len(by_hand(rank)) for rank in range(4)}) == 2

    def program(world: World) -> Any:
        own = (one for one in numbers(40) if world.rank != 2 or one != 2)
        return list(allranks.shard(own, world))

    assert {len(taken) for taken in on(4, program)} == {10}


@pytest.mark.parametrize(("tail", "steps"), [("pad", 100), ("drop", 40)])
def test_ranks_that_run_out_are_padded_or_all_stop(tail: Any, steps: int) -> None:
    """Four shards of which one is shorter than the others: equal steps by agreement."""
    parts = [(0, 100), (100, 140), (140, 240), (240, 340)]

    class Parts:
        num_shards = 4

        def shard(self, num_shards: int, index: int) -> Any:
            assert num_shards == 4
            return range(*parts[index])

        def __iter__(self) -> Iterator[int]:
            raise AssertionError("nobody reads it all")

    taken = on(4, lambda world: read(Parts, world, tail=tail))
    assert [len(one) for one in taken] == [steps] * 4
    for one, (begin, end) in zip(taken, parts, strict=True):
        assert [sample for sample in one if sample is not None] == list(range(begin, min(end, begin + steps)))


@pytest.mark.parametrize(
    ("samples", "by_shard"),
    [
        pytest.param(lambda: numbers(301), False, id="generator"),
        pytest.param(lambda: stream(301, 7), True, id="shards", marks=DATASETS),
        pytest.param(lambda: stream(301, 2), False, id="few shards", marks=DATASETS),
    ],
)
@pytest.mark.parametrize("stop", [0, 1, 31, 32, 33, 70])
def test_a_stream_is_read_once_and_goes_on_where_it_stopped(samples: Any, by_shard: bool, stop: int) -> None:
    """A state is of the sample that was taken last, however many a rank had in hand."""

    def begin(world: World) -> Any:
        mine = allranks.shard(samples(), world)
        said = mine.guarantees
        assert (said.complete, said.reads_its_part, said.exact_resume) == (by_shard, by_shard, not by_shard)
        assert ("shuffle buffer" in said.but, "only if all ranks iterate" in said.but) == (by_shard, not by_shard)
        return list(islice(mine, stop)), mine.state().gathered()

    begun = on(3, begin)
    rest = on(3, lambda world: read(samples, world, state=begun[0][1]))
    whole = on(3, lambda world: read(samples, world))
    assert [taken + left for (taken, _), left in zip(begun, rest, strict=True)] == whole
    values = [one["x"] if isinstance(one, dict) else one for one in rounds(whole) if one is not None]
    assert sorted(values) == list(range(301))
    assert by_shard or values == list(range(301))


@DATASETS
def test_a_stream_begins_every_epoch_anew() -> None:
    """Also after one that was resumed: a datasets.IterableDataset keeps the state that it was given."""

    def begin(world: World) -> Any:
        mine = allranks.shard(stream(100, 4), world)
        list(islice(mine, 35))
        return mine.state().gathered()

    state = on(2, begin)[0]

    def go_on(world: World) -> Any:
        mine = allranks.shard(stream(100, 4), world, state=state)
        rest, following = list(mine), list(mine)
        return len(rest), sorted(one["x"] for one in following)

    found = on(2, go_on)
    assert [many for many, _ in found] == [15, 15]
    assert sorted(found[0][1] + found[1][1]) == list(range(100))


def test_other_ranks_other_samples_and_no_samples_are_errors_on_every_rank() -> None:
    def state(world: World) -> Any:
        mine = allranks.shard(numbers(90), world)
        next(iter(mine))
        return mine.state().gathered()

    saved = on(3, state)[0]
    says = refused(2, lambda world: allranks.shard(numbers(90), world, state=saved), DataError)
    assert "ranks: 3 in the state, 2 here" in says

    says = refused(3, lambda world: allranks.shard(range(10 + world.rank // 2), world), Mismatch)
    assert "rank 2: plan" in says
    assert "the data has no sample" in refused(3, lambda world: allranks.shard([], world), DataError)

    def returns_a_generator(rank: int) -> Any:
        if rank == 1:
            return numbers(10)
        yield from numbers(10)

    says = refused(3, lambda world: read(lambda: returns_a_generator(world.rank), world), DataError)
    assert "there is no sample on rank 1. Does a generator function return gen()" in says

    for wrong, words in (({"a": 1}, "one of the keys 'a'"), (1, "an iterable of samples"), (map(abs, []), "shuffle")):
        with pytest.raises(DataError, match=words):
            allranks.shard(wrong, World.__new__(World), shuffle=True)


@pytest.mark.parametrize(
    "divided",
    [
        lambda rank, size: list(range(64))[rank::size],
        lambda rank, size: np.arange(64)[rank::size],
        lambda rank, size: (number for number in range(rank, 64, size)),
        lambda rank, size: Split(rank, size),
    ],
    ids=["list", "array", "generator", "stream"],
)
def test_what_is_divided_already_is_refused(divided: Callable[[int, int], Any]) -> None:
    """Half would never be read, and the ledger would not know. What differs by rank on purpose says so."""
    says = refused(2, lambda world: read(lambda: divided(world.rank, world.size), world), Mismatch)
    assert "Is it divided already (samples[rank::size], split_dataset_by_node)" in says
    taken = on(2, lambda world: read(lambda: divided(world.rank, world.size), world, compare=False))
    assert sum(map(len, taken)) < 64 + 2, "half of it, as was asked for"


class Split:
    """A stream in shards, of which a rank has been given its own already."""

    num_shards = 2

    def __init__(self, rank: int, size: int) -> None:
        self._numbers = range(rank, 64, size)

    def shard(self, num_shards: int, index: int) -> Split:
        return Split(self._numbers.start + index * self._numbers.step, num_shards * self._numbers.step)

    def __iter__(self) -> Any:
        return iter(self._numbers)


def test_random_samples_are_not_taken_for_others() -> None:
    """Augmented by the usual generators, seeded by rank; or by one of their own."""

    before = random.getstate()
    on(2, lambda world: allranks.shard(Noisy(random), world))
    assert random.getstate() == before
    on(2, lambda world: allranks.shard(Noisy(random.Random(world.rank)), world))
    on(2, lambda world: allranks.shard(Fresh(world.rank), world))


class Noisy(list[int]):
    """Samples with noise."""

    def __init__(self, generator: Any) -> None:
        super().__init__(range(20))
        self._generator = generator

    def __getitem__(self, at: Any) -> Any:
        return super().__getitem__(at) + self._generator.random()


class Fresh:
    """A stream that is another whenever it is iterated."""

    def __init__(self, rank: int) -> None:
        self._generator = random.Random(rank)

    def __iter__(self) -> Any:
        return (number + self._generator.random() for number in range(40))


class Still:
    """A stream whose state does not move once it was loaded, as in datasets 5.0.0."""

    num_shards = 1

    def __init__(self) -> None:
        self._from, self._at, self._loaded = 0, 0, False

    def shard(self, **_: int) -> Still:
        return self

    def __iter__(self) -> Any:
        for number in range(self._from, 400):
            self._at = number
            yield number

    def state_dict(self) -> dict[str, int]:
        return {"next": 0 if self._loaded else self._at + 1}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self._from, self._loaded = state["next"], True


def test_a_second_resume_goes_on_where_the_first_was() -> None:
    """Also over a stream whose own state says nothing then."""

    def program(world: World) -> list[int]:
        state, taken = None, []
        for many in (70, 70, 10):
            mine = allranks.shard(Still(), world, state=state)
            taken += list(islice(mine, many))
            state = mine.state().gathered()
        return taken

    assert on(1, program)[0] == list(range(150))


def test_an_error_of_one_rank_reaches_all() -> None:
    def program(world: World) -> Any:
        return read(lambda: (10 // (one - 50 if world.rank else 1) for one in range(100)), world, compare=False)

    errors = SimulatedWorld(2).run(program).errors
    assert isinstance(errors[1], ZeroDivisionError)
    assert isinstance(errors[0], RemoteError)
    assert "rank 1 raised ZeroDivisionError" in str(errors[0])


def test_ranks_that_went_on_from_different_places_are_found() -> None:
    """A rank that takes a sample less is seen when the state is put together, and by the proof of the epoch."""

    def apart(world: World) -> Any:
        mine = allranks.shard(range(40), world)
        list(islice(mine, 3 + world.rank // 3))
        return mine.state().gathered()

    assert "different positions of the data" in refused(4, apart, Mismatch)

    def lies(world: World) -> Any:
        mine = allranks.shard(range(40), world)
        if world.rank == 2:
            mine._taken = mine._taken.plus(mine._taken._replace(samples=1))
        return list(mine)

    assert "41 samples were taken: expected 40" in refused(4, lies, LedgerMismatch)
