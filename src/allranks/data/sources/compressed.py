"""Lines of compressed files. A block is of whole *frames* (members of gzip), which can be unpacked by themselves.

A line belongs to the block in which it begins: the block's reader unpacks on behind its end until the line ends, and
leaves out the rest of a line from before. So a file of many frames (``pzstd``, ``bgzip``, seekable zstd, or ``cat`` of
many) is read as finely as one that is not compressed. A file of a single frame, which is what ``gzip`` and ``zstd``
write, is one block: it is unpacked in memory, whole, by each rank that has a part of it.

In the index, ``begin`` is twice the frame's first byte in the file, plus one if the block begins inside a line; ``end``
is the byte behind the last frame; ``check`` is of the unpacked bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import xxhash

from allranks.data.sources import detect
from allranks.data.sources.file import FileBytes, changed
from allranks.data.sources.files import Block, Scan
from allranks.data.sources.lines import count
from allranks.digest import digest, show
from allranks.errors import DataError

_CODECS = {".gz": "gzip", ".zst": "zstd"}
SUFFIXES = ("", *_CODECS)
_PIECE = 1 << 18


def codec_of(name: str) -> str | None:
    """Return how a file is compressed, by its name."""
    return next((codec for suffix, codec in _CODECS.items() if name.endswith(suffix)), None)


def scan(file: FileBytes, codec: str, *, size: int, blanks: bool) -> Scan:
    """Cut a file into blocks of frames that have ``size`` bytes or more when unpacked."""
    blocks: list[_Block] = []
    owner = None  # of the line that is open
    for begin, piece in _unpacked(file, codec, file.chunks()):
        if begin is not None and (not blocks or blocks[-1].nbytes >= size):
            inside = owner is not None and owner.open
            blocks.append(_Block(2 * begin + inside, blanks))
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
    ends = [*(block.begin // 2 for block in blocks[1:]), file.nbytes]
    found = tuple((each.begin, end, each.rows, each.check) for each, end in zip(blocks, ends, strict=False))
    return Scan(found, show(digest(*(str(block) for block in found)))[:16])


def read(file: FileBytes, codec: str, block: Block) -> bytes:
    """Return the lines of a block, unpacked. Raises DataChanged where the check is another one."""
    begin, inside = divmod(block.begin, 2)
    pieces = [piece for _, piece in _unpacked(file, codec, [file.read(begin, block.end - begin)], begin)]
    data = b"".join(pieces)
    if xxhash.xxh3_64_intdigest(data) != block.check:
        raise changed(file.path, f"other lines in bytes {begin:,} to {block.end:,}", "these")
    if inside:
        data = data[data.find(b"\n") + 1 :]
    if data.endswith(b"\n") or block.end == file.nbytes:
        return data
    return data + b"".join(_until_newline(_unpacked(file, codec, file.chunks(block.end, size=_PIECE), block.end)))


def _until_newline(unpacked: Iterable[tuple[int | None, bytes]]) -> Iterator[bytes]:
    for _, piece in unpacked:
        stop = piece.find(b"\n") + 1
        yield piece[:stop] if stop else piece
        if stop:
            return


def _unpacked(
    file: FileBytes, codec: str, chunks: Iterable[bytes | bytearray], at: int = 0
) -> Iterator[tuple[int | None, bytes]]:
    """Yield what is unpacked, piece by piece; with the first piece of a frame, where that begins in the file."""
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
                raise _damaged(file, codec, at - len(data), str(error)) from error
            yield begin, piece
            begin, data = None, unpacker.unused_data if unpacker.eof else b""
            unpacker = None if unpacker.eof else unpacker
    if unpacker is not None:
        raise _damaged(file, codec, at, "it ends inside a frame")


def _slices(chunks: Iterable[bytes | bytearray]) -> Iterator[bytes]:
    """Yield the same bytes in small pieces: what follows a frame is copied, for each frame in a piece."""
    for chunk in chunks:
        for low in range(0, len(chunk), _PIECE):
            yield bytes(chunk[low : low + _PIECE])


def _damaged(file: FileBytes, codec: str, at: int, why: str) -> DataError:
    return DataError(
        f"{file.path} cannot be unpacked ({codec}) at about byte {at:,} of {file.nbytes:,}: {why}.",
        path=file.path,
        remedy="Fetch or write the file again.",
    )


@dataclass(slots=True)
class _Block:
    """A block while its lines are counted."""

    begin: int
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
        """Count the last line of a file, which need not end."""
        if self._rest:
            self.rows += count(self._rest, blanks=self.blanks)
