"""What a rank believes it is about to do with the others under one name, and who disagrees."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from allranks.errors import Mismatch, name_ranks
from allranks.world.ticket import minority, who_says_what

_REMEDY = {
    "sequence": "Did a rank leave out a call, or make one more?",
    "step": "Did a rank skip a step, or resume from another one?",
    "digest": "Did every rank build the same model, from the same settings?",
}


@dataclass(frozen=True, slots=True)
class Leaf:
    """One array of a tree: its path (``opt/mu/0``), shape and dtype."""

    path: str
    shape: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class Shapes:
    """The arrays of a tree, by shape and dtype, without their values. Made by ``shapes``."""

    leaves: tuple[Leaf, ...]

    @property
    def digest(self) -> str:
        """Equal if and only if all paths, shapes and dtypes are equal, in order."""
        lines = "\n".join(f"{leaf.path!r} {leaf}" for leaf in self.leaves)
        return hashlib.blake2b(lines.encode(), digest_size=8).hexdigest()


def shapes(tree: Any) -> Shapes:
    """Describe a tree of dicts, lists, tuples and dataclasses whose leaves have ``shape`` and ``dtype``.

    A leaf without them counts by its type. No value is read and nothing is computed, so any rank may call this alone.
    """
    return Shapes(tuple(_walk(tree, "")))


def _walk(node: Any, path: str) -> Iterable[Leaf]:
    if hasattr(node, "shape") and hasattr(node, "dtype"):
        return [Leaf(path, tuple(int(n) for n in node.shape), str(node.dtype).removeprefix("torch."))]
    children = _children(node)
    if children is None:
        return [Leaf(path, (), type(node).__qualname__)]
    return [leaf for name, child in children for leaf in _walk(child, f"{path}/{name}" if path else name)]


def _children(node: Any) -> list[tuple[str, Any]] | None:
    if isinstance(node, Mapping):
        return [(str(key), value) for key, value in node.items()]
    if isinstance(node, list | tuple):
        return [(str(i), value) for i, value in enumerate(node)]
    if is_dataclass(node) and not isinstance(node, type):
        return [(field.name, getattr(node, field.name)) for field in fields(node)]
    return None


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
    groups: dict[tuple[int, int | None, str], list[int]] = {}
    for rank, entry in enumerate(entries):
        groups.setdefault((entry.sequence, entry.step, entry.digest), []).append(rank)
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


def leaf_mismatch(groups: Sequence[tuple[Sequence[int], Sequence[Leaf]]]) -> Mismatch:
    """Return the error for ranks whose trees differ: the first leaf that does, and how each group of ranks has it."""
    held = [{leaf.path: leaf for leaf in leaves} for _, leaves in groups]
    paths = list(dict.fromkeys(path for leaves in held for path in leaves))
    differing = [path for path in paths if len({leaves.get(path) for leaves in held}) > 1]
    if not differing:
        told = "the leaves come in different orders"
        return _shape_mismatch(groups, told, leaf=None)
    first, more = differing[0], len(differing) - 1
    by_leaf: dict[str, list[int]] = {}
    for (ranks, _), leaves in zip(groups, held, strict=True):
        by_leaf.setdefault(str(leaves.get(first, "missing")), []).extend(ranks)
    told = ", ".join(f"{what} on {name_ranks(ranks)}" for what, ranks in by_leaf.items())
    also = f" ({more} more {'leaf differs' if more == 1 else 'leaves differ'})" if more else ""
    return _shape_mismatch(groups, f"leaf {first!r} is {told}{also}", leaf=first)


def _shape_mismatch(groups: Sequence[tuple[Sequence[int], Sequence[Leaf]]], told: str, *, leaf: str | None) -> Mismatch:
    return Mismatch(f"{told}.", ranks=minority(ranks for ranks, _ in groups), leaf=leaf, remedy=_REMEDY["digest"])
