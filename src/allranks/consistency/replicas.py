"""What several ranks hold together must be equal: each says a digest, rank 0 compares.

Ranks that hold the same cells of the same leaves are a group; a rank says one digest for each of its groups, and leaf
by leaf only where these differ.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from allranks.arrays.base import OpenTree
from allranks.digest import digest, merge, show
from allranks.gate.collective import name_the_leaf
from allranks.world.base import World


class Replicas:
    """What this rank holds together with others: a digest of the bytes of each leaf and cell."""

    def __init__(self, tree: OpenTree, *, rank: int) -> None:
        self._groups: dict[str, dict[str, int]] = {}
        labels: dict[tuple[int, ...], str] = {}
        for number, one in enumerate(tree.declared):
            for cell, holders in enumerate(one.split.holders):
                if len(holders) > 1 and rank in holders:
                    label = labels.get(holders) or labels.setdefault(holders, _label(holders))
                    name = one.path if len(one.split.holders) == 1 else f"{one.path} (cell {cell})"
                    self._groups.setdefault(label, {})[name] = digest(name, tree.held(number, cell).data.data)

    def sums(self) -> dict[str, str]:
        """Return one digest for each group that this rank is in, by the group's label."""
        return {label: show(merge(leaves.values())) for label, leaves in self._groups.items()}

    def by_leaf(self, label: str) -> dict[str, str]:
        """Return what one group's digest is made of, leaf by leaf, in words."""
        return {name: f"bytes {show(value)[:8]}..." for name, value in self._groups.get(label, {}).items()}


def _label(holders: tuple[int, ...]) -> str:
    return show(digest(",".join(map(str, holders))))[:16]


def differing(sums: Sequence[Mapping[str, str]]) -> tuple[str, list[list[int]]] | None:
    """Return a group whose ranks say different digests, and who agrees with whom; None if there is none.

    ``sums`` are what the ranks say, in rank order.
    """
    said: defaultdict[str, defaultdict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for rank, groups in enumerate(sums):
        for label, value in groups.items():
            said[label][value].append(rank)
    for label, by_value in said.items():
        if len(by_value) > 1:
            return label, list(by_value.values())
    return None


def verify(tree: OpenTree, world: World, *, name: str = "replicas") -> None:
    """Raise Mismatch on every rank, naming ranks and leaf, unless all replicas are equal. **Every rank must call.**"""
    if world.size == 1:
        return
    replicas = Replicas(tree, rank=world.rank)
    odd = world.exchange("verify", name, replicas.sums(), decide=differing)
    if odd is not None:
        label, parties = odd
        name_the_leaf(world, name, parties, words=replicas.by_leaf(label))
