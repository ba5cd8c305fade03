"""The loader as a user meets it: batches, epochs, states, mixtures, masks and errors, on one rank and on several."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from allranks import Dataset, SimulatedWorld, World
from allranks.data import open_loader
from allranks.data.ledger import sums_of_batches
from allranks.data.reduce import masked_mean
from allranks.errors import DataChanged, DataError, LedgerMismatch, Mismatch

SAMPLES = 1003


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> str:
    """Five uneven files, one of them empty."""
    folder = tmp_path_factory.mktemp("documents")
    numbers = iter(range(SAMPLES))
    for name, many in zip("abcde", (400, 0, 13, 250, 340), strict=True):
        lines = [json.dumps({"id": next(numbers), "text": f"{name} {many}"}) for _ in range(many)]
        (folder / f"{name}.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return str(folder / "*.jsonl")


@pytest.fixture
def world() -> World:
    [made] = SimulatedWorld(1).run(lambda world: world).values()
    return made


def data_of(files: str, **options: Any) -> Dataset:
    return Dataset.jsonl(files, seed=1, block_bytes=512, **options)


def ids(loader: Any) -> list[list[int]]:
    """The ids of every batch until the end of the epoch; every row must hold its own sample."""
    found = []
    for batch in loader:
        assert np.array_equal(batch["id"][batch.mask], batch.ids[batch.mask])
        found.append(batch.ids.tolist())
    return found


def test_every_epoch_has_every_sample_once_and_another_order(files, world):
    """An epoch is all samples and the padding of the last batch; its end is the next one's beginning."""
    loader = data_of(files).batch(24).loader(world)
    epochs = [ids(loader) for _ in range(3)]
    assert loader.epoch == 3
    for epoch in epochs:
        assert len(epoch) == len(loader) == 42
        assert sorted(itertools.chain(*epoch)) == [-1] * 5 + list(range(SAMPLES))
    assert epochs[0] != epochs[1] != epochs[2]
    loader.close()


def side_by_side(ranks: Iterable[list[list[int]]]) -> list[list[int]]:
    """The rows of all ranks, batch by batch."""
    return [list(itertools.chain(*rows)) for rows in zip(*ranks, strict=True)]


@pytest.mark.parametrize("size", [2, 3, 4, 8])
def test_all_world_sizes_have_the_same_global_batches(files, size):
    """The rows of all ranks side by side are those of one; every rank proves at the end that nothing is missing."""
    alone = ids(data_of(files).batch(24).loader(rank=0, size=1))
    together = SimulatedWorld(size).run(lambda world: ids(data_of(files).batch(24).loader(world))).values()
    assert side_by_side(together) == alone


@pytest.mark.parametrize(("before", "after"), [(1, 1), (4, 3), (3, 1), (1, 8)])
def test_a_state_goes_on_where_it_was_taken_on_any_world_size(files, before, after):
    """What follows is bit-equal, through the end of the epoch and the next one; the ledger spans both jobs."""
    data = data_of(files).batch(24)

    def begin(world: World) -> dict[str, Any]:
        loader = data.loader(world)
        for _ in itertools.islice(loader, 17):
            pass
        return loader.state().gathered()

    def go_on(world: World) -> list[list[int]]:
        loader = data.loader(world, state=json.loads(states[0]))
        assert (loader.epoch, loader.step) == (0, 17)
        return [*ids(loader), *ids(loader)]

    states = [json.dumps(state) for state in SimulatedWorld(before).run(begin).values()]
    assert len(set(states)) == 1
    assert len(states[0]) <= 256
    whole = data.loader(rank=0, size=1)
    wanted = [*ids(whole), *ids(whole)][17:]
    assert side_by_side(SimulatedWorld(after).run(go_on).values()) == wanted


def test_what_was_made_ahead_is_not_taken(files, world):
    """Breaking off loses nothing: the state counts what was handed out, and iterating goes on from there."""
    loader = data_of(files).batch(24).loader(world, prefetch=8)
    wanted = ids(data_of(files).batch(24).loader(rank=0, size=1))
    found = []
    while loader.epoch == 0:
        for batch in itertools.islice(loader, 5):
            found.append(batch.ids.tolist())
        assert loader.epoch == 1 or loader.state()["depth"] == loader.step * 24 // loader._plan.layout.streams
    assert found == wanted
    assert not [thread for thread in threading.enumerate() if thread.name == "allranks-data"]


def test_without_threads_it_is_the_same(files, world):
    """prefetch=0 reads where it iterates."""
    one, other = (data_of(files).batch(24).loader(world, prefetch=many) for many in (0, 8))
    assert ids(one) == ids(other)


def test_another_global_batch_goes_on_if_the_streams_divide_it(files, world):
    """The state counts by stream, so the batch may grow where the plan has the same streams; else it is refused."""
    loader = data_of(files).batch(24, streams=6).loader(world)
    for _ in itertools.islice(loader, 12):
        pass
    state = loader.state().gathered()
    larger = data_of(files).batch(48, streams=6).loader(world, state=state)
    assert larger.step == 6
    assert len(ids(larger)) == 21 - 6
    with pytest.raises(DataError, match="streams: 6 in the state, 12 here"):
        data_of(files).batch(24, streams=12).loader(world, state=state)


def test_streams_were_called_lanes(files, world):
    """The old argument warns, and a state that was saved with the old word goes on."""
    with pytest.warns(DeprecationWarning, match=r"batch\(streams=...\)"):
        data = data_of(files).batch(24, lanes=6)
    assert data == data_of(files).batch(24, streams=6)
    loader = data.loader(world)
    next(iter(loader))
    state = loader.state().gathered()
    of = {"lanes" if name == "streams" else name: value for name, value in state["of"].items()}
    assert of != state["of"]
    assert data.loader(world, state={**state, "of": of}).step == 1


def test_take_and_skip_count_samples_of_all_ranks_together(files):
    """take(100) is a hundred samples, not a hundred on every rank."""
    for data, wanted in (
        (data_of(files).take(100), range(100)),
        (data_of(files).skip(950), range(950, SAMPLES)),
        (data_of(files).skip(10).take(30).skip(5), range(15, 40)),
    ):
        together = SimulatedWorld(3).run(
            lambda world, data=data: [b["id"][b.mask].tolist() for b in data.batch(12).loader(world)]
        )
        assert sorted(itertools.chain(*itertools.chain(*together.values()))) == list(wanted)


def test_tails_are_padded_or_dropped(files, world):
    """pad: masked rows that look like samples; drop: whole batches only. Both known before the first batch."""
    padded = list(data_of(files).batch(100).loader(world))
    assert len(padded) == 11
    assert [int(batch.mask.sum()) for batch in padded] == [100] * 10 + [3]
    assert padded[-1]["text"].count("") == 97
    dropped = data_of(files).batch(100, tail="drop").loader(world)
    assert len(dropped) == len(ids(dropped)) == 10


def test_unshuffled_data_on_one_stream_is_in_the_order_of_the_files(files, world):
    """shuffle=False, streams=1: a validation set from its first sample to the last."""
    loader = data_of(files, shuffle=False).batch(24, streams=1).loader(world)
    assert list(itertools.chain(*ids(loader))) == [*range(SAMPLES), -1, -1, -1, -1, -1]


def test_a_mean_over_a_validation_set_counts_every_sample_once(files):
    """The last batch is uneven; the mask makes the mean that of all samples, on any number of ranks."""

    def mean(world: World) -> float:
        values = [(batch["id"], batch.mask) for batch in data_of(files).batch(24).loader(world)]
        return masked_mean(np.concatenate([v for v, _ in values]), np.concatenate([m for _, m in values]), world)

    for size in (1, 4):
        assert set(SimulatedWorld(size).run(mean).values()) == {(SAMPLES - 1) / 2}


def test_a_row_that_several_ranks_hold_is_counted_by_one(files, monkeypatch):
    """Ranks 1 and 2 hold the same half of the batch: the mean is that of all samples, where each row counts once."""
    halves = range(12), range(12, 24), range(12, 24)
    monkeypatch.setattr(open_loader, "rows_of_process", lambda _where, *, world, **_: tuple(halves[world.rank]))

    def mean(world: World, *, once: bool) -> float:
        loader = data_of(files).batch(24).loader(world)
        counted = loader.counted if once else np.ones(12, bool)
        values = [(batch["id"], batch.mask & counted) for batch in loader]
        return masked_mean(np.concatenate([v for v, _ in values]), np.concatenate([m for _, m in values]), world)

    def means(*, once: bool) -> set[float]:
        return set(SimulatedWorld(3).run(lambda world: mean(world, once=once)).values())

    assert means(once=True) == {(SAMPLES - 1) / 2}
    assert means(once=False) != {(SAMPLES - 1) / 2}


def test_filters_mask_and_move_nothing(files, world):
    """A sample that is left out leaves a masked row; all others are where they were without the filter."""
    wanted = ids(data_of(files).batch(24).loader(rank=0, size=1))
    loader = data_of(files).filter(lambda sample: sample["id"] % 3 > 0).batch(24).loader(world)
    batches = list(loader)
    assert [batch.ids.tolist() for batch in batches] == wanted
    assert all((batch.mask == (batch.ids % 3 > 0) & (batch.ids >= 0)).all() for batch in batches)
    assert loader.audit().bad == 0


def test_a_bad_sample_on_one_rank_shifts_nobody(tmp_path):
    """A line that is no JSON is a masked row on the rank that has it, counted; the others see what they always saw."""
    lines = [json.dumps({"id": number}) for number in range(100)]
    lines[37] = '{"id": 37'
    (tmp_path / "all.jsonl").write_text("\n".join(lines))
    data = Dataset.jsonl(str(tmp_path / "all.jsonl")).batch(12)

    def read(world: World) -> tuple[list[list[int]], list[int], int]:
        loader = data.loader(world)
        batches = list(itertools.islice(loader, len(loader)))
        masked = [int(one) for batch in batches for one in batch.ids[~batch.mask & (batch.ids >= 0)]]
        bad = loader.audit().bad
        return [batch.ids.tolist() for batch in batches], masked, bad

    together = list(SimulatedWorld(3).run(read).values())
    assert sorted(itertools.chain(*itertools.chain(*(rows for rows, _, _ in together)))) == [-1] * 8 + list(range(100))
    assert sorted(itertools.chain(*(masked for _, masked, _ in together))) == [37]
    assert {len(rows) for rows, _, _ in together} == {9}


def test_maps_in_workers_are_the_maps_of_this_process(files, world):
    """Two processes: the same samples, in the same order, with the same random numbers."""

    def noisy(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        return {**sample, "noise": rng.random()}

    found = []
    for workers in (0, 2):
        loader = data_of(files).map(noisy, random=True, workers=workers).batch(24).loader(world)
        found.append([batch["noise"].tolist() for batch in loader])
        loader.close()
    assert found[0] == found[1]


def test_mixtures_have_their_shares_and_each_part_its_own_maps(files, world):
    """Three to one, each with its own map, resumed exactly in the middle."""
    one = data_of(files).take(700).map(lambda sample: {"id": sample["id"], "part": 0})
    other = data_of(files).skip(700).map(lambda sample: {"id": sample["id"], "part": 1})
    data = Dataset.mix([(one, 3), (other, 1)], seed=5).batch(24, streams=4)
    loader = data.loader(world)
    for _ in itertools.islice(loader, 9):
        pass
    state = loader.state().gathered()
    rest = [(batch["id"].tolist(), batch["part"].tolist()) for batch in loader]
    again = [(batch["id"].tolist(), batch["part"].tolist()) for batch in data.loader(world, state=state)]
    assert rest == again
    numbers, parts = (np.array([row for one in rest for row in one[which]]) for which in (0, 1))
    assert np.array_equal(parts == 1, numbers >= 700)
    assert abs(parts.mean() - 0.25) < 0.05


def test_ranks_that_built_other_data_are_refused_before_the_first_batch(files):
    """Another seed on one rank is the same error on all, naming the rank."""

    def read(world: World) -> None:
        Dataset.jsonl(files, seed=int(world.rank == 2)).batch(24).loader(world)

    errors = SimulatedWorld(4).run(read).errors
    assert len(errors) == 4
    for error in errors.values():
        assert isinstance(error, Mismatch)
        assert "seed 1" in str(error)
        assert error.ranks == (2,)


def test_files_that_change_are_found_out(tmp_path, world):
    """A file that is rewritten in the middle of an epoch is an error, not other samples."""
    file = tmp_path / "all.jsonl"
    file.write_text("".join(f'{{"id": {number:04}}}\n'.replace(": 0", ": 1") for number in range(5000)))
    loader = Dataset.jsonl(str(file), block_bytes=512).batch(8).loader(world, prefetch=0)
    made = iter(loader)
    next(made)
    file.write_text(file.read_text().replace("1", "2"))
    with pytest.raises(DataChanged, match=r"all\.jsonl"):
        for _ in made:
            pass


def test_a_batch_that_is_taken_twice_is_found_at_the_end_of_the_epoch(files):
    """What was taken and not planned is the same error on every rank, naming the rank and the step."""

    def read(world: World) -> None:
        loader = data_of(files).batch(24).loader(world)
        for batch in loader:
            if (world.rank, batch.step) == (1, 5):
                count, mixed = sums_of_batches(batch.ids[None])
                loader._audit._ledger.record_batch(6, count[0], mixed[0])

    errors = SimulatedWorld(3).run(read).errors
    assert len(errors) == 3
    for error in errors.values():
        assert isinstance(error, LedgerMismatch)
        assert error.ranks == (1,)
        assert error.step == 6


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda files: data_of(files).loader(rank=0, size=1), "has no batch size.*batch"),
        (lambda files: data_of(files).batch(24).loader(rank=0, size=5), "does not divide over 5 ranks.*1, 2, 3, 4, 6"),
        (lambda files: data_of(files).take(0).batch(4).loader(rank=0, size=1), "no sample left of 1003"),
        (lambda files: data_of(files).batch(24).loader(rank=0), "cannot be combined with a world or rows"),
        (
            lambda files: data_of(files).map(str).take(3),
            r"take\(3\): expected samples of one source, before .map",
        ),
        (lambda files: data_of(files).batch(7, streams=2), "streams=2 does not divide"),
        (lambda _: Dataset.mix([]), "the mixture is empty"),
        (lambda files: data_of(files).pack(8).map(str), "not on packed rows"),
        (lambda files: data_of(files).map(str, workers=-1), "workers=-1: expected"),
        (lambda files: data_of(files).batch(24).loader(rank=0, size=1).state(), "rank 0 reads alone"),
        (
            lambda files: next(iter(data_of(files).filter(lambda _: False).batch(24).loader(rank=0, size=1))),
            "none of 1",
        ),
    ],
)
def test_what_cannot_be_says_why_and_what_to_do(make, says, files):
    """Errors of the face, at the call that is wrong."""
    with pytest.raises(DataError, match=says):
        make(files)


def test_a_data_set_for_a_text_a_table_or_a_list_is_read_alike(tmp_path, world):
    """The same loader over every kind of source."""
    Path(tmp_path, "a.txt").write_text("one\ntwo\nthree\n")
    [batch] = Dataset.text(str(tmp_path / "a.txt")).batch(4).loader(world)
    assert sorted(batch["value"]) == ["", "one", "three", "two"]
    [batch] = Dataset.sequence(np.arange(12).reshape(4, 3)).batch(4).loader(world)
    assert sorted(batch["value"].tolist()) == np.arange(12).reshape(4, 3).tolist()
