"""Describe with which values a rank enters a named collective, and find the ranks and the leaf that differ."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from allranks.arrays.base import Leaf
from allranks.digest import digest, show
from allranks.errors import Mismatch, name_ranks
from allranks.world.claims import by_claim, describe_groups, minority_ranks

_REMEDY = {
    "sequence": "Did a rank leave out a call, or make one more?",
    "step": "Did a rank skip a step, or resume from another one?",
    "digest": "Did every rank build the same model, from the same settings?",
}


def describe_leaves(leaves: Iterable[Leaf]) -> dict[str, str]:
    """Return, by leaf path, what must be equal on all ranks, e.g. ``float32[512, 64] in 4 x 1 pieces``; no values."""
    return {leaf.path: describe_array(leaf.dtype, leaf.shape, leaf.pieces) for leaf in leaves}


def describe_array(dtype: str, shape: Iterable[int], piece_counts: Sequence[int], *, kind: str = "") -> str:
    """Return a description of an array's dtype, shape and pieces, e.g. ``float32[512, 64] in 4 x 1 pieces``."""
    cut = f" in {' x '.join(map(str, piece_counts))} pieces" if math.prod(piece_counts) > 1 else ""
    return f"{dtype}[{', '.join(map(str, shape))}]{f' {kind}' if kind else ''}{cut}"


def digest_of_descriptions(descriptions: Mapping[str, str]) -> str:
    """Return a digest of paths and descriptions. Two digests are equal if and only if these are equal, in order."""
    return show(digest(*(part for item in descriptions.items() for part in item)))


@dataclass(frozen=True, slots=True)
class CollectiveEntry:
    """The values with which a rank enters a named collective, for comparison with the other ranks.

    - ``sequence``: how often the rank has entered this name, including this time.
    - ``step`` and ``digest``: as given by the caller.
    - ``has_leaves``: the digest is one of leaves, which can be compared one by one.
    - ``where``: the line of the call.
    """

    sequence: int
    step: int | None
    digest: str
    has_leaves: bool
    where: str

    def differs_from(self, other: CollectiveEntry) -> set[str]:
        """Return which of the fields ``sequence``, ``step`` and ``digest`` differ."""
        return {name for name in _REMEDY if getattr(self, name) != getattr(other, name)}

    def describe(self, names: Iterable[str]) -> str:
        """Return the fields with these names as text."""
        descriptions = {
            "sequence": f"call {self.sequence}",
            "step": "no step" if self.step is None else f"step {self.step}",
            "digest": f"digest {self.digest}" if self.digest else "no digest",
        }
        return ", ".join(descriptions[name] for name in descriptions if name in names) + (
            f" ({self.where})" if self.where else ""
        )


def compare_entries(entries: Sequence[CollectiveEntry]) -> list[list[int]] | None:
    """Compare the entries of ranks 0 ... N-1: return None if they are equal, else raise Mismatch that names the ranks.

    If only digests of leaves differ, return the groups of equal ranks instead. The leaves of these groups must then be
    compared.
    """
    found = set().union(*(entry.differs_from(entries[0]) for entry in set(entries)))
    if not found:
        return None
    groups = by_claim((rank, (entry.sequence, entry.step, entry.digest)) for rank, entry in enumerate(entries))
    if found == {"digest"} and all(entry.has_leaves for entry in entries):
        return list(groups.values())
    entered = describe_groups((entries[ranks[0]].describe(found), ranks) for ranks in groups.values())
    steps = {entry.step for entry in entries}
    raise Mismatch(
        f"the ranks entered with different tickets: {entered}.",
        ranks=minority_ranks(groups.values()),
        step=steps.pop() if len(steps) == 1 else None,
        remedy=" ".join(_REMEDY[name] for name in _REMEDY if name in found),
    )


def leaf_mismatch(groups: Sequence[tuple[Sequence[int], Mapping[str, str]]]) -> Mismatch:
    """Return the error for ranks whose trees differ. It shows the first leaf that differs, in each group of ranks."""
    paths = dict.fromkeys(path for _, descriptions in groups for path in descriptions)
    differing = [path for path in paths if len({descriptions.get(path) for _, descriptions in groups}) > 1]
    text = _describe_leaf(groups, differing) if differing else "the leaves come in different orders"
    return Mismatch(
        f"{text}.",
        ranks=minority_ranks(ranks for ranks, _ in groups),
        leaf=differing[0] if differing else None,
        remedy=_REMEDY["digest"],
    )


def _describe_leaf(groups: Sequence[tuple[Sequence[int], Mapping[str, str]]], differing: Sequence[str]) -> str:
    first, more = differing[0], len(differing) - 1
    held = by_claim((rank, descriptions.get(first, "missing")) for ranks, descriptions in groups for rank in ranks)
    listed = ", ".join(f"{what} on {name_ranks(ranks)}" for what, ranks in held.items())
    also = f" ({more} more {'leaf differs' if more == 1 else 'leaves differ'})" if more else ""
    return f"leaf {first!r} is {listed}{also}"
