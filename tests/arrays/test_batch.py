"""Batch arithmetic and what ranks say about their rows: plain values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allranks.arrays.batch import BatchPlan, RowClaim, check_row_claims, count_global_rows, count_rows
from allranks.errors import BatchMismatch


def test_a_plan_prints_its_arithmetic() -> None:
    """The line of the issue, with one of a thing in the singular."""
    assert str(BatchPlan(64, ranks=4, devices=2, accumulation=2)) == "64 = 4 ranks x 2 devices x 4 x 2 accumulation"
    assert str(BatchPlan(3, ranks=1)) == "3 = 1 rank x 1 device x 3 x 1 accumulation"


@given(
    size=st.integers(-5, 10_000), ranks=st.integers(1, 40), devices=st.integers(1, 8), accumulation=st.integers(1, 8)
)
def test_a_plan_either_multiplies_or_names_the_nearest_sizes_that_do(
    size: int, ranks: int, devices: int, accumulation: int
) -> None:
    """Every size is either cut without rest into disjoint ranges, or refused with sizes that are not refused."""
    try:
        plan = BatchPlan(size, ranks, devices, accumulation)
    except BatchMismatch as error:
        named = [int(n) for n in error.remedy.removesuffix(".").split() if n.isdigit()]
        assert [BatchPlan(n, ranks, devices, accumulation).size for n in named] == named
        assert 1 <= len(named) <= 2
        assert all(abs(n - size) < ranks * devices * accumulation for n in named if size > 0)
    else:
        assert plan.rows_at_once * ranks * devices * accumulation == size
        assert [row for rank in range(ranks) for row in plan.rows_of(rank)] == list(range(size))


def test_a_plan_refuses_fewer_than_one() -> None:
    with pytest.raises(BatchMismatch, match=r"accumulation=0: expected at least 1"):
        BatchPlan(64, ranks=4, accumulation=0)


@pytest.mark.parametrize(
    ("shapes", "says"),
    [
        ({"x": (8, 3), "y": (7,)}, "8 in 'x', 7 in 'y'"),
        ({"x": (8, 3), "step": ()}, "leaf 'step' has no dimension: expected rows in the first dimension"),
        ({}, "no leaf at all"),
    ],
)
def test_leaves_with_different_numbers_of_rows_are_refused(shapes: dict[str, tuple[int, ...]], says: str) -> None:
    with pytest.raises(BatchMismatch, match=says):
        count_rows(shapes, operation="rank 1: global_batch")


@pytest.mark.parametrize(
    ("rows", "global_rows", "says"),
    [
        (15, None, "rank 1: 15 rows cannot be divided over the 2 parts"),
        (0, None, "0 rows cannot be divided"),
        (
            8,
            64,
            "8 rows on this rank make a batch of 32 rows over all ranks: expected global_rows=64. .* pass 16 rows.",
        ),
        (64, 64, "64 rows on this rank make a batch of 256 rows over all ranks: .* pass only this rank's own 16 rows."),
        (8, 60, "60 rows cannot be divided over the 8 parts of the batch either."),
    ],
)
def test_rows_that_do_not_add_up_are_refused(rows: int, global_rows: int | None, says: str) -> None:
    """Four ranks of two devices each; the error says what this rank should have brought."""
    with pytest.raises(BatchMismatch, match=says):
        count_global_rows(rows, rank_parts=2, all_parts=8, global_rows=global_rows, operation="rank 1")


def test_rows_that_add_up_make_the_whole() -> None:
    assert count_global_rows(16, rank_parts=2, all_parts=8, global_rows=64, operation="rank 1") == 64
    assert count_global_rows(16, rank_parts=2, all_parts=8, global_rows=None, operation="rank 1") == 64


def claim(rows: int, shards: tuple[int, ...], digest: str) -> RowClaim:
    return RowClaim((f"x uint8[{rows}, 129]",), shards, digest)


def test_ranks_that_bring_unlike_rows_are_named() -> None:
    with pytest.raises(BatchMismatch, match=r"ranks 0, 2: x uint8\[4, 129\]; rank 1: x uint8\[3, 129\]") as caught:
        check_row_claims([claim(4, (0,), "a"), claim(3, (1,), "b"), claim(4, (2,), "c")])
    assert caught.value.ranks == (1,)


def test_ranks_that_all_read_the_same_rows_are_found() -> None:
    """The first thing to go wrong with data on many hosts: everybody reads everything."""
    with pytest.raises(BatchMismatch, match=r"ranks 0, 2 have byte-identical rows .* BatchPlan\.rows_of"):
        check_row_claims([claim(4, (0,), "a"), claim(4, (1,), "b"), claim(4, (2,), "a")])


def test_ranks_that_share_a_part_must_bring_the_same_rows() -> None:
    """Tensor parallelism over processes: ranks 0 and 1 hold the same rows."""
    check_row_claims([claim(4, (0,), "a"), claim(4, (0,), "a"), claim(4, (1,), "b"), claim(4, (1,), "b")])
    with pytest.raises(BatchMismatch, match="ranks 2-3 hold the same part of the batch, but have different bytes"):
        check_row_claims([claim(4, (0,), "a"), claim(4, (0,), "a"), claim(4, (1,), "b"), claim(4, (1,), "c")])


def test_a_batch_of_zeros_says_nothing_about_whose_rows_it_is() -> None:
    """A warm-up step on constant rows is no fault: such a claim has no digest."""
    check_row_claims([claim(4, (rank,), "") for rank in range(4)])
