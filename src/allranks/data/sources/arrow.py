"""Read Arrow IPC files and streams."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa  # type: ignore[import-untyped]

from allranks.data.base import BlockRows
from allranks.data.index import SourceFile
from allranks.data.sources.columns import check_columns, table_rows
from allranks.data.sources.file import FileBytes, incomplete_file_error, wrong_index_error
from allranks.data.sources.files import FileBlocks, FileFormat, FileScan, FileSource, IndexBlock, OpenFile
from allranks.data.sources.limits import check_block, check_limit, check_rows
from allranks.data.sources.patterns import Pattern, parse_pattern
from allranks.data.sources.types import ColumnTypes
from allranks.digest import digest, show
from allranks.errors import DataError
from allranks.failure import message_of

_MAGIC = b"ARROW1\0\0"  # of the file format; then the same messages as in a stream
_CONTINUED = b"\xff\xff\xff\xff"
_PEEK = 1 << 12  # what is read of a message at first; the head is nearly always in it
_LONGEST_HEAD = 64 << 20
_SCHEMA, _DICTIONARY, _BATCH = 1, 2, 3


def arrow(
    pattern: Pattern,
    *,
    columns: Sequence[str] | None = None,
    max_block_bytes: int | None = None,
    cache: str | None = None,
) -> FileSource:
    """Return Arrow IPC files and streams as a source (also the cache of Hugging Face datasets). A sample is a dict.

    A sample is a row, and a block is a record batch. A block is read completely, but only ``columns`` are decoded, if
    given. Indexing reads only the heads of the messages. Files are read, not memory-mapped, because a map of a
    truncated file kills the process. Columns with dictionaries are not supported. Values and ``max_block_bytes`` are
    as for ``parquet``.
    """
    form = ArrowFormat(None if columns is None else tuple(columns), max_block_bytes=check_limit(max_block_bytes))
    return FileSource(parse_pattern(pattern), form, cache)


@dataclass(frozen=True, slots=True)
class ArrowFormat(FileFormat):
    """The file format of the source ``arrow``. With ``types``, indexing refuses a file with other types."""

    columns: tuple[str, ...] | None
    types: ColumnTypes | None = None
    max_block_bytes: int | None = None
    kind = "arrow"
    suffixes = (".arrow", ".feather", ".ipc", ".arrows")

    @property
    def block_settings(self) -> tuple[str, ...]:
        return () if self.types is None else (self.types.digest,)

    def scan_file(self, file: FileBytes) -> FileScan:
        """Return the record batches of a file as blocks; begin and end are the bytes of their messages."""
        heads = list(_message_heads(file))
        if not heads or heads[0].kind != _SCHEMA:
            raise _no_arrow(file, 0, "it does not begin with a schema")
        if any(head.kind == _DICTIONARY for head in heads):
            raise DataError(
                f"{file.path} has columns with dictionaries, which are not supported.",
                path=file.path,
                remedy="Write them as plain columns (cast them to the type of their values).",
            )
        if self.types is not None:
            self.types.check_schema(_read_schema(file, heads[0]), file.path, column_names=self.columns)
        batches = [head for head in heads if head.kind == _BATCH]
        for head in batches:
            check_rows(file.path, head.where, head.rows, head.end - head.begin, self.max_block_bytes)
        blocks = tuple((head.begin, head.end, head.rows, 0) for head in batches)
        return FileScan(blocks, show(digest(*(head.data for head in heads)))[:16])

    def covers(self, file: SourceFile, blocks: FileBlocks) -> bool:
        return bool(blocks.begin[0] >= 0 and blocks.end[-1] <= file.nbytes and blocks.are_ascending)

    def open(self, file: FileBytes, stamp: str, blocks: FileBlocks | None) -> OpenFile:  # noqa: ARG002  of all heads: too many
        first = next(_message_heads(file), None)
        if first is None or first.kind != _SCHEMA:
            raise _no_arrow(file, 0, "it does not begin with a schema")
        schema = _read_schema(file, first)
        for begin, end in blocks.gaps(file.nbytes) if blocks else ():
            odd = next(
                (
                    head
                    for head in _message_heads(file, max(begin, first.end), end)
                    if head.kind == _BATCH and head.rows
                ),
                None,
            )
            if odd is not None:
                raise wrong_index_error(file.path, f"no rows in bytes {begin:,} to {end:,}", odd.where)
        check_columns(self.columns, schema.names, file.path)
        return ArrowFile(file, schema, self.columns, self.max_block_bytes)


@dataclass(frozen=True, slots=True)
class ArrowFile:
    """An Arrow file that is open for reading blocks."""

    file: FileBytes
    schema: pa.Schema
    columns: tuple[str, ...] | None
    max_block_bytes: int | None

    def read_block(self, block: IndexBlock) -> BlockRows:
        place = f"record batch in bytes {block.begin:,} to {block.end:,}"
        where = f"{self.file.path}, {place}"
        data = self.file.read(block.begin, block.end - block.begin)
        try:
            rows_told, unpacked = batch_sizes(data)
            check_rows(self.file.path, place, rows_told, len(data), self.max_block_bytes)
            check_block(self.file.path, place, unpacked, len(data), self.max_block_bytes)
            batch = pa.ipc.read_record_batch(pa.py_buffer(data), self.schema)
            table = pa.Table.from_batches([batch], self.schema)
            table.validate(full=True)
            rows = table_rows(table if self.columns is None else table.select(self.columns), where)
        except DataError:
            raise
        except Exception as error:  # pyarrow raises many kinds for damaged bytes
            raise DataError(
                f"{where}, cannot be decoded: {message_of(error)}.",
                path=self.file.path,
                remedy="Write or fetch the file again.",
            ) from error
        block.check_rows(table.num_rows, self.file.path, place)
        return rows


@dataclass(frozen=True, slots=True)
class _MessageHead:
    """The header of one Arrow message.

    The message is at bytes ``begin`` to ``end`` of the file. ``data`` is the head itself; ``rows`` is the number of
    rows of a record batch.
    """

    kind: int
    begin: int
    end: int
    data: bytes
    rows: int

    @property
    def where(self) -> str:
        return f"the record batch in bytes {self.begin:,} to {self.end:,}"


def _read_schema(file: FileBytes, head: _MessageHead) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(file.read(head.begin, head.end - head.begin)))


def _message_heads(file: FileBytes, begin: int = 0, stop: int | None = None) -> Iterator[_MessageHead]:
    """Yield the heads of the messages from ``begin`` to ``stop`` of a file; only the heads are read."""
    at = begin or (len(_MAGIC) if file.read(0, min(len(_MAGIC), file.nbytes)) == _MAGIC else 0)
    last = file.nbytes if stop is None else stop
    while at + 8 <= last:
        peek = file.read(at, min(_PEEK, last - at))
        if not peek.startswith(_CONTINUED):
            raise _no_arrow(file, at, "there is no message")
        (size,) = struct.unpack_from("<i", peek, 4)
        if size == 0:
            return
        if not 0 <= size <= _LONGEST_HEAD or at + 8 + size > file.nbytes:
            raise _no_arrow(file, at, f"a message's head would be {size} bytes long")
        data = peek[8 : 8 + size] if 8 + size <= len(peek) else file.read(at + 8, size)
        try:
            kind, body, rows = _parse_head(data)
        except (struct.error, IndexError) as error:
            raise _no_arrow(file, at, f"a message's head is damaged ({error})") from error
        end = at + 8 + size + body
        if body < 0 or rows < 0 or end > file.nbytes:
            raise _no_arrow(file, at, f"a message would end at byte {end:,}")
        yield _MessageHead(kind, at, end, data, rows)
        at = end


def _parse_head(data: bytes) -> tuple[int, int, int]:
    """Return the type of a message, the bytes of its body, and the rows of a record batch (0 for other messages).

    A head is a flatbuffer (Message.fbs). The fields of a table are found through a table of offsets, 0 for missing
    fields.
    """
    (message,) = struct.unpack_from("<I", data, 0)
    kind_at, body_at = (_field_position(data, message, number) for number in (1, 3))
    kind = data[kind_at] if kind_at else 0
    body = struct.unpack_from("<q", data, body_at)[0] if body_at else 0
    if kind != _BATCH or not (batch := _batch_position(data)):
        return kind, body, 0
    length_at = _field_position(data, batch, 0)
    return kind, body, struct.unpack_from("<q", data, length_at)[0] if length_at else 0


def batch_sizes(data: bytes) -> tuple[int, int]:
    """Return the rows of a record batch, and the bytes of its buffers after decompression, as its message tells them.

    A compressed buffer begins with its size; -1 for a buffer that is not compressed. Raises struct.error or IndexError
    for other bytes.
    """
    (size,) = struct.unpack_from("<i", data, 4)
    head, body = data[8 : 8 + size], 8 + size
    _, _, rows = _parse_head(head)
    batch = _batch_position(head)
    buffers_at, compression_at = (_field_position(head, batch, number) for number in (2, 3)) if batch else (0, 0)
    if not buffers_at or not compression_at:
        return rows, len(data)
    buffers = buffers_at + struct.unpack_from("<I", head, buffers_at)[0]
    (count,) = struct.unpack_from("<I", head, buffers)
    unpacked = 0
    for offset, length in struct.iter_unpack("<qq", head[buffers + 4 : buffers + 4 + 16 * count]):
        unpacked += max(struct.unpack_from("<q", data, body + offset)[0], length) if length else 0
    return rows, unpacked


def _batch_position(data: bytes) -> int:
    """Return the position of the table RecordBatch in the head of a message; 0 if there is none."""
    (message,) = struct.unpack_from("<I", data, 0)
    header_at = _field_position(data, message, 2)
    return header_at + int(struct.unpack_from("<I", data, header_at)[0]) if header_at else 0


def _field_position(data: bytes, table: int, number: int) -> int:
    """Return the position of a field of a flatbuffer table; 0 if the field is missing."""
    offsets = table - struct.unpack_from("<i", data, table)[0]
    (size,) = struct.unpack_from("<H", data, offsets)
    if 4 + 2 * number >= size:
        return 0
    (offset,) = struct.unpack_from("<H", data, offsets + 4 + 2 * number)
    return table + int(offset) if offset else 0


def _no_arrow(file: FileBytes, at: int, why: str) -> DataError:
    return incomplete_file_error(file, "Arrow file or stream", at, why)
