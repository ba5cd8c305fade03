"""The tree along which values rise: every rank in it once, nobody waits for too many."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allranks.world.tree import children, parent, stalled_ranks, tree_depth

SIZES, FANOUTS = st.integers(1, 300), st.integers(1, 310)


@given(SIZES, FANOUTS)
@settings(deadline=None)
def test_every_rank_but_0_is_the_child_of_one_rank(size: int, fanout: int) -> None:
    below = {rank: list(children(rank, size, fanout)) for rank in range(size)}
    assert sorted(child for family in below.values() for child in family) == list(range(1, size))
    assert all(parent(child, fanout) == rank for rank, family in below.items() for child in family)
    assert all(len(family) <= fanout for family in below.values())


@given(SIZES, FANOUTS)
@settings(deadline=None)
def test_every_rank_reaches_the_root(size: int, fanout: int) -> None:
    """In at most ``tree_depth`` hops, and one of them in as many."""
    hops = [0] * size
    for rank in range(1, size):
        assert parent(rank, fanout) < rank
        hops[rank] = hops[parent(rank, fanout)] + 1
    assert max(hops) == tree_depth(size, fanout)


@given(SIZES, st.integers(2, 310))
@settings(deadline=None)
def test_the_tree_is_as_flat_as_its_fanout_allows(size: int, fanout: int) -> None:
    assert tree_depth(size, fanout) <= math.ceil(math.log(size, fanout)) + 1
    if fanout >= size - 1 > 0:
        assert tree_depth(size, fanout) == 1


def test_rank_0_has_no_parent() -> None:
    with pytest.raises(ValueError, match="rank 0 has no parent"):
        parent(0, 8)


@given(st.integers(1, 40), FANOUTS, st.randoms(use_true_random=False))
@settings(deadline=None)
def test_somebody_always_holds_up_the_rest(size: int, fanout: int, random: Random) -> None:
    """Values rise in any order that the tree allows: those that hold them up can all pass them on next, rank 0 last."""
    risen: set[int] = set()
    while (held := stalled_ranks(risen, size, fanout)) != (0,):
        assert held
        assert risen.isdisjoint(held)
        assert all(set(children(rank, size, fanout)) <= risen for rank in held)
        risen.add(random.choice(held))
    assert risen == set(range(1, size))
