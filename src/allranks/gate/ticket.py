"""What a rank believes it is about to do with the others under one name, and who disagrees."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from allranks.arrays.base import Leaf
from allranks.digest import digest, show
from allranks.errors import Mismatch, name_ranks
from allranks.world.claims import by_claim, minority, who_says_what

_REMEDY = {
    "sequence": "Did a rank leave out a call, or make one more?",
    "step": "Did a rank skip a step, or resume from another one?",
    "digest": "Did every rank build the same model, from the same settings?",
}


def in_words(leaves: Iterable[Leaf]) -> dict[str, str]:
    """Return path -> ``float32[512, 64] in 4 x 1 pieces``: what must be alike on all ranks, and no values."""
    return {leaf.path: array_in_words(leaf.dtype, leaf.shape, leaf.pieces) for leaf in leaves}


def array_in_words(dtype: str, shape: Iterable[int], pieces: Sequence[int], *, kind: str = "") -> str:
    """Return ``float32[512, 64] in 4 x 1 pieces``."""
    cut = f" in {' x '.join(map(str, pieces))} pieces" if math.prod(pieces) > 1 else ""
    return f"{dtype}[{', '.join(map(str, shape))}]{f' {kind}' if kind else ''}{cut}"


def digest_of(words: Mapping[str, str]) -> str:
    """Return a digest that is equal if and only if all paths and what is said of them are equal, in order."""
    return show(digest(*(part for item in words.items() for part in item)))


@dataclass(frozen=True, slots=True)
class Entry:
    """A rank at the door of a named collective: its ``sequence``-th under this name, at a step, with a digest.

    ``has_leaves`` says whether the rank can tell what the digest was made of.
    """

    sequence: int
    step: int | None
    digest: str
    has_leaves: bool
    where: str

    def differs_from(self, other: Entry) -> set[str]:
        """Return which of ``sequence``, ``step`` and ``digest`` differ."""
        return {name for name in _REMEDY if getattr(self, name) != getattr(other, name)}

    def tell(self, names: Iterable[str]) -> str:
        """Return these fields in words."""
        words = {
            "sequence": f"call {self.sequence}",
            "step": "no step" if self.step is None else f"step {self.step}",
            "digest": f"digest {self.digest}" if self.digest else "no digest",
        }
        return ", ".join(words[name] for name in words if name in names) + (f" ({self.where})" if self.where else "")


def compare(entries: Sequence[Entry]) -> list[list[int]] | None:
    """Compare what ranks 0 ... N-1 entered: None if it is the same; raise Mismatch saying who is where if it is not.

    Where the leaves can say more than the digests that differ, return instead the groups of ranks that agree.
    """
    found = set().union(*(entry.differs_from(entries[0]) for entry in set(entries)))
    if not found:
        return None
    groups = by_claim((rank, (entry.sequence, entry.step, entry.digest)) for rank, entry in enumerate(entries))
    if found == {"digest"} and all(entry.has_leaves for entry in entries):
        return list(groups.values())
    told = who_says_what((entries[ranks[0]].tell(found), ranks) for ranks in groups.values())
    steps = {entry.step for entry in entries}
    raise Mismatch(
        f"the ranks entered with different tickets: {told}.",
        ranks=minority(groups.values()),
        step=steps.pop() if len(steps) == 1 else None,
        remedy=" ".join(_REMEDY[name] for name in _REMEDY if name in found),
    )


def leaf_mismatch(groups: Sequence[tuple[Sequence[int], Mapping[str, str]]]) -> Mismatch:
    """Return the error for ranks whose trees differ: the first leaf that does, and how each group of ranks has it."""
    paths = dict.fromkeys(path for _, words in groups for path in words)
    differing = [path for path in paths if len({words.get(path) for _, words in groups}) > 1]
    told = _tell_leaf(groups, differing) if differing else "the leaves come in different orders"
    return Mismatch(
        f"{told}.",
        ranks=minority(ranks for ranks, _ in groups),
        leaf=differing[0] if differing else None,
        remedy=_REMEDY["digest"],
    )


def _tell_leaf(groups: Sequence[tuple[Sequence[int], Mapping[str, str]]], differing: Sequence[str]) -> str:
    first, more = differing[0], len(differing) - 1
    held = by_claim((rank, words.get(first, "missing")) for ranks, words in groups for rank in ranks)
    told = ", ".join(f"{what} on {name_ranks(ranks)}" for what, ranks in held.items())
    also = f" ({more} more {'leaf differs' if more == 1 else 'leaves differ'})" if more else ""
    return f"leaf {first!r} is {told}{also}"
