"""Tickets at the door of a collective, compared with nothing but values."""

from __future__ import annotations

import pytest

from allranks.arrays.base import Leaf
from allranks.errors import Mismatch
from allranks.gate.ticket import (
    CollectiveEntry,
    compare_entries,
    describe_leaves,
    digest_of_descriptions,
    leaf_mismatch,
)


def entry(sequence: int = 1, step: int | None = 7, digest: str = "d", where: str = "a.py:1") -> CollectiveEntry:
    return CollectiveEntry(sequence, step, digest, False, where)


def leaf(path: str, *shape: int, dtype: str = "float32", pieces: tuple[int, ...] | None = None) -> Leaf:
    return Leaf(path, shape, dtype, pieces or (1,) * len(shape), device_bytes=4)


def test_equal_tickets_pass_wherever_they_were_written() -> None:
    """The line of the call may differ over ranks; nothing else."""
    assert compare_entries([entry(), entry(where="b.py:2"), entry()]) is None


@pytest.mark.parametrize(
    ("odd", "says"),
    [
        (entry(sequence=2), "ranks 0-1, 3: call 1 (a.py:1); rank 2: call 2 (a.py:1). Did a rank leave out a call"),
        (entry(step=8), "ranks 0-1, 3: step 7 (a.py:1); rank 2: step 8 (a.py:1). Did a rank skip a step"),
        (entry(step=None), "rank 2: no step (a.py:1)"),
        (entry(digest="e"), "ranks 0-1, 3: digest d (a.py:1); rank 2: digest e (a.py:1). Did every rank build"),
        (entry(digest="", where=""), "rank 2: no digest. Did"),
        (entry(step=9, digest="e"), "step 7, digest d (a.py:1); rank 2: step 9, digest e (a.py:1). Did a rank skip"),
    ],
)
def test_the_odd_rank_is_named_with_what_it_holds(odd: CollectiveEntry, says: str) -> None:
    with pytest.raises(Mismatch) as caught:
        compare_entries([entry(), entry(), odd, entry()])
    assert says in str(caught.value)
    assert caught.value.ranks == (2,)


def test_10_000_tickets_are_compared() -> None:
    """At the largest size that the library plans for, the few that differ are named as ranges."""
    entries = [entry() for _ in range(10_000)]
    assert compare_entries(entries) is None
    entries[8000:8008] = [entry(step=6)] * 8
    with pytest.raises(Mismatch, match=r"ranks 0-7999, 8008-9999: step 7.*ranks 8000-8007: step 6") as caught:
        compare_entries(entries)
    assert caught.value.ranks == tuple(range(8000, 8008))


def test_groups_with_leaves_are_to_be_compared_leaf_by_leaf() -> None:
    """Where only the digests differ and all ranks can say what is behind them, the groups come back instead."""
    reported = [CollectiveEntry(1, 7, digest, True, "a.py:1") for digest in "ddede"]
    assert compare_entries(reported) == [[0, 1, 3], [2, 4]]


def test_the_first_leaf_that_differs_is_named() -> None:
    ours = describe_leaves([leaf("a", 3), leaf("opt/mu/0", 512, 64), leaf("z", 1)])
    theirs = describe_leaves([leaf("a", 3), leaf("opt/mu/0", 512, 64, pieces=(2, 1)), leaf("z", 1, dtype="int8")])
    error = leaf_mismatch([([0, 1, 2], ours), ([3], theirs)])
    assert str(error).startswith(
        "leaf 'opt/mu/0' is float32[512, 64] on ranks 0-2, float32[512, 64] in 2 x 1 pieces on rank 3 (1 more leaf"
    )
    assert (error.leaf, error.ranks) == ("opt/mu/0", (3,))


def test_a_missing_leaf_and_another_order_are_told() -> None:
    both, one = describe_leaves([leaf("a", 3), leaf("b")]), describe_leaves([leaf("a", 3)])
    assert "leaf 'b' is float32[] on rank 0, missing on rank 1" in str(leaf_mismatch([([0], both), ([1], one)]))
    swapped = describe_leaves([leaf("b"), leaf("a", 3)])
    assert "different orders" in str(leaf_mismatch([([0], both), ([1], swapped)]))


@pytest.mark.parametrize(
    "other",
    [
        [leaf("v", 2, 3)],
        [leaf("w", 3, 2)],
        [leaf("w", 2, 3, dtype="int8")],
        [leaf("w", 2, 3, pieces=(2, 1))],
        [leaf("w", 2, 3), leaf("b")],
        [],
    ],
)
def test_the_digest_sees_path_shape_dtype_and_split(other: list[Leaf]) -> None:
    ours = digest_of_descriptions(describe_leaves([leaf("w", 2, 3)]))
    assert ours == digest_of_descriptions(describe_leaves([leaf("w", 2, 3)]))
    assert ours != digest_of_descriptions(describe_leaves(other))
