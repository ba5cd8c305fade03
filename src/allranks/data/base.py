"""The words between the sources, which know formats, and the loader, which knows none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from allranks.data.index import Index

Progress = Callable[[int, int], None]  # bytes done, bytes in all


def silent(_done: int, _total: int) -> None:
    """Progress that nobody sees."""


@dataclass(frozen=True, slots=True)
class Bad:
    """Stands where a sample cannot be used: a row that the batch masks. ``why`` is for a person.

    ``filtered`` ones are sound and were left out on purpose; they are not counted as bad.
    """

    why: str
    filtered: bool = False


class Doing(Protocol):
    """What is done to samples, each in its place."""

    def apply(self, samples: Sequence[Any], ids: NDArray[np.int64], epoch: int, /) -> list[Any]:
        """Return the samples with these ids after all that is done to them in an epoch; a Bad stays as it is."""


class Rows(Protocol):
    """The samples of one block in memory; decoded when they are taken.

    Where a call for the few rows of each block would take long, it has an attribute ``together``, which gathers rows of
    all blocks that have the same one, and a method ``spots()``: what ``together`` needs to know of each of its rows.
    """

    def take(self, rows: NDArray[np.int64]) -> list[Any]:
        """Return the samples of these rows of the block (0: its first, ``skip`` or not), in this order.

        Each is what the source is of (a dict of columns, a str, ...), or Bad where it cannot be decoded.
        """


class Together(Protocol):
    """Takes rows of several blocks at once."""

    def gather(self, blocks: Mapping[int, Rows], keys: NDArray[np.int64], spots: NDArray[np.int64], /) -> list[Any]:
        """Return the samples at ``spots[i]`` of ``blocks[keys[i]]``, in this order."""


class Reader(Protocol):
    """An opened source. Safe for threads.

    A reader of blocks that are read in a moment may have a method ``hint(block)``, which says so by True and has the
    system fetch the block meanwhile: then no thread is asked to read it, which would cost more than reading.
    """

    def read(self, block: int) -> Rows:
        """Read one block of the index. Raises DataError: damaged, changed since it was indexed, gone."""

    @property
    def bytes_read(self) -> int:
        """What was read from the storage until now, in bytes."""


class Source(Protocol):
    """Where samples come from. Holds no open file; the same on every rank."""

    @property
    def where(self) -> str:
        """The source as a person would write it."""

    def index(self, *, progress: Progress = silent) -> Index:
        """Return its index, from the cache if nothing has changed. One rank calls this."""

    def open(self, index: Index) -> Reader:
        """Open it for reading blocks of this index."""
