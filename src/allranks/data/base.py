"""The types that connect sources, which know formats, with the loader, which knows none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from allranks.data.index import Index

Progress = Callable[[int, int], None]  # bytes done, bytes in all


def silent(_done: int, _total: int) -> None:
    """Progress that nobody sees."""


@dataclass(frozen=True, slots=True)
class BadSample:
    """Takes the place of a sample that cannot be used: the batch masks its row. ``why`` is for a person.

    A sample that a filter left out on purpose is ``filtered``; it is not counted as bad.
    """

    why: str
    filtered: bool = False


class Transform(Protocol):
    """Transforms samples, each in its place."""

    def apply(self, samples: Sequence[Any], ids: NDArray[np.int64], epoch: int, /) -> list[Any]:
        """Return the samples with these ids after all that is done to them in an epoch; a Bad stays as it is."""


class Rows(Protocol):
    """The samples of one block in memory; decoded when they are taken."""

    def take(self, rows: NDArray[np.int64]) -> list[Any]:
        """Return the samples of these rows of the block (0: its first, ``skip`` or not), in this order.

        Each is what the source is of (a dict of columns, a str, ...), or Bad where it cannot be decoded.
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
        """What decodes them."""

    def positions(self) -> NDArray[np.int64]:
        """Return where each row of the block is, as ``gatherer`` reads it."""


class Reader(Protocol):
    """An opened source. Safe for threads."""

    def read(self, block: int) -> Rows:
        """Read one block of the index. Raises DataError: damaged, changed since it was indexed, gone."""

    def hint(self, block: int) -> bool:
        """Return True, and have the system fetch the block, if reading it is so fast that no thread should do it."""

    @property
    def bytes_read(self) -> int:
        """Return how many bytes were read from the storage until now."""


class Source(Protocol):
    """Where samples come from. Holds no open file; the same on every rank."""

    @property
    def where(self) -> str:
        """The source as a person would write it."""

    def index(self, *, progress: Progress = silent) -> Index:
        """Return its index, from the cache if nothing has changed. One rank calls this."""

    def open(self, index: Index) -> Reader:
        """Open it for reading blocks of this index."""


@dataclass(frozen=True, slots=True)
class Guarantees:
    """``complete``: every sample is read once, by one rank. ``equal_steps``: every rank takes as many samples.

    ``known_length``: how many is known before the first. ``elastic``: the order is that of any number of ranks, and a
    state may go on with another. ``exact_resume``: a state goes on behind the last sample that was taken.
    ``reads_its_part``: a rank reads 1/N of the data. ``but`` says, for a person, why something is not kept.
    """

    complete: bool
    equal_steps: bool
    known_length: bool
    elastic: bool
    exact_resume: bool
    reads_its_part: bool
    but: str = ""
