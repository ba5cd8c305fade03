"""Files of lines, compressed or not: what jsonl and text have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allranks.data.base import Bad, Rows
from allranks.data.sources import compressed
from allranks.data.sources.file import FileBytes, check
from allranks.data.sources.files import Block, OpenFile, Scan
from allranks.data.sources.lines import cut, spans
from allranks.digest import digest, show

_MARK = b"\xef\xbb\xbf"  # of UTF-8, at the beginning of files from Windows


@dataclass(frozen=True, slots=True)
class Lines:
    """A block's lines: line i is the bytes from ``begins[i]`` to ``ends[i]`` of ``data``, without its line end."""

    data: bytes
    begins: NDArray[np.int64]
    ends: NDArray[np.int64]
    path: str
    begin: int  # of the block, in the file

    def where(self, row: int) -> str:
        """Say where a line is."""
        return f"{self.path}: line {row + 1} of the block at byte {self.begin:,}"


@dataclass(frozen=True, slots=True)
class Decoding:
    """What makes a sample of a line: ``decode``, which raises ``refuses`` for what is no ``noun``."""

    decode: Callable[[bytes], Any]
    refuses: type[ValueError]
    noun: str


@dataclass(frozen=True, slots=True)
class LineRows:
    """Samples of a block, decoded when they are taken."""

    lines: Lines
    decoding: Decoding

    def take(self, rows: NDArray[np.int64]) -> list[Any]:
        try:
            return _decoded(self.lines, rows, self.decoding.decode)
        except self.decoding.refuses:
            return [self._one(row) for row in rows.tolist()]

    @staticmethod
    def gather(blocks: Mapping[int, LineRows], pieces: NDArray[np.int64], rows: NDArray[np.int64]) -> list[Any]:
        decoding = next(iter(blocks.values())).decoding
        try:
            return _gathered({piece: block.lines for piece, block in blocks.items()}, pieces, rows, decoding.decode)
        except decoding.refuses:
            return [blocks[piece]._one(row) for piece, row in zip(pieces.tolist(), rows.tolist(), strict=True)]

    def _one(self, row: int) -> Any:
        try:
            return _decoded(self.lines, np.array([row]), self.decoding.decode)[0]
        except self.decoding.refuses as error:
            return Bad(f"{self.lines.where(row)} is no {self.decoding.noun}: {error}")


@dataclass(frozen=True, slots=True)
class LineFile:
    """An open file of lines, of which empty ones are samples if ``blanks``."""

    file: FileBytes
    blanks: bool
    decoding: Decoding

    def rows(self, block: Block) -> Rows:
        codec = compressed.codec_of(self.file.name)
        if codec:
            data, begin = compressed.read(self.file, codec, block), compressed.begin_of(block)
        else:
            data, begin = self.file.read(block.begin, block.end - block.begin), block.begin
            check(self.file.path, data, block.check, f"bytes {block.begin:,} to {block.end:,}")
        begins, ends = spans(data, blanks=self.blanks)
        return LineRows(Lines(data, begins, ends, self.file.path, begin), self.decoding)


@dataclass(frozen=True, slots=True)
class LineFormat:
    """The format of files of lines."""

    kind: str
    suffixes: tuple[str, ...]
    blanks: bool
    decoding: Decoding
    block_bytes: int

    @property
    def words(self) -> tuple[str, ...]:
        return (str(self.block_bytes),)

    def is_quick(self, name: str) -> bool:
        return compressed.codec_of(name) is None

    def scan(self, file: FileBytes) -> Scan:
        return scan(file, size=self.block_bytes, blanks=self.blanks)

    def open(self, file: FileBytes, stamp: str) -> OpenFile:  # noqa: ARG002  every block has its own check
        return LineFile(file, self.blanks, self.decoding)


def scan(file: FileBytes, *, size: int, blanks: bool) -> Scan:
    """Cut a file of lines into blocks."""
    if codec := compressed.codec_of(file.name):
        return compressed.scan(file, codec, size=size, blanks=blanks)
    begin = len(_MARK) if file.nbytes >= len(_MARK) and file.read(0, len(_MARK)) == _MARK else 0
    found = tuple(cut(file.chunks(begin), size=size, blanks=blanks, begin=begin))
    checks = np.array([block.check for block in found], "<u8")
    return Scan(
        tuple((block.begin, block.end, block.rows, block.check) for block in found),
        show(digest(str(file.nbytes), checks.tobytes()))[:16],
    )


def _decoded(lines: Lines, rows: NDArray[np.int64], decode: Callable[[bytes], Any]) -> list[Any]:
    """Return these lines, decoded."""
    data, begins, ends = lines.data, lines.begins[rows].tolist(), lines.ends[rows].tolist()
    return [decode(data[begin:end]) for begin, end in zip(begins, ends, strict=True)]


def _gathered(
    blocks: Mapping[int, Lines], pieces: NDArray[np.int64], rows: NDArray[np.int64], decode: Callable[[bytes], Any]
) -> list[Any]:
    """Return lines of several blocks, decoded.

    Where a line is, is looked up for all at once: of Python's numbers, each would be a cache miss of its own.
    """
    base, total = np.zeros(max(blocks) + 1, np.int64), 0
    for piece, lines in blocks.items():
        base[piece] = total
        total += len(lines.begins)
    places = base[pieces] + rows
    begins = np.concatenate([lines.begins for lines in blocks.values()])[places].tolist()
    ends = np.concatenate([lines.ends for lines in blocks.values()])[places].tolist()
    data = {piece: lines.data for piece, lines in blocks.items()}
    return [decode(data[piece][begin:end]) for piece, begin, end in zip(pieces.tolist(), begins, ends, strict=True)]
