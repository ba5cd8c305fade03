"""Do all replicas of a tree hold the same bytes? Pure: what every rank says in, the verdict out.

The digests of the pieces that have one replica number add up, over all ranks, to the same sum for every replica number,
however the leaf is cut. So a rank says one sum for each replica number that it holds (one per device, not one per
leaf), and only when a sum is odd do the ranks say them leaf by leaf, to find where.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from allranks.arrays.base import Piece
from allranks.digest import merge, show

# One rank's word: [path ("" for all leaves together), replicas, replica, digest in hexadecimal].
Word = Sequence[str | int]


@dataclass(frozen=True, slots=True)
class Difference:
    """Replicas of ``path`` ("" for some leaf) differ: ``ranks`` hold those unlike the most others, or lack the leaf."""

    path: str
    ranks: tuple[int, ...]


def words(pieces: Iterable[Piece], *, by_leaf: bool) -> list[list[str | int]]:
    """Return what this rank says about its pieces: one sum for each replica number, or one for each of every leaf."""
    sums: defaultdict[tuple[str, int, int], list[int]] = defaultdict(list)
    for piece in pieces:
        sums[piece.path if by_leaf else "", piece.replicas, piece.replica].append(piece.digest)
    return [[*key, show(merge(digests))] for key, digests in sorted(sums.items())]


def judge(said: Sequence[Sequence[Word]]) -> tuple[int, tuple[Difference, ...]]:
    """Return the digest of the whole tree (of replica 0), and where replicas differ; ``said`` is in rank order."""
    sums: defaultdict[tuple[str, int], defaultdict[int, int]] = defaultdict(lambda: defaultdict(int))
    holders: defaultdict[tuple[str, int, int], set[int]] = defaultdict(set)
    for rank, lines in enumerate(said):
        for path, replicas, replica, text in lines:
            leaf, key = (str(path), int(replicas)), int(replica)
            sums[leaf][key] = merge((sums[leaf][key], int(str(text), 16)))
            holders[(*leaf, key)].add(rank)
    found = []
    for (path, replicas), by_replica in sorted(sums.items()):
        ranks = set().union(*(holders[path, replicas, key] for key in _odd(by_replica)))
        if len(by_replica) < replicas:
            ranks |= set(range(len(said))).difference(*(holders[path, replicas, key] for key in by_replica))
        if ranks:
            found.append(Difference(path, tuple(sorted(ranks))))
    return merge(by_replica[min(by_replica)] for by_replica in sums.values()), tuple(found)


def _odd(sums: Mapping[int, int]) -> list[int]:
    """Return the replica numbers whose sum is not that of more than half of them: all, where no sum has a majority."""
    usual, count = Counter(sums.values()).most_common(1)[0]
    return [key for key, value in sums.items() if value != usual or 2 * count <= len(sums)]
