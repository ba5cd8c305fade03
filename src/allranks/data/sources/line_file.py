"""Read files of lines, compressed or not, for the sources jsonl and text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from allranks.data.base import BadSample, BlockRows
from allranks.data.sources import compressed
from allranks.data.sources.file import FileBytes, check_digest
from allranks.data.sources.files import FileScan, IndexBlock, OpenFile
from allranks.data.sources.lines import divide_into_blocks, line_spans
from allranks.digest import digest, show
from allranks.errors import DataError

_LENGTH_BITS = 28  # of a position: blocks up to 32 GB, lines up to 256 MB
_LONGEST = (1 << _LENGTH_BITS) - 1
_MARK = b"\xef\xbb\xbf"  # of UTF-8, at the beginning of files from Windows


@dataclass(frozen=True, slots=True)
class LineDecoding:
    """How a line is decoded: by ``decode(line)``, which raises ``refuses`` for a line that is not a ``noun``."""

    decode: Callable[[bytes], Any]
    refuses: type[ValueError]
    noun: str

    def gather_samples(
        self, blocks: Mapping[int, BlockRows], keys: NDArray[np.int64], positions: NDArray[np.int64]
    ) -> list[Any]:
        begins = positions >> _LENGTH_BITS
        lines = list(zip(keys.tolist(), begins.tolist(), (begins + (positions & _LONGEST)).tolist(), strict=True))
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

    def positions(self) -> NDArray[np.int64]:
        begins, ends = line_spans(self.data, counts_blank_lines=self.blanks)
        lengths = ends - begins
        if len(lengths) and lengths.max() > _LONGEST:
            longest = int(lengths.argmax())
            raise DataError(
                f"{self.path}: line {longest + 1} of the block at byte {self.begin:,} has {lengths[longest]:,} bytes; "
                f"the most is {_LONGEST:,}.",
                path=self.path,
            )
        return begins << _LENGTH_BITS | lengths

    def take(self, rows: NDArray[np.int64]) -> list[Any]:
        return self.gatherer.gather_samples({0: self}, np.zeros(len(rows), np.int64), self.positions()[rows])

    def decode_line(self, begin: int, end: int) -> Any:
        """Return the sample at these bytes of the block; a BadSample if they cannot be decoded."""
        try:
            return self.gatherer.decode(self.data[begin:end])
        except self.gatherer.refuses as error:
            row = int(np.searchsorted(self.positions(), begin << _LENGTH_BITS))
            where = f"{self.path}: line {row + 1} of the block at byte {self.begin:,}"
            return BadSample(f"{where} is no {self.gatherer.noun}: {error}")


@dataclass(frozen=True, slots=True)
class LineFile:
    """An open file of lines. With ``blanks``, empty lines are samples."""

    file: FileBytes
    blanks: bool
    decoding: LineDecoding

    def read_block(self, block: IndexBlock) -> LineRows:
        codec = compressed.codec_of(self.file.name)
        if codec:
            data, begin = compressed.read_lines(self.file, codec, block), compressed.block_begin(block)
        else:
            data, begin = self.file.read(block.begin, block.end - block.begin), block.begin
            check_digest(self.file.path, data, block.check, f"bytes {block.begin:,} to {block.end:,}")
        return LineRows(data, self.blanks, self.decoding, self.file.path, begin)


@dataclass(frozen=True, slots=True)
class LineFormat:
    """The format of a file of lines."""

    kind: str
    suffixes: tuple[str, ...]
    blanks: bool
    decoding: LineDecoding
    block_bytes: int

    @property
    def block_settings(self) -> tuple[str, ...]:
        return (str(self.block_bytes),)

    def is_quick(self, name: str) -> bool:
        return compressed.codec_of(name) is None

    def scan_file(self, file: FileBytes) -> FileScan:
        return scan_lines(file, min_block_bytes=self.block_bytes, counts_blank_lines=self.blanks)

    def open(self, file: FileBytes, stamp: str) -> OpenFile:  # noqa: ARG002  every block has its own check
        return LineFile(file, self.blanks, self.decoding)


def scan_lines(file: FileBytes, *, min_block_bytes: int, counts_blank_lines: bool) -> FileScan:
    """Divide a file of lines into blocks, and return them."""
    if codec := compressed.codec_of(file.name):
        return compressed.scan_frames(
            file, codec, min_block_bytes=min_block_bytes, counts_blank_lines=counts_blank_lines
        )
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
