"""Define the types between sources, which read formats, and the loader, which is the same for all formats."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from allranks.data.index import Index

Progress = Callable[[int, int], None]  # bytes done, bytes in all


def silent(_done: int, _total: int) -> None:
    """Report progress to nobody."""


@dataclass(frozen=True, slots=True)
class BadSample:
    """A sample that cannot be used: the batch masks its row. ``why`` is a text for people.

    A sample that a filter excluded is ``filtered``; it is not counted as bad.
    """

    why: str
    filtered: bool = False


class Transform(Protocol):
    """Transforms samples, each in its position."""

    def apply(self, samples: Sequence[Any], ids: NDArray[np.int64], epoch: int, /) -> list[Any]:
        """Return the samples with these ids after all transforms of an epoch; a BadSample stays as it is."""


class Rows(Protocol):
    """The samples of one block in memory; decoded when ``take`` is called."""

    def take(self, rows: NDArray[np.int64]) -> list[Any]:
        """Return the samples of these rows of the block (0: its first, ``skip`` or not), in this order.

        Each has the type of the source (a dict of columns, a str, ...), or is a BadSample where it cannot be decoded.
        """


class Gatherer(Protocol):
    """Decodes rows of several blocks in one call."""

    def gather(self, blocks: Mapping[int, Rows], keys: NDArray[np.int64], positions: NDArray[np.int64], /) -> list[Any]:
        """Return the samples at ``positions[i]`` of ``blocks[keys[i]]``, in this order."""


@runtime_checkable
class GatheredRows(Rows, Protocol):
    """Rows that are decoded together with those of other blocks: all blocks with the same ``gatherer`` in one call."""

    @property
    def gatherer(self) -> Gatherer:
        """The decoder of these rows."""

    def positions(self) -> NDArray[np.int64]:
        """Return the position of each row of the block, as ``gatherer`` reads it."""


class Reader(Protocol):
    """An opened source. Safe for threads."""

    def read(self, block: int) -> Rows:
        """Read one block of the index. Raises DataError where it is damaged, has changed, or is deleted."""

    def hint(self, block: int) -> bool:
        """Prefetch the block with the system, if reading it needs no thread; return whether it does not."""

    @property
    def bytes_read(self) -> int:
        """Return how many bytes were read from the storage until now."""


class Source(Protocol):
    """A source of samples. Holds no open file; the same on every rank."""

    @property
    def where(self) -> str:
        """The source as a user would write it."""

    def index(self, *, progress: Progress = silent) -> Index:
        """Return the source's index, from the cache if nothing has changed. One rank calls this."""

    def open(self, index: Index) -> Reader:
        """Open the source for reading blocks of this index."""


@dataclass(frozen=True, slots=True)
class Guarantees:
    """The guarantees of a loader.

    ``complete``: every sample is read once, by one rank. ``equal_steps``: every rank takes the same number of samples.
    ``known_length``: that number is known before the first. ``elastic``: the order does not depend on the number of
    ranks, and a state can be restored with another number. ``exact_resume``: a restored state continues after the last
    sample that was taken. ``reads_its_part``: a rank reads 1/N of the data. ``but`` is the reason, for people, why one
    of them does not hold.
    """

    complete: bool
    equal_steps: bool
    known_length: bool
    elastic: bool
    exact_resume: bool
    reads_its_part: bool
    but: str = ""
