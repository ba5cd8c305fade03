"""Read any object with a length and items: a list, a NumPy array, a map-style torch Dataset."""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from allranks.data.arguments import check_choice
from allranks.data.base import BadSample, BlockRows, Progress, RandomAccess, ignore_progress
from allranks.data.copies import take_sample
from allranks.data.index import DatasetIndex, SourceFile
from allranks.data.sample_comparison import hash_samples
from allranks.errors import DataChanged, DataError
from allranks.failure import text_of

_MOST_BLOCKS = 1 << 20


class Indexable(Sized, Protocol):
    """An object with a length, and with rows by number."""

    def __getitem__(self, row: int, /) -> Any: ...


def sequence(
    rows: Indexable, *, on_corrupt: Literal["raise", "mask"] = "raise", compare: bool = True
) -> SequenceSource:
    """Return an object with ``__len__`` and ``__getitem__`` as a source; sample i is ``rows[i]``.

    Rows are read one by one, from several threads at once. Up to 2**20 rows are shuffled one by one, more in runs. An
    error of a row is raised as DataError, or, with ``on_corrupt="mask"``, makes the row a BadSample. A few rows are
    compared over the ranks, unless ``compare`` is false. After a restart, another object of the same type and length
    counts as the same.
    """
    check_choice("on_corrupt", on_corrupt, ("raise", "mask"))
    if not (hasattr(rows, "__len__") and hasattr(rows, "__getitem__")):
        raise DataError(
            f"expected an object with a length and rows (__len__, __getitem__), found {type(rows).__name__}.",
            remedy="What can only be iterated can be neither split exactly nor resumed: give its files to a source, or "
            "read it as well as it can be with allranks.shard(samples, world).",
        )
    return SequenceSource(rows, on_corrupt == "mask", compare)


def index_of_equal_blocks(kind: str, file: SourceFile, rows: int, rows_per_block: int) -> DatasetIndex:
    """Return an index whose blocks are runs of ``rows_per_block`` rows; the last run may be shorter."""
    begin = np.arange(0, rows, rows_per_block, dtype=np.int64)
    end = np.minimum(begin + rows_per_block, rows)
    many = len(begin)
    none = np.zeros(many, np.int32)
    return DatasetIndex(kind, (file,), none, begin, end, none, end - begin, np.zeros(many, np.uint64))


@dataclass(frozen=True, slots=True)
class SequenceSource:
    """The source that ``sequence`` returns."""

    rows: Indexable
    mask: bool
    compare: bool = True
    copies: bool = False

    @property
    def where(self) -> str:
        return f"{_type_of(self.rows)} of {len(self.rows):,} rows"

    @property
    def _file(self) -> SourceFile:
        nbytes = getattr(self.rows, "nbytes", 0)
        return SourceFile("rows", nbytes if isinstance(nbytes, int) else 0, f"{_type_of(self.rows)}:{len(self.rows)}")

    def sample_digest(self) -> str:
        """Return a digest of a few rows, which ranks compare; "" if they must not be compared."""
        return hash_samples(len(self.rows), self.rows.__getitem__) if self.compare else ""

    def with_copies(self) -> SequenceSource:
        return replace(self, copies=True)

    def random_access(self) -> RandomAccess:
        return RandomAccess(self)

    def index(self, *, progress: Progress = ignore_progress) -> DatasetIndex:
        file, rows = self._file, len(self.rows)
        progress(file.nbytes, file.nbytes)
        return index_of_equal_blocks("sequence", file, rows, -(-max(rows, 1) // _MOST_BLOCKS))

    def open(self, index: DatasetIndex) -> SequenceReader:
        """Open the object. Raises DataChanged if its type or length differs from the index."""
        here, there = self._file.stamp, index.files[0].stamp
        if here != there:
            raise DataChanged(
                f"the rows are {here} here, {there} in the index (type:length).",
                remedy="Every rank, and every restart, must pass the same object.",
            )
        return SequenceReader(self.rows, index, self.mask, self.copies)


@dataclass(frozen=True, slots=True)
class SequenceReader:
    """Reads each row only when it is taken, and counts no bytes."""

    rows: Indexable
    index: DatasetIndex
    mask: bool
    copies: bool

    @property
    def bytes_read(self) -> int:
        return 0

    def hint(self, _block: int) -> bool:
        return True

    def read(self, block: int) -> BlockRows:
        return SequenceRows(self.rows, int(self.index.begin[block]), self.mask, self.copies)


@dataclass(frozen=True, slots=True)
class SequenceRows:
    """A run of rows, beginning at row ``begin`` of the object."""

    rows: Indexable
    begin: int
    mask: bool
    copies: bool = False

    def take(self, rows: NDArray[np.int64]) -> list[Any]:
        numbers = (self.begin + row for row in rows.tolist())
        if not self.copies:
            return [self._read_row(row) for row in numbers]
        return [take_sample([self._read_row(row)]) for row in numbers]

    def _read_row(self, row: int) -> Any:
        try:
            return self.rows[row]
        except Exception as error:  # every kind: it is the user's code
            why = f"row {row:,} of {_type_of(self.rows)}: {text_of(error)}"
            if self.mask:
                return BadSample(why)
            raise DataError(
                f"{why}.", sample=row, remedy='Repair the row, or mask such rows with on_corrupt="mask".'
            ) from error


def _type_of(rows: object) -> str:
    return f"{type(rows).__module__}.{type(rows).__qualname__}"
