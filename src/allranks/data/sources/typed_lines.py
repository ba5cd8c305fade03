"""Read lines as ``datasets`` does: JSON with the types of the features, and text as a column."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.json as pj  # type: ignore[import-untyped]

from allranks.data.base import BlockRows
from allranks.data.index import SourceFile
from allranks.data.sources import compressed
from allranks.data.sources.columns import table_rows
from allranks.data.sources.file import FileBytes
from allranks.data.sources.files import FileBlocks, FileFormat, FileScan, IndexBlock, OpenFile
from allranks.data.sources.jsonl import json_lines
from allranks.data.sources.line_file import LineDecoding, LineFile, LineFormat, LineRows, check_begin
from allranks.data.sources.lines import count_lines, line_spans
from allranks.data.sources.types import ColumnTypes
from allranks.errors import DataError

_MARK = b"\xef\xbb\xbf"
# How files begin that are compressed, whatever their names: gzip, zstd, zip, bzip2, xz.
_PACKED = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PK\x03\x04", b"BZh", b"\xfd7zXZ"
_NOT_ONE = "its objects are not one in each line"
_STREAM = "Read the stream: allranks.shard(datasets.load_dataset(..., streaming=True), world)"


def _text_sample(line: bytes) -> dict[str, str]:
    return {"text": line.decode()}


_TEXT = LineDecoding(_text_sample, UnicodeDecodeError, "UTF-8")


def parse_json_table(data: bytes, schema: pa.Schema) -> pa.Table:
    """Parse JSON objects to a table with this schema, and return it. Raises pa.ArrowException if they do not fit."""
    return pj.read_json(
        pa.BufferReader(data),
        read_options=pj.ReadOptions(use_threads=False, block_size=len(data) + 1),
        parse_options=pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error"),
    )


@dataclass(frozen=True, slots=True)
class TypedJson(FileFormat):
    """The format of JSON lines with types: every sample has all columns, with their types.

    A missing value is None, 1 in a column of floats is 1.0, and a time is a datetime if the types say so. A value that
    does not fit raises DataError when it is read.
    """

    types: ColumnTypes
    block_bytes: int
    max_block_bytes: int | None = None

    @property
    def kind(self) -> str:
        return f"json {self.types.digest}"  # they decide the samples: another type is another data set

    @property
    def suffixes(self) -> tuple[str, ...]:
        return self._lines.suffixes

    @property
    def block_settings(self) -> tuple[str, ...]:
        return self._lines.block_settings

    def scan_file(self, file: FileBytes) -> FileScan:
        begin = _first_bytes(file)
        if begin.removeprefix(_MARK).startswith(b"["):
            raise DataError(
                f"{file.path} is one list in JSON; expected an object in every line.",
                path=file.path,
                remedy=f"Write it as JSON lines. {_STREAM}.",
            )
        return self._lines.scan_file(file)

    def covers(self, file: SourceFile, blocks: FileBlocks) -> bool:
        return self._lines.covers(file, blocks)

    def open(self, file: FileBytes, stamp: str, blocks: FileBlocks | None) -> OpenFile:  # noqa: ARG002  blocks are checked
        check_begin(file, blocks)
        return TypedFile(
            LineFile(file, self._lines.blanks, self._lines.decoding, self.max_block_bytes), self.types.to_schema()
        )

    @property
    def _lines(self) -> LineFormat:
        return json_lines(self.block_bytes, self.max_block_bytes)


@dataclass(frozen=True, slots=True)
class TypedFile:
    """An open file of JSON lines with types."""

    lines: LineFile
    schema: pa.Schema

    def read_block(self, block: IndexBlock) -> BlockRows:
        lines = self.lines.read_lines(block)
        try:
            table = parse_json_table(lines.data, self.schema)
        except pa.ArrowException as error:
            raise self._misfit_error(lines, str(error)) from error
        if table.num_rows != count_lines(lines.data, counts_blank_lines=False):
            raise self._misfit_error(lines, _NOT_ONE)
        block.check_rows(table.num_rows, lines.path, f"the block at byte {lines.begin:,}")
        return table_rows(table, f"{lines.path}, block at byte {lines.begin:,}")

    def _line_fault(self, line: bytes) -> str:
        """Return why a line is not exactly one object that fits the schema; "" if it is."""
        try:
            return "" if parse_json_table(line, self.schema).num_rows == 1 else _NOT_ONE
        except pa.ArrowException as error:
            return str(error)

    def _misfit_error(self, lines: LineRows, why: str) -> DataError:
        """Return the error for a block; it names the first line with a fault."""
        begins, ends = line_spans(lines.data, counts_blank_lines=False)
        each = (lines.data[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True))
        faults = ((number, self._line_fault(line)) for number, line in enumerate(each, start=1))
        number, why = next((found for found in faults if found[1]), (1, why))
        return DataError(
            f"{lines.path}: line {number} of the block at byte {lines.begin:,} does not fit the features: "
            f"{why.rstrip('.')}.",
            path=lines.path,
            remedy="datasets takes the features from the first lines of the first file: say features=...; or read the "
            "lines as they are with allranks.Dataset.jsonl(files), which masks those that are no JSON.",
        )


@dataclass(frozen=True, slots=True)
class TypedText(FileFormat):
    """The format of text lines. A sample is ``{"text": line}``; a line that is not UTF-8 is a BadSample."""

    block_bytes: int
    max_block_bytes: int | None = None
    kind = "text"
    suffixes = ()

    @property
    def block_settings(self) -> tuple[str, ...]:
        return ("column", *self._lines.block_settings)

    def is_quick(self, name: str) -> bool:
        return self._lines.is_quick(name)

    def scan_file(self, file: FileBytes) -> FileScan:
        if _first_bytes(file).startswith(_MARK):
            raise DataError(
                f"{file.path} begins with a byte-order mark, which datasets takes for text.",
                path=file.path,
                remedy="Write it without one, or use allranks.Dataset.text(files), which leaves it out.",
            )
        return self._lines.scan_file(file)

    def covers(self, file: SourceFile, blocks: FileBlocks) -> bool:
        return self._lines.covers(file, blocks)

    def open(self, file: FileBytes, stamp: str, blocks: FileBlocks | None) -> OpenFile:  # noqa: ARG002  blocks are checked
        check_begin(file, blocks)
        return TextFile(LineFile(file, self._lines.blanks, self._lines.decoding, self.max_block_bytes))

    @property
    def _lines(self) -> LineFormat:
        return LineFormat(
            "text",
            (),
            blanks=True,
            decoding=_TEXT,
            block_bytes=self.block_bytes,
            max_block_bytes=self.max_block_bytes,
        )


@dataclass(frozen=True, slots=True)
class TextFile:
    """An open file of text lines."""

    lines: LineFile

    def read_block(self, block: IndexBlock) -> BlockRows:
        rows = self.lines.read_lines(block)
        if rows.data.count(b"\r") != rows.data.count(b"\r\n"):
            raise DataError(
                f"{rows.path}: the block at byte {rows.begin:,} has a carriage return alone, where datasets ends a "
                "line, and the plan does not.",
                path=rows.path,
                remedy="Write the file with other line ends, or use allranks.Dataset.text(files), which keeps it.",
            )
        return rows


def _first_bytes(file: FileBytes) -> bytes:
    """Return the first bytes of a file. Raises DataError if it is compressed and its name does not say so."""
    if compressed.codec_of(file.name):
        return b""
    begin = file.read(0, min(8, file.nbytes))
    if begin.startswith(_PACKED):
        raise DataError(
            f"{file.path} is compressed, but its name ends in none of {', '.join(filter(None, compressed.SUFFIXES))}.",
            path=file.path,
            remedy=f"Pack it with gzip or zstd, and name it so. {_STREAM}.",
        )
    return begin
