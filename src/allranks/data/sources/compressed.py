"""Read lines of compressed files, in blocks of complete frames.

A line belongs to the block in which it begins. The reader of a block decompresses past the block's end until the line
ends, and skips the rest of a line that began before the block. So a file of many frames (``pzstd``, ``bgzip``, seekable
zstd, or ``cat`` of many) is read nearly as finely as an uncompressed file. A file of a single frame, as ``gzip`` and
``zstd`` write it, is one block. Each rank that needs a part of it decompresses all of it in memory, and it is shuffled
only within itself.

In the index:

- ``begin`` is four times the byte at which the first frame begins, plus 1 if that is inside a line, plus 2 if the last
  line continues after the block.
- ``end`` is the byte after the last frame.
- ``check`` is of the decompressed bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Any

import xxhash

from allranks.data.sources import detect
from allranks.data.sources.file import FileBytes, check
from allranks.data.sources.files import Block, Scan
from allranks.data.sources.lines import count
from allranks.digest import digest, show
from allranks.errors import DataError

_CODECS = {".gz": "gzip", ".zst": "zstd"}
SUFFIXES = ("", *_CODECS)
_PIECE = 1 << 18
_INSIDE, _GOES_ON = 1, 2
_LARGER = 4  # than blocks of plain lines, for what is read behind a block's end
_BEHIND = 1 << 15  # bytes that are read with a block for its last line; nearly always enough


def codec_of(name: str) -> str | None:
    """Return the name of a file's compression, from its file name; None for an uncompressed file."""
    return next((codec for suffix, codec in _CODECS.items() if name.endswith(suffix)), None)


def scan(file: FileBytes, codec: str, *, size: int, blanks: bool) -> Scan:
    """Divide a file into blocks of frames. A block has at least four times ``size`` bytes when decompressed."""
    blocks: list[_Block] = []
    owner = None  # of the line that is open
    for begin, piece in _unpacked(file, codec, file.chunks()):
        if begin is not None and (not blocks or blocks[-1].nbytes >= _LARGER * size):
            inside = owner is not None and owner.open
            blocks.append(_Block(begin, inside, blanks))
            owner = owner if inside else blocks[-1]
        assert owner is not None
        blocks[-1].take(piece)
        stop = len(piece) if owner is blocks[-1] else piece.find(b"\n") + 1 or len(piece)
        owner.lines(piece[:stop])
        if owner is not blocks[-1] and not owner.open:
            owner = blocks[-1]
            owner.lines(piece[stop:])
    if owner is not None:
        owner.close()
    last = _Block(file.nbytes, False, blanks)
    found = tuple(
        (4 * block.begin + _INSIDE * block.inside + _GOES_ON * after.inside, after.begin, block.rows, block.check)
        for block, after in pairwise([*blocks, last])
    )
    return Scan(found, show(digest(*(str(block) for block in found)))[:16])


def read(file: FileBytes, codec: str, block: Block) -> bytes:
    """Return the lines of a block, decompressed. Raises DataChanged if their check differs from the index."""
    begin, end = begin_of(block), block.end
    stop = min(end + _BEHIND, file.nbytes) if block.begin & _GOES_ON else end
    packed = file.read(begin, stop - begin)
    data = b"".join(piece for _, piece in _unpacked(file, codec, [packed[: end - begin]], begin))
    check(file.path, data, block.check, f"bytes {begin:,} to {end:,}, unpacked")
    if block.begin & _INSIDE:
        data = data[data.find(b"\n") + 1 :]
    if not block.begin & _GOES_ON:
        return data
    behind: Iterable[bytes | bytearray] = chain([packed[end - begin :]], file.chunks(stop, size=_PIECE))
    return data + b"".join(_until_newline(piece for _, piece in _unpacked(file, codec, behind, end)))


def begin_of(block: Block) -> int:
    """Return the byte of the file at which a block begins."""
    return block.begin // 4


def _until_newline(pieces: Iterable[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        stop = piece.find(b"\n") + 1
        yield piece[:stop] if stop else piece
        if stop:
            return


def _unpacked(
    file: FileBytes, codec: str, chunks: Iterable[bytes | bytearray], at: int = 0
) -> Iterator[tuple[int | None, bytes]]:
    """Yield the decompressed bytes, piece by piece, as (position, bytes).

    The position is that of the frame in the file for the first piece of a frame, and None for other pieces.
    """
    library: Any = detect.module(codec)
    unpacker = None
    begin: int | None = at
    for data in _slices(chunks):
        at += len(data)
        while data:
            if unpacker is None and not data.strip(b"\0"):  # tapes and some writers fill up with zeros
                break
            if unpacker is None:
                begin, unpacker = at - len(data), library.unpacker()
            try:
                piece = unpacker.decompress(data)
            except library.ERRORS as error:
                raise _damaged_error(file, codec, at - len(data), str(error)) from error
            yield begin, piece
            begin, data = None, unpacker.unused_data if unpacker.eof else b""
            unpacker = None if unpacker.eof else unpacker
    if unpacker is not None:
        raise _damaged_error(file, codec, at, "it ends inside a frame")


def _slices(chunks: Iterable[bytes | bytearray]) -> Iterator[bytes]:
    """Yield the bytes of ``chunks`` in small pieces, because the bytes after a frame are copied for each frame."""
    for chunk in chunks:
        for low in range(0, len(chunk), _PIECE):
            yield bytes(chunk[low : low + _PIECE])


def _damaged_error(file: FileBytes, codec: str, at: int, why: str) -> DataError:
    return DataError(
        f"{file.path} cannot be unpacked ({codec}) at about byte {at:,} of {file.nbytes:,}: {why}.",
        path=file.path,
        remedy="Fetch or write the file again.",
    )


@dataclass(slots=True)
class _Block:
    """A block of a compressed file while its lines are counted."""

    begin: int
    inside: bool  # of a line
    blanks: bool
    nbytes: int = 0
    rows: int = 0
    _hash: Any = field(default_factory=xxhash.xxh3_64)
    _rest: bytes = b""

    @property
    def check(self) -> int:
        return int(self._hash.intdigest())

    @property
    def open(self) -> bool:
        """Whether a line has begun and not ended."""
        return bool(self._rest)

    def take(self, piece: bytes) -> None:
        self._hash.update(piece)
        self.nbytes += len(piece)

    def lines(self, piece: bytes) -> None:
        data = self._rest + piece
        stop = data.rfind(b"\n") + 1
        self.rows += count(data[:stop], blanks=self.blanks) if stop else 0
        self._rest = data[stop:]

    def close(self) -> None:
        """Count the last line of a file, which may have no newline."""
        if self._rest:
            self.rows += count(self._rest, blanks=self.blanks)
