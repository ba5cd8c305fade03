"""Packed rows: every token once, equal steps on every rank, the same global batches on every world size."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import pytest

from allranks import Dataset, SimulatedWorld, World
from allranks.errors import DataError, LedgerMismatch, NoLength

SAMPLES = 300


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> str:
    """Documents of 1 to 90 tokens; document i is made of the token i + 1."""
    folder, dice = tmp_path_factory.mktemp("tokens"), np.random.default_rng(0)
    for name, ids in (("a", range(200)), ("b", range(200, SAMPLES))):
        lines = [json.dumps({"id": number, "count": int(dice.integers(1, 90))}) for number in ids]
        (folder / f"{name}.jsonl").write_text("\n".join(lines))
    return str(folder / "*.jsonl")


def tokens(sample: dict[str, Any]) -> dict[str, Any]:
    return {"tokens": np.full(sample["count"], sample["id"] + 1, np.int32)}


def packed(files: str, method: str = "split", *, length: int = 32, streams: int = 4) -> Dataset:
    data = Dataset.jsonl(files, seed=1, block_bytes=256).map(tokens)
    return data.pack(length, method=method).batch(8, streams=streams)


def lengths(files: str) -> np.ndarray:
    found = {}
    for batch in Dataset.jsonl(files).batch(50).loader(rank=0, size=1):
        found |= dict(zip(batch["id"][batch.mask].tolist(), batch["count"][batch.mask].tolist(), strict=True))
    return np.array([0, *(found[number] for number in range(SAMPLES))])


@pytest.mark.parametrize("method", ["split", "best-fit"])
@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_every_token_once_in_equal_steps_on_any_number_of_ranks(files, method, size):
    """Ranks end together; side by side their rows hold every token once, and are those of a single rank."""

    def read(world: World) -> list[Any]:
        loader = packed(files, method).loader(world)
        return [(batch["tokens"], batch["segment_ids"], batch.ids, batch.mask) for batch in loader]

    ranks = list(SimulatedWorld(size).run(read).values())
    assert len({len(steps) for steps in ranks}) == 1
    whole = np.concatenate([np.concatenate([step[0] for step in steps]) for steps in zip(*ranks, strict=True)])
    segments = np.concatenate([np.concatenate([step[1] for step in steps]) for steps in zip(*ranks, strict=True)])
    assert np.array_equal(np.bincount(whole[segments > 0], minlength=SAMPLES + 1), lengths(files))
    ids = np.concatenate([step[2] for steps in ranks for step in steps])
    assert sorted(ids.tolist()) == list(range(SAMPLES))
    alone = np.concatenate([batch["tokens"] for batch in packed(files, method).loader(rank=0, size=1)])
    assert np.array_equal(whole, alone)


def test_nobody_knows_how_many_packed_rows_there_are(files):
    """``len`` says what to do instead, in a kind of error that list() and progress bars expect of what has none."""
    loader = packed(files).loader(rank=0, size=1)
    with pytest.raises(NoLength, match=r"no len\(loader\).*iterate to the end"):
        len(loader)
    assert loader
    assert list(loader)


@pytest.mark.parametrize("method", ["split", "best-fit"])
@pytest.mark.parametrize("step", [0, 1, 7, 23])
def test_a_state_goes_on_in_the_middle_of_a_document(files, method, step):
    """Saved by two ranks, restored by four: the rest of the epoch is bit-equal, and so is its proof."""

    def begin(world: World) -> dict[str, Any]:
        loader = packed(files, method).loader(world)
        for _ in itertools.islice(loader, step):
            pass
        return loader.state().gathered()

    def go_on(world: World) -> list[np.ndarray]:
        loader = packed(files, method).loader(world, state=json.loads(states[0]))
        rest = [batch["tokens"] for batch in loader]
        assert loader.epoch == 1
        return rest

    states = [json.dumps(state) for state in SimulatedWorld(2).run(begin).values()]
    assert len(set(states)) == 1
    rest = [np.concatenate(rows) for rows in zip(*SimulatedWorld(4).run(go_on).values(), strict=True)]
    wanted = [batch["tokens"] for batch in packed(files, method).loader(rank=0, size=1)][step:]
    assert len(rest) == len(wanted)
    assert all(np.array_equal(one, other) for one, other in zip(rest, wanted, strict=True))


def test_epochs_are_packed_anew(files):
    """The next epoch has another order, and every document again."""
    loader = packed(files).loader(rank=0, size=1)
    first, second = ([batch["tokens"] for batch in loader] for _ in range(2))
    assert loader.epoch == 2
    assert not np.array_equal(first[0], second[0])


def test_what_is_filtered_or_bad_has_no_token_and_is_counted(files):
    """A masked document takes no room; the ledger still has it, and says how many could not be used."""

    def broken(sample: dict[str, Any]) -> dict[str, Any]:
        if sample["id"] % 10 == 7:
            raise ValueError("no")
        return tokens(sample)

    def read(world: World) -> tuple[set[int], Any]:
        data = Dataset.jsonl(files, block_bytes=256).filter(lambda sample: sample["id"] % 2 == 1)
        loader = data.map(broken, on_error="mask").pack(32).batch(8, streams=4).loader(world)
        seen: set[int] = set()
        bad = 0
        for batch in loader:
            seen |= set(np.unique(batch["tokens"][batch["segment_ids"] > 0]).tolist())
            bad = max(bad, loader.audit().bad)
        return seen, bad

    ranks = list(SimulatedWorld(2).run(read).values())
    assert set.union(*(seen for seen, _ in ranks)) == {n + 1 for n in range(SAMPLES) if n % 2 == 1 and n % 10 != 7}
    assert {bad for _, bad in ranks} == {30}


def test_a_row_that_is_lost_is_found_out(files):
    """A rank that hands out a row and does not count it cannot say that the epoch is done."""

    def read(world: World) -> None:
        loader = packed(files).loader(world)
        record = loader._audit.record_batch
        loader._audit.record_batch = lambda counted: (
            None if (world.rank, counted.batch.step) == (1, 9) else record(counted)
        )
        for _ in loader:
            pass

    errors = SimulatedWorld(2).run(read).errors
    assert len(errors) == 2
    assert all(isinstance(error, LedgerMismatch) for error in errors.values())


def test_best_fit_is_proven_at_the_end_only(files):
    """In the middle of an epoch an audit of best-fit is refused, since nobody can say what should have ended."""
    [world] = SimulatedWorld(1).run(lambda world: world).values()
    loader = packed(files, "best-fit").loader(world)
    next(iter(loader))
    with pytest.raises(DataError, match="end of an epoch only"):
        loader.audit()


def test_another_packing_cannot_go_on_from_a_state(files):
    """Length, method and the rest are part of what a state is of."""
    [world] = SimulatedWorld(1).run(lambda world: world).values()
    loader = packed(files).loader(world)
    next(iter(loader))
    state = loader.state().gathered()
    with pytest.raises(DataError, match="packing: split/32/0/None/split/16 in the state, split/64"):
        packed(files, length=64).loader(world, state=state)


def test_samples_without_tokens_are_refused(files):
    """A sample that was not tokenized is named, with what it has."""
    data = Dataset.jsonl(files).pack(32).batch(8, streams=1)
    with pytest.raises(
        DataError,
        match=r"sample \d+ cannot be packed: expected .*, found the columns \['count', 'id'\].*\.map\(tokenizer",
    ):
        next(iter(data.loader(rank=0, size=1)))
