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

from allranks.data.index import SourceFile
from allranks.data.sources import detect
from allranks.data.sources.file import FileBytes, check_digest, wrong_index_error
from allranks.data.sources.files import FileBlocks, FileScan, IndexBlock
from allranks.data.sources.limits import LONGEST_LINE, check_block
from allranks.data.sources.lines import count_lines
from allranks.digest import digest, show
from allranks.errors import DataError

_CODECS = {".gz": "gzip", ".zst": "zstd"}
SUFFIXES = ("", *_CODECS)
_PIECE = 1 << 18
_AT_ONCE = 4 << 20  # bytes that are decompressed at a time, about
_INSIDE, _GOES_ON = 1, 2
_LARGER = 4  # than blocks of plain lines, for what is read behind a block's end
_BEHIND = 1 << 15  # bytes that are read with a block for its last line; nearly always enough


def codec_of(name: str) -> str | None:
    """Return the name of a file's compression, from its file name; None for an uncompressed file."""
    return next((codec for suffix, codec in _CODECS.items() if name.endswith(suffix)), None)


def scan_frames(
    file: FileBytes, codec: str, *, min_block_bytes: int, counts_blank_lines: bool, max_block_bytes: int | None
) -> FileScan:
    """Divide a file into blocks of frames.

    A block has at least four times ``min_block_bytes`` bytes when decompressed. Raises DataError if it has more than
    its limit.
    """
    blocks: list[_BlockCounter] = []
    owner = None  # of the line that is open
    for begin, at, piece in _decompress(file, codec, file.read_chunks()):
        if begin is not None and (not blocks or blocks[-1].nbytes >= _LARGER * min_block_bytes):
            inside = owner is not None and owner.has_open_line
            blocks.append(_BlockCounter(begin, inside, counts_blank_lines))
            owner = owner if inside else blocks[-1]
        assert owner is not None
        blocks[-1].add_piece(piece)
        _check_block(file, blocks[-1].begin, at, blocks[-1].nbytes, max_block_bytes)
        stop = len(piece) if owner is blocks[-1] else piece.find(b"\n") + 1 or len(piece)
        owner.count_lines(piece[:stop])
        if owner is not blocks[-1] and not owner.has_open_line:
            owner = blocks[-1]
            owner.count_lines(piece[stop:])
    if owner is not None:
        owner.count_last_line()
    last = _BlockCounter(file.nbytes, False, counts_blank_lines)
    found = tuple(
        (
            4 * block.begin + _INSIDE * block.inside + _GOES_ON * after.inside,
            after.begin,
            block.rows,
            block.content_digest,
        )
        for block, after in pairwise([*blocks, last])
    )
    return FileScan(found, show(digest(*(str(block) for block in found)))[:16])


def covers(file: SourceFile, blocks: FileBlocks) -> bool:
    """Return whether blocks can be all blocks of a file: see ``FileFormat.covers``."""
    begin, inside, goes_on = blocks.begin >> 2, blocks.begin & _INSIDE, (blocks.begin & _GOES_ON) >> 1
    bounded = begin[0] == 0 and blocks.end[-1] == file.nbytes and not inside[0] and not goes_on[-1]
    joined = (begin[1:] == blocks.end[:-1]).all() and (inside[1:] == goes_on[:-1]).all()
    return bool(bounded and joined and (begin < blocks.end).all())


def read_lines(file: FileBytes, codec: str, block: IndexBlock, max_block_bytes: int | None) -> bytes:
    """Read and decompress the lines of a block.

    Raises DataChanged if their digest differs from the index, and DataError if they have more bytes than their limit.
    """
    begin, end = block_begin(block), block.end
    stop = min(end + _BEHIND, file.nbytes) if block.begin & _GOES_ON else end
    packed = file.read(begin, stop - begin)
    pieces, nbytes = [], 0
    for _, at, piece in _decompress(file, codec, [packed[: end - begin]], begin):
        pieces.append(piece)
        nbytes += len(piece)
        _check_block(file, begin, at, nbytes, max_block_bytes)
    data = b"".join(pieces)
    del pieces
    where = f"bytes {begin:,} to {end:,}, unpacked"
    check_digest(file.path, data, block.check, where)
    if data.endswith(b"\n") == bool(block.begin & _GOES_ON) and end != file.nbytes:
        raise wrong_index_error(file.path, f"in {where}, the end of a line, or none, as in the index", "the other")
    if block.begin & _INSIDE:
        data = data[data.find(b"\n") + 1 :]
    if not block.begin & _GOES_ON:
        return data
    behind: Iterable[bytes | bytearray] = chain([packed[end - begin :]], file.read_chunks(stop, size=_PIECE))
    return data + b"".join(_until_newline(piece for _, _, piece in _decompress(file, codec, behind, end)))


def unpack_file(file: FileBytes, codec: str, max_block_bytes: int | None) -> FileBytes:
    """Return a compressed file, unpacked in memory. Raises DataError if it has more bytes than its limit."""
    pieces, nbytes = [], 0
    for _, _, piece in _decompress(file, codec, file.read_chunks()):
        pieces.append(piece)
        nbytes += len(piece)
        check_block(file.path, "the file", nbytes, file.nbytes, max_block_bytes)
    return file.with_content(b"".join(pieces))


def block_begin(block: IndexBlock) -> int:
    """Return the byte of the file at which a block begins."""
    return block.begin // 4


def _check_block(file: FileBytes, begin: int, end: int, nbytes: int, max_block_bytes: int | None) -> None:
    check_block(file.path, f"the block at byte {begin:,}", nbytes, end - begin, max_block_bytes)


def _until_newline(pieces: Iterable[bytes]) -> Iterator[bytes]:
    length = 0
    for piece in pieces:
        length += len(piece)
        if length > LONGEST_LINE + _AT_ONCE:
            raise ValueError(f"a line has more than {LONGEST_LINE:,} bytes")
        stop = piece.find(b"\n") + 1
        yield piece[:stop] if stop else piece
        if stop:
            return


def _decompress(
    file: FileBytes, codec: str, chunks: Iterable[bytes | bytearray], at: int = 0
) -> Iterator[tuple[int | None, int, bytes]]:
    """Yield the decompressed bytes, piece by piece, as (begin, position, bytes).

    ``begin`` is that of the frame in the file for the first piece of a frame, and None for other pieces. ``position``
    is how far the file has been read.
    """
    library: Any = detect.import_source_module(codec)
    unpacker = None
    begin: int | None = at
    for data in _small_pieces(chunks):
        at += len(data)
        more = False
        while data or more:
            if unpacker is None and not data.strip(b"\0"):  # tapes and some writers fill up with zeros
                break
            if unpacker is None:
                begin, unpacker = at - len(data), library.make_decompressor()
            try:
                piece = unpacker.decompress(data, _AT_ONCE)
            except library.ERRORS as error:
                raise _damaged_error(file, codec, at - len(data), str(error)) from error
            yield begin, at, piece
            begin, data = None, unpacker.unused_data if unpacker.eof else unpacker.unconsumed_tail
            more = len(piece) >= _AT_ONCE and not unpacker.eof  # the decompressor may hold the rest of the output
            unpacker = None if unpacker.eof else unpacker
    if unpacker is not None:
        raise _damaged_error(file, codec, at, "it ends inside a frame")


def _small_pieces(chunks: Iterable[bytes | bytearray]) -> Iterator[bytes]:
    """Divide ``chunks`` into small pieces.

    The bytes after a frame are copied for each frame, so pieces must be small.
    """
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
class _BlockCounter:
    """A block of a compressed file while its lines are counted."""

    begin: int
    inside: bool  # of a line
    blanks: bool
    nbytes: int = 0
    rows: int = 0
    _hash: Any = field(default_factory=xxhash.xxh3_64)
    _rest: bytes = b""  # at most two bytes of the open line, which tell whether it is empty
    _length: int = 0

    @property
    def content_digest(self) -> int:
        return int(self._hash.intdigest())

    @property
    def has_open_line(self) -> bool:
        """Whether the block ends inside a line."""
        return bool(self._rest)

    def add_piece(self, piece: bytes) -> None:
        self._hash.update(piece)
        self.nbytes += len(piece)

    def count_lines(self, piece: bytes) -> None:
        stop = piece.rfind(b"\n") + 1
        if stop:
            self.rows += count_lines(self._rest + piece[:stop], counts_blank_lines=self.blanks)
            self._rest, self._length = b"", 0
        self._length += len(piece) - stop
        if self._length > LONGEST_LINE:
            raise ValueError(f"a line has more than {LONGEST_LINE:,} bytes, at about byte {self.begin:,}")
        self._rest += piece[stop : stop + 2 - len(self._rest)]

    def count_last_line(self) -> None:
        """Count the last line of a file, which may have no newline."""
        if self._rest:
            self.rows += count_lines(self._rest, counts_blank_lines=self.blanks)
