"""Read files of lines, compressed or not, for the sources jsonl and text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from allranks.data.arguments import check_number
from allranks.data.base import BadSample, BlockRows
from allranks.data.block_columns import BlockColumns
from allranks.data.index import SourceFile
from allranks.data.sample_columns import AnyColumn
from allranks.data.sources import compressed
from allranks.data.sources.file import FileBytes, check_digest, wrong_index_error
from allranks.data.sources.files import FileBlocks, FileFormat, FileScan, IndexBlock, OpenFile
from allranks.data.sources.limits import LONGEST_LINE, check_limit
from allranks.data.sources.lines import divide_into_blocks, line_spans, may_have_long_integers
from allranks.digest import digest, show
from allranks.errors import DataError

_LENGTH_BITS = LONGEST_LINE.bit_length()  # of a position: blocks up to 32 GB, lines up to 256 MB
_MOST_AT_ONCE = 8 << 20  # bytes of a block that is decoded at once: its values need several times its bytes
_MARK = b"\xef\xbb\xbf"  # of UTF-8, at the beginning of files from Windows


@dataclass(frozen=True, slots=True)
class LineDecoding:
    """How a line is decoded: by ``decode(line)``, which raises ``refuses`` for a line that is not a ``noun``.

    ``with_long_integers`` decodes the lines of blocks that may have integers beyond 64 bits, if these need it.
    ``decode_columns`` decodes a block at once; it returns None for blocks whose lines must be decoded one by one.
    """

    decode: Callable[[bytes], Any]
    refuses: type[ValueError]
    noun: str
    with_long_integers: LineDecoding | None = None
    decode_columns: Callable[[bytes], dict[str, AnyColumn] | None] | None = None

    def gather_samples(
        self, blocks: Mapping[int, BlockRows], keys: NDArray[np.int64], positions: NDArray[np.int64]
    ) -> list[Any]:
        begins = positions >> _LENGTH_BITS
        lines = list(zip(keys.tolist(), begins.tolist(), (begins + (positions & LONGEST_LINE)).tolist(), strict=True))
        held = cast(Mapping[int, LineRows], blocks)
        try:
            return [self.decode(held[key].data[begin:end]) for key, begin, end in lines]
        except self.refuses:
            return [held[key].decode_line(begin, end) for key, begin, end in lines]


@dataclass(frozen=True, slots=True, eq=False)
class LineRows:
    """The samples of a block of lines, which are decoded when ``take`` is called.

    The position of a line is ``begin << 28 | length``: its start in the block, and its length without the newline.
    """

    data: bytes
    blanks: bool
    gatherer: LineDecoding
    path: str
    begin: int  # of the block, in the file
    block: IndexBlock

    def positions_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        found: NDArray[np.int64] = self.positions()[rows]
        return found

    def positions(self) -> NDArray[np.int64]:
        """Return the positions of all lines. Raises DataError for a line that is too long."""
        begins, ends = line_spans(self.data, counts_blank_lines=self.blanks)
        self.block.check_rows(len(begins), self.path, _place_of_block(self.begin))
        lengths = ends - begins
        if len(lengths) and lengths.max() > LONGEST_LINE:
            longest = int(lengths.argmax())
            raise DataError(
                f"{self.path}: line {longest + 1} of the block at byte {self.begin:,} has {lengths[longest]:,} bytes; "
                f"the most is {LONGEST_LINE:,}.",
                path=self.path,
            )
        return begins << _LENGTH_BITS | lengths

    def take(self, rows: NDArray[np.int64]) -> list[Any]:
        return self.gatherer.gather_samples({0: self}, np.zeros(len(rows), np.int64), self.positions_of(rows))

    def decode_line(self, begin: int, end: int) -> Any:
        """Return the sample at these bytes of the block; a BadSample if they cannot be decoded."""
        try:
            return self.gatherer.decode(self.data[begin:end])
        except self.gatherer.refuses as error:
            row = int(np.searchsorted(self.positions(), begin << _LENGTH_BITS))
            where = f"{self.path}: line {row + 1} of the block at byte {self.begin:,}"
            return BadSample(f"{where} is no {self.gatherer.noun}: {error}")


def _place_of_block(begin: int) -> str:
    return f"the block at byte {begin:,}"


@dataclass(frozen=True, slots=True)
class LineFile:
    """An open file of lines. With ``blanks``, empty lines are samples."""

    file: FileBytes
    blanks: bool
    decoding: LineDecoding
    max_block_bytes: int | None = None

    def read_block(self, block: IndexBlock) -> BlockRows:
        data, begin = self._read_bytes(block)
        if self.decoding.decode_columns is not None and len(data) <= _MOST_AT_ONCE:
            columns = self.decoding.decode_columns(data)
            if columns is not None:
                block_rows = len(next(iter(columns.values())))
                block.check_rows(block_rows, self.file.path, _place_of_block(begin))
                return BlockColumns(columns, block_rows)
        return self._rows_of(data, begin, block)

    def read_lines(self, block: IndexBlock) -> LineRows:
        """Read a block, and return its lines, which are not decoded."""
        return self._rows_of(*self._read_bytes(block), block)

    def _read_bytes(self, block: IndexBlock) -> tuple[bytes, int]:
        """Return the bytes of a block, and their start in the file."""
        codec = compressed.codec_of(self.file.name)
        if codec:
            data = compressed.read_lines(self.file, codec, block, self.max_block_bytes)
            return data, compressed.block_begin(block)
        return self._read_plain_bytes(block), block.begin

    def _rows_of(self, data: bytes, begin: int, block: IndexBlock) -> LineRows:
        long = self.decoding.with_long_integers
        decoding = long if long and may_have_long_integers(data) else self.decoding
        return LineRows(data, self.blanks, decoding, self.file.path, begin, block)

    def _read_plain_bytes(self, block: IndexBlock) -> bytes:
        data = self.file.read(block.begin, block.end - block.begin)
        where = f"bytes {block.begin:,} to {block.end:,}"
        check_digest(self.file.path, data, block.check, where)
        # So every block begins where a line does.
        if not data.endswith(b"\n") and block.end != self.file.nbytes:
            raise wrong_index_error(self.file.path, f"complete lines in {where}", "a line that continues")
        return data


@dataclass(frozen=True, slots=True)
class LineFormat(FileFormat):
    """The format of a file of lines."""

    kind: str = field()  # without a value, the property of the base class would be its default
    suffixes: tuple[str, ...] = field()
    blanks: bool
    decoding: LineDecoding
    block_bytes: int
    max_block_bytes: int | None = None

    def __post_init__(self) -> None:
        check_number("block_bytes", self.block_bytes, "the bytes of lines that are read at a time", least=1)
        check_limit(self.max_block_bytes)

    @property
    def block_settings(self) -> tuple[str, ...]:
        return (str(self.block_bytes),)

    def is_quick(self, name: str) -> bool:
        return compressed.codec_of(name) is None

    def scan_file(self, file: FileBytes) -> FileScan:
        if codec := compressed.codec_of(file.name):
            return compressed.scan_frames(
                file,
                codec,
                min_block_bytes=self.block_bytes,
                counts_blank_lines=self.blanks,
                max_block_bytes=self.max_block_bytes,
            )
        return scan_lines(file, min_block_bytes=self.block_bytes, counts_blank_lines=self.blanks)

    def covers(self, file: SourceFile, blocks: FileBlocks) -> bool:
        if compressed.codec_of(file.name):
            return compressed.covers(file, blocks)
        joined = blocks.gaps(file.nbytes) in ([], [(0, len(_MARK))])
        return joined and blocks.are_ascending and bool((blocks.rows <= blocks.end - blocks.begin).all())

    def open(self, file: FileBytes, stamp: str, blocks: FileBlocks | None) -> OpenFile:  # noqa: ARG002
        check_begin(file, blocks)
        return LineFile(file, self.blanks, self.decoding, self.max_block_bytes)


def check_begin(file: FileBytes, blocks: FileBlocks | None) -> None:
    """Raise DataChanged if the first bytes of a file are in no block, and are no byte-order mark."""
    if blocks is None or compressed.codec_of(file.name) or blocks.begin[0] != len(_MARK):
        return
    if file.read(0, len(_MARK)) != _MARK:
        raise wrong_index_error(file.path, "a byte-order mark before byte 3", "other bytes")


def scan_lines(file: FileBytes, *, min_block_bytes: int, counts_blank_lines: bool) -> FileScan:
    """Divide an uncompressed file of lines into blocks, and return them."""
    begin = len(_MARK) if file.nbytes >= len(_MARK) and file.read(0, len(_MARK)) == _MARK else 0
    found = tuple(
        divide_into_blocks(
            file.read_chunks(begin), min_block_bytes=min_block_bytes, counts_blank_lines=counts_blank_lines, begin=begin
        )
    )
    checks = np.array([block.check for block in found], "<u8")
    return FileScan(
        tuple((block.begin, block.end, block.rows, block.check) for block in found),
        show(digest(str(file.nbytes), checks.tobytes()))[:16],
    )
