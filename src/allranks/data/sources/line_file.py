"""Files of lines, compressed or not: what jsonl and text have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xxhash

from allranks.data.base import Rows
from allranks.data.sources import compressed
from allranks.data.sources.file import FileBytes, changed
from allranks.data.sources.files import Block, Scan
from allranks.data.sources.lines import cut, spans
from allranks.digest import digest, show

_MARK = b"\xef\xbb\xbf"  # of UTF-8, at the beginning of files from Windows


@dataclass(frozen=True, slots=True)
class Lines:
    """A block's lines: line i is the bytes from ``begins[i]`` to ``ends[i]`` of ``data``, without its line end."""

    data: bytes
    begins: Sequence[int]
    ends: Sequence[int]
    path: str
    at: str  # where in the file the block is, for a person

    def where(self, row: int) -> str:
        """Say where a line is."""
        return f"{self.path}: line {row + 1} of the block at {self.at}"


@dataclass(frozen=True, slots=True)
class LineFile:
    """An open file of lines; ``make`` gives samples to the lines of a block."""

    file: FileBytes
    blanks: bool
    make: Callable[[Lines], Rows]

    def rows(self, block: Block) -> Rows:
        codec = compressed.codec_of(self.file.name)
        if codec:
            data, at = compressed.read(self.file, codec, block), f"frame {block.begin // 2:,}"
        else:
            data, at = _plain(self.file, block), f"byte {block.begin:,}"
        begins, ends = spans(data, blanks=self.blanks)
        return self.make(Lines(data, begins.tolist(), ends.tolist(), self.file.path, at))


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


def _plain(file: FileBytes, block: Block) -> bytes:
    data = file.read(block.begin, block.end - block.begin)
    found = xxhash.xxh3_64_intdigest(data)
    if found != block.check:
        where = f"in bytes {block.begin:,} to {block.end:,}"
        raise changed(file.path, f"the digest {block.check:016x} {where}", f"{found:016x}")
    return data


def decoded(lines: Lines, rows: Sequence[int], decode: Callable[[bytes], Any]) -> list[Any]:
    """Return these lines, decoded."""
    data, begins, ends = lines.data, lines.begins, lines.ends
    return [decode(data[begins[row] : ends[row]]) for row in rows]
