"""Read a version of a Lance data set, with the package ``pylance``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import lance as library

from allranks.data.base import BlockRows, Progress, ignore_progress
from allranks.data.index import DatasetIndex, SourceFile
from allranks.data.sources.columns import check_columns, table_rows
from allranks.data.sources.file import ByteCounter, naming_file
from allranks.data.sources.sequence import index_of_equal_blocks
from allranks.errors import DataChanged

_BLOCK_BYTES = 1 << 20
_MOST_ROWS = 1 << 12


def lance(place: Any, *, version: int | None = None, columns: Sequence[str] | None = None) -> LanceSource:
    """Return a Lance data set as a source: the path of a folder, or an address, which the library opens itself.

    A sample is a row, a dict as of ``parquet``, only with ``columns`` if given. Deleted rows are left out. ``version``:
    by default the newest at the start of the job; a saved state can continue with the same version only.
    """
    return LanceSource(str(place), version, None if columns is None else tuple(columns))


@dataclass(frozen=True, slots=True)
class LanceSource:
    """The source that ``lance`` returns."""

    place: str
    version: int | None
    columns: tuple[str, ...] | None

    @property
    def where(self) -> str:
        return self.place

    def index(self, *, progress: Progress = ignore_progress) -> DatasetIndex:
        """Return an index whose blocks are runs of rows of about 1 MiB."""
        dataset = self._open_version(self.version)
        with naming_file(self.place, "indexed"):
            rows = int(dataset.count_rows())
            files = [file for fragment in dataset.get_fragments() for file in fragment.data_files()]
            nbytes = sum(file.file_size_bytes or 0 for file in files)
        each = _BLOCK_BYTES * rows // max(nbytes, 1)
        progress(nbytes, nbytes)
        about = SourceFile("dataset", nbytes, f"version {dataset.version}")
        return index_of_equal_blocks("lance", about, rows, min(max(each, 1), _MOST_ROWS))

    def open(self, index: DatasetIndex) -> LanceReader:
        """Open the version of the index. Raises DataError if it no longer exists, DataChanged if it has other rows."""
        dataset = self._open_version(int(index.files[0].stamp.removeprefix("version ")))
        expected, found = int(index.end[-1]) if len(index) else 0, int(dataset.count_rows())
        if found < expected:
            raise DataChanged(
                f"{self.place} has {found:,} rows in version {dataset.version}: expected {expected:,}.",
                path=self.place,
                remedy="Was the data set written anew? Start the job again.",
            )
        return LanceReader(dataset, index, self)

    def _open_version(self, version: int | None) -> Any:
        with naming_file(self.place, "opened"):
            dataset = library.dataset(self.place, version=version)
        check_columns(self.columns, dataset.schema.names, self.place)
        return dataset


class LanceReader:
    """Reads runs of rows. ``bytes_read`` counts the bytes of the rows in memory."""

    def __init__(self, dataset: Any, index: DatasetIndex, source: LanceSource) -> None:
        self._dataset, self._index, self._source = dataset, index, source
        self._counter = ByteCounter()

    @property
    def bytes_read(self) -> int:
        return self._counter.total

    def hint(self, _block: int) -> bool:
        return False

    def read(self, block: int) -> BlockRows:
        begin, end = int(self._index.begin[block]), int(self._index.end[block])
        where = f"{self._source.place}: rows {begin:,} to {end:,}"
        with naming_file(where, "read"):
            columns = self._source.columns
            table = self._dataset.take(range(begin, end), columns=None if columns is None else list(columns))
            if table.num_rows != end - begin:
                raise DataChanged(f"{where}: found {table.num_rows:,} rows.", path=self._source.place)
            self._counter.add_bytes(table.nbytes)
            return table_rows(table, where)
