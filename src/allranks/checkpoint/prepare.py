"""What follows from a state's declarations alone: planned once, and used at every save of a training."""

from __future__ import annotations

from dataclasses import dataclass, field

from allranks.arrays.base import Declared, OpenTree
from allranks.checkpoint.agree import declared_in_words
from allranks.checkpoint.chunks import grain
from allranks.checkpoint.image import Image, image
from allranks.checkpoint.manifest_encode import leaves_text
from allranks.checkpoint.save_plan import FilePlan, Layout, file_plan, layout, total_bytes
from allranks.gate.ticket import digest_of


@dataclass(slots=True)
class ReadBack:
    """Whether the manifest's text about the leaves of a plan was read back, and found sound: once is enough."""

    done: bool = False


@dataclass(frozen=True, slots=True)
class Prepared:
    """``declared`` are the arrays that are written, ``arrays`` their numbers in the tree, ``ties`` the paths of the
    others: each is one memory with the one whose path it has. ``digest`` is of the declarations; ``nbytes`` the bytes
    of all arrays; ``plan`` and ``image`` are of this rank's file (no image where it writes none); ``layout``, on rank 0
    only, is of all files, ``leaves`` the manifest's text about it."""

    declared: tuple[Declared, ...]
    arrays: tuple[int, ...]
    ties: dict[str, str]
    digest: str
    nbytes: int
    plan: FilePlan
    image: Image | None
    layout: Layout | None
    leaves: str
    read_back: ReadBack = field(default_factory=ReadBack)


class Planner:
    """Plans for one rank of ``size``; remembers the last plan."""

    def __init__(self, rank: int, size: int) -> None:
        self._rank, self._size = rank, size
        self._last: tuple[object, Prepared] | None = None

    def prepare(self, tree: OpenTree) -> Prepared:
        """Return what is planned for a tree."""
        key = tree.key, tuple(tree.ties.items())
        if self._last is None or self._last[0] != key:
            self._last = key, self._plan(tree.declared, tree.ties)
        return self._last[1]

    def _plan(self, every: tuple[Declared, ...], tied: dict[int, int]) -> Prepared:
        arrays = tuple(number for number in range(len(every)) if number not in tied)
        ties = {every[number].path: every[other].path for number, other in tied.items()}
        declared = tuple(every[number] for number in arrays)
        plan = file_plan(declared, rank=self._rank, size=self._size)
        nbytes = total_bytes(declared)
        everything = layout(declared, size=self._size) if self._rank == 0 else None
        return Prepared(
            declared,
            arrays,
            ties,
            digest_of(declared_in_words(declared, ties)),
            nbytes,
            plan,
            image(declared, plan, grain=grain(nbytes)) if plan.bytes else None,
            everything,
            leaves_text(everything.leaves) if everything else "",
        )
