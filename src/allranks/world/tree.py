"""Compute the tree along which values are passed up to rank 0. No rank waits for more than ``fanout`` other ranks.

Rank r's children are r * fanout + 1 ... r * fanout + fanout, as in a heap. With ``fanout >= size - 1`` the tree is
flat: every rank is a child of rank 0. A flat tree has the fewest operations and one level, but its root makes ``size -
1`` waits one after the other. In a deeper tree, a rank makes at most ``fanout`` waits.
"""

from __future__ import annotations

from collections.abc import Container


def parent(rank: int, fanout: int) -> int:
    """Return the parent of a rank: the rank that waits for it. Raises ValueError for rank 0, which has no parent."""
    if rank < 1:
        raise ValueError(f"rank {rank} has no parent")
    return (rank - 1) // fanout


def children(rank: int, size: int, fanout: int) -> range:
    """Return the children of a rank: the ranks that it waits for."""
    first = rank * fanout + 1
    return range(first, min(first + fanout, size)) if first < size else range(0)


def tree_depth(size: int, fanout: int) -> int:
    """Return how many hops the farthest rank is from rank 0."""
    hops, rank = 0, size - 1
    while rank > 0:
        hops, rank = hops + 1, parent(rank, fanout)
    return hops


def stalled_ranks(risen: Container[int], size: int, fanout: int) -> tuple[int, ...]:
    """Return the ranks that have all values they wait for and have not passed them on.

    ``risen`` has the ranks that have passed their values on.

    >>> stalled({3, 4, 2}, size=5, fanout=2)
    (1,)
    """
    behind = (rank for rank in range(size) if rank not in risen)
    return tuple(rank for rank in behind if all(child in risen for child in children(rank, size, fanout)))
