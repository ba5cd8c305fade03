"""Who is in the minority: all small votes, counted a second time by hand."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from allranks.consistency.vote import CopyGroup, EqualRanks, VoteResult, count_votes, equal_ranks

GOOD, BAD, WORSE = b"good", b"bad!", b"wors"


def votes(values: list[bytes]) -> list[VoteResult]:
    """The count where every rank holds one value, through the parties that they make."""
    made = equal_ranks({rank: (value.hex(), False) for rank, value in enumerate(values)})
    return (
        list(count_votes([EqualRanks(tuple(ranks), values[ranks[0]]) for ranks in made], digest_width=4))
        if made
        else []
    )


def test_every_vote_of_up_to_six_ranks() -> None:
    """Nothing is said where all agree; else the camps are those of the values, and over half of the ranks decides."""
    for size in range(1, 7):
        for values in product((GOOD, BAD, WORSE), repeat=size):
            found = votes(list(values))
            groups = {value: tuple(r for r in range(size) if values[r] == value) for value in set(values)}
            if len(groups) == 1:
                assert found == []
                continue
            (one,) = found
            assert {group.ranks for group in one.groups} == set(groups.values())
            sizes = [len(group.ranks) for group in one.groups]
            assert sizes == sorted(sizes, reverse=True)
            assert one.decided == (max(sizes) > size / 2)


@given(st.lists(st.lists(st.sampled_from([GOOD, BAD, WORSE]), min_size=1, max_size=4), min_size=1, max_size=5))
def test_the_devices_of_a_rank_share_its_vote(held: list[list[bytes]]) -> None:
    """Ranks with several copies each: the camps hold every copy once, and the votes add up as one for each rank."""
    named = {rank: {f"d{n}": value for n, value in enumerate(copies)} for rank, copies in enumerate(held)}
    inconsistent = {rank: len(set(copies)) > 1 for rank, copies in enumerate(held)}
    own = {rank: f" torn on {rank}" if inconsistent[rank] else "" for rank in named}
    roots = {rank: (f"{copies[0].hex()}{own[rank]}", inconsistent[rank]) for rank, copies in enumerate(held)}
    made = equal_ranks(roots)
    if len({value for copies in held for value in copies}) == 1:
        assert made is None
        return
    assert made is not None
    of = [EqualRanks(tuple(rs), held[rs[0]][0], {0: named[rs[0]]} if inconsistent[rs[0]] else {}) for rs in made]
    (one,) = count_votes(of, digest_width=4)
    shares: defaultdict[bytes, Fraction] = defaultdict(Fraction)
    for copies in held:
        for value in copies:
            shares[value] += Fraction(1, len(copies))
    by_group = [share_of(group, held) for group in one.groups]
    assert sorted(by_group, reverse=True) == sorted(shares.values(), reverse=True) == by_group
    assert one.decided == (2 * by_group[0] > len(held))
    seen = sorted((r, d) for group in one.groups for r, d in group.devices) + sorted(
        r for c in one.groups for r in c.ranks
    )
    assert (
        len(seen) == sum(len(copies) if inconsistent[rank] else 1 for rank, copies in enumerate(held)) == len(set(seen))
    )


def share_of(group: CopyGroup, held: list[list[bytes]]) -> Fraction:
    return len(group.ranks) + sum((Fraction(1, len(held[rank])) for rank, _ in group.devices), Fraction())


def test_one_device_of_one_of_two_ranks() -> None:
    """Two ranks with four copies each, and one bad: seven agree, so it is known which is wrong, and where."""
    copies = {"gpu:4": GOOD, "gpu:5": GOOD, "gpu:6": BAD, "gpu:7": GOOD}
    (one,) = count_votes([EqualRanks((0,), GOOD), EqualRanks((1,), GOOD, {0: copies})], digest_width=4)
    assert one.decided
    assert one.groups[1] == CopyGroup((), ((1, "gpu:6"),))
    assert str(one.groups[1]) == "rank 1 (gpu:6)"
    assert str(one.groups[0]) == "rank 0, rank 1 (gpu:4, gpu:5, gpu:7)"


def test_a_majority_is_one_of_all_ranks() -> None:
    """Three of five who were heard are no majority of eight."""
    of = [EqualRanks((0, 1, 2), GOOD), EqualRanks((3, 4), BAD)]
    assert [one.decided for silent in (0, 1) for one in count_votes(of, digest_width=4, absent_ranks=silent)] == [
        True,
        False,
    ]


def test_each_entry_is_counted_for_itself() -> None:
    """Rank 1 is odd in the second entry, rank 2 in the fourth: each is named once, where it is."""
    blobs = {(0, 3): GOOD * 4, (1,): GOOD + BAD + GOOD * 2, (2,): GOOD * 3 + BAD}
    found = list(count_votes([EqualRanks(ranks, blob) for ranks, blob in blobs.items()], digest_width=4))
    assert [(one.entry, one.groups[1].ranks, one.decided) for one in found] == [(1, (1,), True), (3, (2,), True)]
