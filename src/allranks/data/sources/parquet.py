"""Read Parquet files with pyarrow."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from numpy.typing import NDArray

from allranks.data.arguments import check_choice
from allranks.data.base import BadSample, BlockRows
from allranks.data.index import SourceFile
from allranks.data.sources.columns import check_columns, table_rows
from allranks.data.sources.file import FileBytes, data_changed_error, incomplete_file_error, wrong_index_error
from allranks.data.sources.files import FileBlocks, FileFormat, FileScan, FileSource, IndexBlock, OpenFile
from allranks.data.sources.footers import FooterError, FooterReaders
from allranks.data.sources.limits import check_block, check_limit, check_rows, limit_of_block
from allranks.data.sources.parquet_pages import chunk_memory
from allranks.data.sources.patterns import Pattern, parse_pattern
from allranks.data.sources.types import ColumnTypes
from allranks.digest import digest, show
from allranks.errors import AllranksError, DataError
from allranks.storage.seekable_file import SeekableFile

OnCorrupt = Literal["raise", "mask"]
_TAIL = 1 << 13  # what is read of a file at first; most footers are in it
_GAP = 1 << 16  # bytes that are read though not wanted, rather than in a read of their own
_MAGIC = b"PAR1"
_ENCRYPTED_MAGIC = b"PARE"
_PARTS, _MOST_PARTS = 4, 1 << 12  # in which a row group is decoded that may need more than its limit
# Of types whose values have one size in memory; numbers of Python take more, but only for the rows of a batch.
_VALUE_BYTES = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 8, "FLOAT": 4, "DOUBLE": 8}


def parquet(
    pattern: Pattern,
    *,
    columns: Sequence[str] | None = None,
    on_corrupt: OnCorrupt = "raise",
    max_block_bytes: int | None = None,
    cache: str | None = None,
) -> FileSource:
    """Return parquet files as a source. A sample is a row, a dict of its columns; only ``columns`` are read, if given.

    A block is a row group: it is read, held in memory and shuffled as one. So many small row groups (a few MB) are
    better than few large ones. Indexing reads only the footers. Text becomes str, a list of numbers a NumPy array,
    everything else as pyarrow's ``to_pylist`` converts it.

    A row group may be impossible to decode, or have wrong page checksums (if it was written with checksums). Then
    DataError names the file, the row group and its bytes. With ``on_corrupt="mask"``, each of its rows is a BadSample
    instead. ``max_block_bytes`` are the most bytes that a row group may need in memory (default: 256 MiB, or 64 times
    its bytes in the file).
    """
    check_choice("on_corrupt", on_corrupt, get_args(OnCorrupt))
    names = None if columns is None else tuple(columns)
    form = ParquetFormat(names, on_corrupt, max_block_bytes=check_limit(max_block_bytes))
    return FileSource(parse_pattern(pattern), form, cache)


@dataclass(frozen=True, slots=True)
class ParquetFormat(FileFormat):
    """The file format of the source ``parquet``. With ``types``, indexing refuses a file with other types."""

    columns: tuple[str, ...] | None
    on_corrupt: OnCorrupt
    types: ColumnTypes | None = None
    max_block_bytes: int | None = None
    kind = "parquet"
    suffixes = (".parquet", ".pq")

    @property
    def block_settings(self) -> tuple[str, ...]:
        return () if self.types is None else (self.types.digest,)

    @contextmanager
    def scanning(self) -> Iterator[Callable[[FileBytes], FileScan]]:
        with FooterReaders() as readers:
            yield partial(self._scan_footer, readers)

    def scan_file(self, file: FileBytes) -> FileScan:
        """Return the row groups in a file's footer as blocks; begin and end are numbers of row groups."""
        with self.scanning() as scan_file:
            return scan_file(file)

    def _scan_footer(self, readers: FooterReaders, file: FileBytes) -> FileScan:
        footer = _footer_bytes(file)
        try:
            rows = readers.rows_of_groups(footer)
        except FooterError as error:
            raise _no_footer(file, str(error)) from error
        if self.types is not None:
            schema = _parse_footer(file, footer).schema.to_arrow_schema()
            self.types.check_schema(schema, file.path, column_names=self.columns)
        for number, many in enumerate(rows):
            if many < 0:
                raise _no_footer(file, f"its row group {number} has {many:,} rows")
            check_rows(file.path, f"row group {number}", many, file.nbytes, self.max_block_bytes)
        return FileScan(tuple((number, number + 1, many, 0) for number, many in enumerate(rows)), _stamp_of(footer))

    def covers(self, file: SourceFile, blocks: FileBlocks) -> bool:  # noqa: ARG002  ``open`` compares the footer
        return bool(blocks.begin[0] >= 0 and blocks.are_ascending and (blocks.end == blocks.begin + 1).all())

    def open(self, file: FileBytes, stamp: str, blocks: FileBlocks | None) -> OpenFile:
        data = _footer_bytes(file)
        found = _stamp_of(data)
        if found != stamp:  # not parsed: a child process has read the footer of the index, and not this one
            raise data_changed_error(file.path, f"a footer with the digest {stamp}", found)
        footer = _parse_footer(file, data)
        if blocks is not None:
            _compare_rows(file, footer, blocks)
        check_columns(self.columns, footer.schema.to_arrow_schema().names, file.path)
        return ParquetFile(file, footer, self.columns, self.on_corrupt, self.max_block_bytes)


@dataclass(frozen=True, slots=True)
class ParquetFile:
    """An open Parquet file. Each block is read through its own reader, so threads share only the footer."""

    file: FileBytes
    footer: pq.FileMetaData
    columns: tuple[str, ...] | None
    on_corrupt: OnCorrupt
    max_block_bytes: int | None

    def read_block(self, block: IndexBlock) -> BlockRows:
        try:
            table = self._read_table(block)
            block.check_rows(table.num_rows, self.file.path, f"row group {block.begin}")
            return table_rows(table, f"{self.file.path}, row group {block.begin}")
        except AllranksError:
            raise
        except Exception as error:  # pyarrow raises many kinds for damaged bytes
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
        at_once = self._rows_at_once(block.begin, group, known)
        # Arrow's own reading ahead is by threads of its own, which would wait for Python's lock.
        with pq.ParquetFile(
            pa.PythonFile(self._seekable(known), mode="r"),
            metadata=self.footer,
            pre_buffer=False,
            page_checksum_verification=True,
        ) as file:
            columns = None if self.columns is None else list(self.columns)
            if at_once >= group.num_rows:
                table = file.read_row_group(block.begin, columns=columns, use_threads=False)
            else:
                table = self._read_in_parts(file, block.begin, at_once, sum(len(data) for _, data in known))
        pa.default_memory_pool().release_unused()  # else it keeps what was freed: 46 MB, of windows of 57 MB
        if table.num_rows != group.num_rows:
            raise ValueError(f"the row group has {table.num_rows} rows")
        return table

    def _rows_at_once(self, number: int, group: pq.RowGroupMetaData, known: Sequence[tuple[int, bytes]]) -> int:
        """Return how many rows can be decoded at once. Raises DataError if the row group needs too much memory.

        Values in a dictionary are decoded as often as they occur, which the sizes of pages do not tell.
        """
        certain = most = 0
        for chunk in _wanted_chunks(group, self.columns):
            begin, end = _bytes_of(chunk)
            offset, data = next(
                (offset, data) for offset, data in known if offset <= begin and end <= offset + len(data)
            )
            memory = chunk_memory(
                memoryview(data)[begin - offset : end - offset],
                num_values=int(chunk.num_values),
                value_bytes=_VALUE_BYTES.get(chunk.physical_type),
            )
            certain, most = certain + memory.certain, most + memory.most
        packed = sum(len(data) for _, data in known)
        check_block(self.file.path, f"row group {number}", certain, packed, self.max_block_bytes)
        limit, rows = limit_of_block(self.max_block_bytes, packed), int(group.num_rows)
        return rows if most <= limit else max(rows * limit // (_PARTS * most), -(-rows // _MOST_PARTS), 1)

    def _read_in_parts(self, file: pq.ParquetFile, number: int, rows: int, packed_bytes: int) -> pa.Table:
        columns = None if self.columns is None else list(self.columns)
        batches, nbytes = [], 0
        for batch in file.iter_batches(rows, row_groups=[number], columns=columns, use_threads=False):
            batches.append(batch)
            nbytes += batch.get_total_buffer_size()
            check_block(self.file.path, f"row group {number}", nbytes, packed_bytes, self.max_block_bytes)
        return pa.Table.from_batches(batches)

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
    found: list[tuple[int, int]] = []
    for begin, end in sorted(map(_bytes_of, _wanted_chunks(group, columns))):
        if found and begin <= found[-1][1] + gap:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return found


def _bytes_of(column: pq.ColumnChunkMetaData) -> tuple[int, int]:
    first = column.dictionary_page_offset
    begin = int(column.data_page_offset if first is None else min(first, column.data_page_offset))
    return begin, begin + int(column.total_compressed_size)


def _wanted_chunks(group: pq.RowGroupMetaData, columns: Collection[str] | None) -> list[pq.ColumnChunkMetaData]:
    chunks = [group.column(number) for number in range(group.num_columns)]
    return [one for one in chunks if columns is None or one.path_in_schema.partition(".")[0] in columns]


def _compare_rows(file: FileBytes, footer: pq.FileMetaData, blocks: FileBlocks) -> None:
    """Raise DataChanged if the row groups of a footer are not those of the index."""
    rows = [footer.row_group(number).num_rows for number in range(footer.num_row_groups)]
    expected = dict(zip(blocks.begin.tolist(), blocks.rows.tolist(), strict=True))
    if expected != {number: many for number, many in enumerate(rows) if many}:
        raise wrong_index_error(
            file.path,
            f"{sum(expected.values()):,} rows in {len(expected):,} row groups",
            f"{sum(rows):,} in {len(rows):,}, or other row groups",
        )


def _footer_bytes(file: FileBytes) -> bytes:
    """Return the bytes of a file's footer, and those that end the file. It takes one or two reads."""
    tail = file.read(max(0, file.nbytes - _TAIL), min(_TAIL, file.nbytes))
    if tail.endswith(_ENCRYPTED_MAGIC):
        why = "its footer is encrypted, and encrypted files are not supported"
        raise DataError(f"{file.path}: {why}.", path=file.path, remedy="Write the file without encryption.")
    if len(tail) < 12 or not tail.endswith(_MAGIC):
        raise _no_footer(file, "it does not end with PAR1")
    size = int.from_bytes(tail[-8:-4], "little") + 8
    if size > file.nbytes:
        raise _no_footer(file, f"its footer would be {size:,} bytes long")
    if size > len(tail):
        tail = file.read(file.nbytes - size, size - len(tail)) + tail
    return tail[-size:]


def _stamp_of(footer: bytes) -> str:
    return show(digest(footer))[:16]


def _parse_footer(file: FileBytes, footer: bytes) -> pq.FileMetaData:
    try:
        return pq.read_metadata(pa.BufferReader(_MAGIC + footer))
    except Exception as error:  # pyarrow raises many kinds for damaged bytes
        raise _no_footer(file, str(error)) from error


def _no_footer(file: FileBytes, why: str) -> DataError:
    remedy = "Was it cut off, damaged or encrypted? Write or fetch it again, or leave it out."
    return incomplete_file_error(file, "Parquet file", file.nbytes, why, remedy)
