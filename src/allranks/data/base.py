"""Define the types between sources, which read formats, and the loader, which is the same for all formats."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeGuard, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from allranks.data.index import DatasetIndex
from allranks.data.sample_columns import SampleColumns

Progress = Callable[[int, int], None]  # bytes done, bytes in all


def ignore_progress(_done: int, _total: int) -> None:
    """Do nothing. This is the progress callback of callers that show no progress."""


@dataclass(frozen=True, slots=True)
class BadSample:
    """A sample that cannot be used, so that the batch masks its row. ``why`` is a text for people.

    ``filtered``: a filter has excluded the sample; then it does not count as bad.
    """

    why: str
    filtered: bool = False


def find_bad_samples(samples: Sequence[Any]) -> Mapping[int, BadSample]:
    """Return the samples that cannot be used, by position. No dicts are made of columns."""
    if isinstance(samples, SampleColumns) and samples.columns is not None:
        return samples.bad
    if BadSample not in set(map(type, samples)):
        return {}
    return {at: sample for at, sample in enumerate(samples) if isinstance(sample, BadSample)}


class SampleTransform(Protocol):
    """An object that transforms samples. Each result has the same position in the list as its sample."""

    def apply(self, samples: Sequence[Any], ids: NDArray[np.int64], epoch: int, /) -> Sequence[Any]:
        """Return the samples with these ids after all transforms of an epoch; a BadSample is returned unchanged."""


class BlockRows(Protocol):
    """The undecoded samples of one block in memory. ``take`` decodes some of them."""

    def take(self, rows: NDArray[np.int64]) -> list[Any]:
        """Return the samples of these rows of the block, in this order.

        Row 0 is the first of the block, whether or not the index skips it. Each sample has the type of the source (a
        dict of columns, a str, ...). A sample that cannot be decoded is a BadSample.
        """


class RowGatherer(Protocol):
    """Decodes rows of several blocks in one call."""

    def gather_samples(
        self, blocks: Mapping[int, BlockRows], keys: NDArray[np.int64], row_positions: NDArray[np.int64], /
    ) -> list[Any]:
        """Return the samples at ``row_positions[i]`` of ``blocks[keys[i]]``, in the order of i."""


class ColumnGatherer(RowGatherer, Protocol):
    """Decodes rows of several blocks as columns, without an object for each sample."""

    def gather_columns(
        self, blocks: Mapping[int, BlockRows], keys: NDArray[np.int64], positions: NDArray[np.int64], /
    ) -> SampleColumns | None:
        """Return what ``gather_samples`` returns, as columns; None if only samples can hold these rows."""


class GatheredRows(BlockRows, Protocol):
    """BlockRows that can be decoded together with rows of other blocks.

    ``gatherer`` decodes all of them in one call.
    """

    @property
    def gatherer(self) -> RowGatherer:
        """The decoder of these rows."""

    def positions_of(self, rows: NDArray[np.int64], /) -> NDArray[np.int64]:
        """Return, for each of these rows of the block, the number by which ``gatherer`` finds it."""


def is_gathered(rows: BlockRows) -> TypeGuard[GatheredRows]:
    """Return whether rows can be decoded together with rows of other blocks.

    It takes a hundredth of the time of ``isinstance`` with a protocol.
    """
    return hasattr(rows, "gatherer")


def gatherer_of(rows: BlockRows) -> RowGatherer | None:
    """Return the decoder of rows that can be decoded together with rows of other blocks; None for other rows."""
    return rows.gatherer if is_gathered(rows) else None


class Reader(Protocol):
    """An opened source. Several threads may use it at once."""

    def read(self, block: int) -> BlockRows:
        """Read one block of the index. Raises DataError if the block is damaged, has changed, or is deleted."""

    def hint(self, block: int) -> bool:
        """Ask the system to prefetch the block, if reading it needs no thread; return whether it needs none."""

    @property
    def bytes_read(self) -> int:
        """How many bytes have been read from the storage so far."""


class Source(Protocol):
    """A source of samples. It holds no open file, and must be the same on every rank."""

    @property
    def where(self) -> str:
        """The source, written as a user would write it."""

    def index(self, *, progress: Progress = ignore_progress) -> DatasetIndex:
        """Return the source's index, from the cache if nothing has changed. Only one rank calls this."""

    def open(self, index: DatasetIndex) -> Reader:
        """Open the source, and return a reader for the blocks of this index."""


@dataclass(frozen=True, slots=True)
class RandomAccess:
    """A source whose samples may be read one by one, in any order.

    ``overlap``: of so many samples in a row, each begins in the one before. So that many are one reading of the data.
    """

    source: Source
    overlap: int = 1


@runtime_checkable
class RandomlyReadable(Protocol):
    """A source that can be opened for random access."""

    def random_access(self) -> RandomAccess:
        """Return the source for random access. Raises DataError if its options do not allow that."""


@runtime_checkable
class HoldsSamples(Protocol):
    """A source whose samples are objects of the program, which are used again in the next epoch."""

    def with_copies(self) -> Source:
        """Return the source; it copies each sample, so a function may change it."""


@dataclass(frozen=True, slots=True)
class Guarantees:
    """The guarantees of a loader.

    - ``complete``: every sample is read once, by one rank.
    - ``equal_steps``: every rank takes the same number of samples.
    - ``known_length``: that number is known before the first sample.
    - ``elastic``: the order does not depend on the number of ranks, and a state can be restored with another number.
    - ``exact_resume``: a restored state continues after the last sample that was taken.
    - ``reads_its_part``: a rank reads 1/N of the data.
    - ``but``: the reason, for people, why one of these does not hold.
    """

    complete: bool
    equal_steps: bool
    known_length: bool
    elastic: bool
    exact_resume: bool
    reads_its_part: bool
    but: str = ""
