"""Before step 0: ranks that do not read the same data, or not all of it, are told so, all with one error."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import index_of

from allranks import SimulatedWorld, World
from allranks.data import agreement, plan
from allranks.data.start import compare_shared_rows, row_hashes, start_on_all_ranks
from allranks.errors import AllranksError, BatchMismatch, Mismatch

BATCH = 16


def told(size: int, program: Any) -> tuple[AllranksError, str]:
    """Return the error that all ranks raise: there must be one on every rank, of one kind, with the same words."""
    outcome = SimulatedWorld(size).run(program)
    assert len(outcome.errors) == size, outcome.results
    words = {(type(error), re.sub(r"rank \d+: ", "", str(error), count=1)) for error in outcome.errors.values()}
    assert len(words) == 1, words
    error = outcome.errors[0]
    assert isinstance(error, AllranksError)
    return error, str(error)


def begin(
    world: World, rows: Any = None, *, index: Any = None, batch: int = BATCH, **other: Any
) -> agreement.RowShares:
    of = index or index_of(1000)
    laid = plan.choose_layout(of, global_batch=16, seed=other.pop("seed", 0), shuffle=True)
    said = {**plan.EpochPlan(of, laid, 0).facts(), "epoch": 0, "depth": 0}
    mine = plan.rows_of_rank(world.rank, world.size, batch) if rows is None else rows
    return start_on_all_ranks(world, {**said, **other}, mine, global_batch=batch)


@pytest.mark.parametrize(
    ("odd", "says"),
    [
        ({"index": index_of(999)}, r"rank 2: plan \w+, index \w+, samples 999\. .*Do all hosts see the same files\?"),
        ({"seed": 1}, "rank 2: plan .*, seed 1.*same settings"),
        ({"batch": 32}, "ranks 0-1, 3: global batch 16; rank 2: global batch 32"),
        ({"epoch": 1}, "rank 2: epoch 1. Did every rank restore the same checkpoint?"),
        ({"depth": 24}, "rank 2: depth 24. Did every rank restore"),
        ({"tokenizer": "b7"}, "ranks 0-1, 3: tokenizer None; rank 2: tokenizer b7"),
    ],
)
def test_what_differs_on_one_rank_is_named_on_all(odd: dict[str, Any], says: str) -> None:
    error, words = told(4, lambda world: begin(world, **(odd if world.rank == 2 else {})))
    assert isinstance(error, Mismatch)
    assert re.search(says, words), words
    assert error.ranks == (2,)


def test_another_version_of_the_code_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = iter(["1.0", "1.0", "1.0", "1.1"])
    monkeypatch.setattr("allranks.data.start.allranks_version", lambda: next(versions))
    _, words = told(4, begin)
    assert re.search(r"ranks [-, \d]+: allranks 1\.0; rank \d: allranks 1\.1\. Install one version", words)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (lambda _: range(4), "no rank holds rows 4-15 of the global batch of 16; ranks 0-3: rows 0-3"),
        (lambda world: range(world.rank * 4, world.rank * 4 + 3), "no rank holds rows 3, 7, 11, 15 of"),
        (lambda world: range(world.rank * 5, world.rank * 5 + 5), "rank 3 holds rows 15-19, which are not all in"),
    ],
    ids=["one part for all", "holes", "too many"],
)
def test_rows_that_are_not_the_whole_batch_are_refused(rows: Any, says: str) -> None:
    """Every rank reading one part, as if it were rank 0, is the silent loss of the others."""
    error, words = told(4, lambda world: begin(world, rows(world)))
    assert isinstance(error, BatchMismatch)
    assert says in words


@given(st.lists(st.sets(st.integers(0, BATCH - 1)), min_size=1, max_size=5), st.integers(0, 4))
def test_every_row_is_counted_by_the_lowest_rank_that_holds_it(held: list[set[int]], last: int) -> None:
    """However the rows are spread over ranks: in pieces, several times, on some ranks only."""
    every = [sorted(rows) for rows in held]
    every.insert(min(last, len(every)), sorted(set(range(BATCH)).difference(*held)))
    found = SimulatedWorld(len(every)).run(lambda world: begin(world, every[world.rank])).values()
    for rank, shares in enumerate(found):
        others = [rows for other, rows in enumerate(every) if other != rank]
        lower = {row for rows in every[:rank] for row in rows}
        assert shares.rows == tuple(every[rank])
        assert shares.counted == tuple(row for row in every[rank] if row not in lower)
        assert shares.shared == tuple(row for row in every[rank] if any(row in rows for rows in others))


def test_ranks_that_hold_the_same_rows_must_bring_the_same_bytes() -> None:
    """An augmentation that is another on one of them is found at the first batch; text is compared, too."""

    def compare(world: World, odd: bool) -> None:
        shares = begin(world, range(8) if world.rank < 3 else range(6, 16))
        tokens = np.arange(8 * 3).reshape(8, 3) if world.rank < 3 else np.arange(100, 130).reshape(10, 3)
        text = np.array([f"document {row}" for row in shares.rows], object)
        if world.rank == 3:
            tokens[:2], text[:2] = np.arange(18, 24).reshape(2, 3), ["document 6", "document 7"]
        if odd and world.rank == 1:
            text[6] = "document six"
        hashes = row_hashes({"tokens": tokens, "text": text})
        compare_shared_rows(world, shares.shared, hashes[np.isin(shares.rows, shares.shared)])

    SimulatedWorld(4).run(lambda world: compare(world, odd=False)).values()
    error, words = told(4, lambda world: compare(world, odd=True))
    assert isinstance(error, BatchMismatch)
    assert "ranks 0-3 brought different bytes for row 6, which they hold together; rank 1 unlike most." in words
    assert error.ranks == (1,)


def test_columns_and_dtypes_are_part_of_a_rows_hash() -> None:
    """Two rows are alike only if all that is in them is."""
    tokens = np.arange(4, dtype=np.int32).reshape(2, 2)
    variants = [
        {"a": tokens},
        {"b": tokens},
        {"a": tokens.astype(np.uint32)},
        {"a": tokens, "b": tokens},
        {"a": tokens[::-1]},
    ]
    assert len({row_hashes(one).tobytes() for one in variants}) == len(variants)
    assert row_hashes({"b": tokens, "a": tokens}).tolist() == row_hashes({"a": tokens.copy(), "b": tokens}).tolist()
