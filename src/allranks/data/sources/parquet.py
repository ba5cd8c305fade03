"""Read Parquet files with pyarrow."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from numpy.typing import NDArray

from allranks.data.base import BadSample, BlockRows
from allranks.data.sources.columns import TableRows
from allranks.data.sources.file import FileBytes, data_changed_error
from allranks.data.sources.files import FileScan, FileSource, IndexBlock, OpenFile
from allranks.data.sources.patterns import Pattern, parse_pattern
from allranks.data.sources.types import ColumnTypes
from allranks.digest import digest, show
from allranks.errors import DataError
from allranks.storage.seekable_file import SeekableFile

OnCorrupt = Literal["raise", "mask"]
_TAIL = 1 << 13  # what is read of a file at first; most footers are in it
_GAP = 1 << 16  # bytes that are read though not wanted, rather than in a read of their own
_MAGIC = b"PAR1"


def parquet(
    pattern: Pattern,
    *,
    columns: Sequence[str] | None = None,
    on_corrupt: OnCorrupt = "raise",
    cache: str | None = None,
) -> FileSource:
    """Return parquet files as a source. A sample is a row, a dict of its columns; only ``columns`` are read, if given.

    A block is a row group: it is read, held in memory and shuffled as one. So many small row groups (a few MB) are
    better than few large ones. Indexing reads only the footers. Text becomes str, a list of numbers a NumPy array,
    everything else as pyarrow's ``to_pylist`` converts it.

    A row group may be impossible to decode, or have wrong page checksums (if it was written with checksums). Then
    DataError names the file, the row group and its bytes. With ``on_corrupt="mask"``, each of its rows is a BadSample
    instead.
    """
    if on_corrupt not in ("raise", "mask"):
        raise DataError(f"on_corrupt is {on_corrupt!r}; expected 'raise' or 'mask'.")
    return FileSource(
        parse_pattern(pattern), ParquetFormat(None if columns is None else tuple(columns), on_corrupt), cache
    )


@dataclass(frozen=True, slots=True)
class ParquetFormat:
    """The file format of the source ``parquet``. With ``types``, indexing refuses a file with other types."""

    columns: tuple[str, ...] | None
    on_corrupt: OnCorrupt
    types: ColumnTypes | None = None

    @property
    def kind(self) -> str:
        return "parquet"

    @property
    def suffixes(self) -> tuple[str, ...]:
        return (".parquet", ".pq")

    @property
    def block_settings(self) -> tuple[str, ...]:
        return () if self.types is None else (self.types.digest,)

    def is_quick(self, _name: str) -> bool:
        return False

    def scan_file(self, file: FileBytes) -> FileScan:
        """Return the row groups in a file's footer as blocks; begin and end are numbers of row groups."""
        footer, stamp = _read_footer(file)
        if self.types is not None:
            self.types.check_schema(footer.schema.to_arrow_schema(), file.path, column_names=self.columns)
        rows = [footer.row_group(number).num_rows for number in range(footer.num_row_groups)]
        return FileScan(tuple((number, number + 1, many, 0) for number, many in enumerate(rows)), stamp)

    def open(self, file: FileBytes, stamp: str) -> OpenFile:
        footer, found = _read_footer(file)
        if found != stamp:
            raise data_changed_error(file.path, f"a footer with the digest {stamp}", found)
        names = footer.schema.to_arrow_schema().names
        missing = [name for name in self.columns or () if name not in names]
        if missing:
            raise DataError(
                f"{file.path} has no column {', '.join(map(repr, missing))}.",
                path=file.path,
                remedy=f"It has {', '.join(map(repr, names))}.",
            )
        return ParquetFile(file, footer, self.columns, self.on_corrupt)


@dataclass(frozen=True, slots=True)
class ParquetFile:
    """An open Parquet file. Each block is read through its own reader, so threads share only the footer."""

    file: FileBytes
    footer: pq.FileMetaData
    columns: tuple[str, ...] | None
    on_corrupt: OnCorrupt

    def read_block(self, block: IndexBlock) -> BlockRows:
        try:
            return TableRows(self._read_table(block), f"{self.file.path}, row group {block.begin}")
        except (pa.ArrowException, OSError, ValueError) as error:
            why = self._corrupt_block_text(block, error)
            # Too little memory, or a codec that this pyarrow lacks, is no fault of the file.
            if self.on_corrupt == "raise" or isinstance(error, MemoryError | NotImplementedError):
                raise DataError(
                    why, path=self.file.path, remedy='Write the file again, or read on with on_corrupt="mask".'
                ) from error
            return BadRows(why)

    def _read_table(self, block: IndexBlock) -> pa.Table:
        group = self.footer.row_group(block.begin)
        known = [(begin, self.file.read(begin, end - begin)) for begin, end in _column_ranges(group, self.columns)]
        # Arrow's own reading ahead is by threads of its own, which would wait for Python's lock.
        with pq.ParquetFile(
            pa.PythonFile(self._seekable(known), mode="r"),
            metadata=self.footer,
            pre_buffer=False,
            page_checksum_verification=True,
        ) as file:
            table = file.read_row_group(
                block.begin, columns=None if self.columns is None else list(self.columns), use_threads=False
            )
        if table.num_rows != group.num_rows:
            raise ValueError(f"the row group has {table.num_rows} rows")
        return table

    def _seekable(self, known: Sequence[tuple[int, bytes]]) -> SeekableFile:
        """Return a file object for Arrow; the ranges ``known``, as (offset, bytes), are not read again."""

        def read_at(begin: int, count: int) -> bytes:
            for offset, data in known:
                if offset <= begin and begin + count <= offset + len(data):
                    return data[begin - offset : begin - offset + count]
            return self.file.read(begin, count)

        return SeekableFile(self.file.nbytes, read_at)

    def _corrupt_block_text(self, block: IndexBlock, error: Exception) -> str:
        group = self.footer.row_group(block.begin)
        begin, end = next(iter(_column_ranges(group, self.columns, gap=1 << 62)), (0, 0))
        return (
            f"{self.file.path}: row group {block.begin} ({group.num_rows:,} rows, bytes {begin:,} to {end:,}) "
            f"cannot be decoded: {str(error).rstrip('.')}."
        )


@dataclass(frozen=True, slots=True)
class BadRows:
    """A block whose rows cannot be used: every row is a BadSample."""

    why: str

    def take(self, rows: NDArray[np.int64]) -> list[Any]:
        return [BadSample(self.why)] * len(rows)


def _column_ranges(
    group: pq.RowGroupMetaData, columns: Collection[str] | None, *, gap: int = _GAP
) -> list[tuple[int, int]]:
    """Return the byte ranges of a row group's columns, as (begin, end); ranges with a small gap are joined."""
    chunks = [group.column(number) for number in range(group.num_columns)]
    found: list[tuple[int, int]] = []
    wanted = [one for one in chunks if columns is None or one.path_in_schema.partition(".")[0] in columns]
    for begin, end in sorted(map(_bytes_of, wanted)):
        if found and begin <= found[-1][1] + gap:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return found


def _bytes_of(column: pq.ColumnChunkMetaData) -> tuple[int, int]:
    first = column.dictionary_page_offset
    begin = int(column.data_page_offset if first is None else min(first, column.data_page_offset))
    return begin, begin + int(column.total_compressed_size)


def _read_footer(file: FileBytes) -> tuple[pq.FileMetaData, str]:
    """Return a file's footer, and the footer's digest. It takes one or two reads."""
    tail = file.read(max(0, file.nbytes - _TAIL), min(_TAIL, file.nbytes))
    if len(tail) < 12 or not tail.endswith(_MAGIC):
        raise _no_footer(file, "it does not end with PAR1")
    size = int.from_bytes(tail[-8:-4], "little") + 8
    if size > file.nbytes:
        raise _no_footer(file, f"its footer would be {size:,} bytes long")
    if size > len(tail):
        tail = file.read(file.nbytes - size, size - len(tail)) + tail
    try:
        footer = pq.read_metadata(pa.BufferReader(_MAGIC + tail[-size:]))
    except (pa.ArrowException, OSError) as error:
        raise _no_footer(file, str(error)) from error
    return footer, show(digest(tail[-size:]))[:16]


def _no_footer(file: FileBytes, why: str) -> DataError:
    return DataError(
        f"{file.path} ({file.nbytes:,} bytes) is no whole parquet file: {why}.",
        path=file.path,
        remedy="Was it cut off? Write or fetch it again, or leave it out.",
    )
