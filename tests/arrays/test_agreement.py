"""Do replicas agree: the verdict from what the ranks say, for leaves that are cut and copied in many ways."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from allranks.arrays.agreement import judge, words
from allranks.arrays.base import Piece
from allranks.digest import digest


def held(
    cut: int, copies: int, *, ranks: int, path: str = "w", odd: Iterable[tuple[int, int]] = ()
) -> list[list[Piece]]:
    """What each rank holds of a leaf in ``cut`` parts and ``copies`` copies; those in ``odd`` have other bytes."""
    per_rank: list[list[Piece]] = [[] for _ in range(ranks)]
    for number, (copy, part) in enumerate((copy, part) for copy in range(copies) for part in range(cut)):
        data = b"odd" if (copy, part) in set(odd) else b"same"
        per_rank[number % ranks].append(Piece(path, copy, copies, digest(path, str(part), data)))
    return per_rank


def say(*leaves: list[list[Piece]], by_leaf: bool) -> list[list[list[str | int]]]:
    return [words([p for pieces in of_rank for p in pieces], by_leaf=by_leaf) for of_rank in zip(*leaves, strict=True)]


@given(cut=st.integers(1, 6), copies=st.integers(1, 6), ranks=st.integers(1, 8), by_leaf=st.booleans())
def test_equal_replicas_have_one_digest_whoever_holds_them(cut: int, copies: int, ranks: int, by_leaf: bool) -> None:
    """The digest depends neither on the number of ranks nor on the number of copies."""
    total, odd = judge(say(held(cut, copies, ranks=ranks), by_leaf=by_leaf))
    assert odd == ()
    assert total == judge(say(held(cut, 1, ranks=1), by_leaf=by_leaf))[0]


def test_one_odd_replica_names_its_rank_and_leaf() -> None:
    """Four replicas on four ranks: the majority is known, so the one that differs is named."""
    leaves = held(1, 4, ranks=4, path="a"), held(1, 4, ranks=4, path="b", odd=[(2, 0)])
    assert [d.ranks for d in judge(say(*leaves, by_leaf=False))[1]] == [(2,)]
    assert [(d.path, d.ranks) for d in judge(say(*leaves, by_leaf=True))[1]] == [("b", (2,))]


def test_two_replicas_that_differ_are_both_named() -> None:
    """Without a majority nobody can say which of them is right."""
    assert judge(say(held(1, 2, ranks=2, odd=[(1, 0)]), by_leaf=True))[1][0].ranks == (0, 1)


def test_a_leaf_that_one_rank_lacks_is_found() -> None:
    """Rank 1 never built leaf b: the ranks that lack it are named, not those that have it."""
    leaves = held(1, 3, ranks=3, path="a"), held(1, 3, ranks=3, path="b")
    said = say(*leaves, by_leaf=True)
    said[1] = [word for word in said[1] if word[0] != "b"]
    assert [(d.path, d.ranks) for d in judge(said)[1]] == [("b", (1,))]


@given(cut=st.integers(1, 4), copies=st.integers(2, 4), data=st.data())
def test_any_single_difference_is_found(cut: int, copies: int, data: st.DataObject) -> None:
    """Whichever part of whichever copy has other bytes, some difference is reported."""
    place = (data.draw(st.integers(0, copies - 1)), data.draw(st.integers(0, cut - 1)))
    said = say(held(cut, copies, ranks=cut * copies, odd=[place]), by_leaf=False)
    assert judge(said)[1] != ()


def test_ten_thousand_ranks_say_one_sum_each() -> None:
    """300 replicated leaves on 10,000 ranks of one device: what a rank says does not grow with the leaves."""
    of_rank = [[Piece(f"leaf{i}", rank, 10_000, i) for i in range(300)] for rank in (0, 9_999)]
    assert [len(words(pieces, by_leaf=False)) for pieces in of_rank] == [1, 1]
    total, odd = judge([words([Piece("w", rank, 10_000, 7)], by_leaf=False) for rank in range(10_000)])
    assert (total, odd) == (7, ())
