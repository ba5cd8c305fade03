"""Read the headers of tar files: ustar, GNU long names and pax."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

HEADER = 512
_FILES = b"0\0" + b"7"
_LONG_NAME, _PAX = b"L", b"x"
MAX_HEADER_BYTES = 1 << 20
_MOST_DIGITS = 20


class NotATarError(ValueError):
    """Raised for bytes that are not a tar file. ``at`` is the position of these bytes."""

    def __init__(self, at: int, why: str) -> None:
        super().__init__(f"at byte {at:,}, {why}")


class TarMember(NamedTuple):
    """A file in a tar, at bytes ``begin`` (its first header) to ``end`` (after its padding), and the range of its
    content.
    """

    name: str
    begin: int
    content: int
    size: int
    end: int


def iterate_members(
    read: Callable[[int, int], bytes], nbytes: int, *, begin: int = 0, max_header_bytes: int = MAX_HEADER_BYTES
) -> Iterator[TarMember]:
    """Yield the files in a tar of ``nbytes`` bytes, from ``begin`` on; ``read(offset, count)`` returns its bytes.

    Folders and links are skipped. A tar may end without its two empty headers. Raises NotATarError, also for a long
    name or a pax header of more than ``max_header_bytes``.
    """
    at = begin
    name, size_of_pax = "", -1
    while at + HEADER <= nbytes:
        header = read(at, HEADER)
        kind = header[156:157]
        if not header[0] and not header.strip(b"\0"):
            return
        size = _member_size(header, at) if size_of_pax < 0 or kind in _LONG_NAME + _PAX else size_of_pax
        content, end = at + HEADER, at + HEADER + -(-size // HEADER) * HEADER
        if kind in (_LONG_NAME, _PAX) and size > max_header_bytes:
            raise NotATarError(
                at,
                f"a name or a pax header has {size:,} bytes: expected at most {max_header_bytes:,} (max_header_bytes)",
            )
        if content + size > nbytes:
            raise NotATarError(at, f"a member of {size:,} bytes would end behind the file's end at {nbytes:,}")
        if kind == _LONG_NAME:
            name = read(content, size).rstrip(b"\0").decode("utf-8", "surrogateescape")
        elif kind == _PAX:
            records = _pax_records(read(content, size), at)
            name = records[b"path"].decode("utf-8", "surrogateescape") if b"path" in records else name
            size_of_pax = _number(records[b"size"], 10, at) if b"size" in records else -1
        else:
            if kind in _FILES:
                yield TarMember(name or _member_name(header), begin, content, size, min(end, nbytes))
            name, size_of_pax, begin = "", -1, end
        at = end


def _member_size(header: bytes, at: int) -> int:
    checksum = _number(header[148:156], 8, at)
    is_binary = header[124] & 0x80  # of GNU, for what does not fit into octal digits
    size = int.from_bytes(header[125:136], "big") if is_binary else _number(header[124:136], 8, at)
    if checksum != sum(header) - sum(header[148:156]) + 8 * 32:  # the checksum's own place counts as blanks
        raise NotATarError(at, "there is no header of a member, or it is damaged: its checksum is wrong")
    return size


def _number(text: bytes, base: int, at: int) -> int:
    """Return a number of a header, without a sign. Raises NotATarError for other bytes."""
    digits = text.strip(b" \0") or b"0"
    if not digits.isdigit() or len(digits) > _MOST_DIGITS or (base == 8 and max(digits) > ord("7")):
        raise NotATarError(at, "there is no header of a member, or it is damaged: it has no number where one must be")
    return int(digits, base)


def _member_name(header: bytes) -> str:
    name = header[:100].partition(b"\0")[0]
    prefix = header[345:500].partition(b"\0")[0] if header[257:263] == b"ustar\0" else b""
    return (prefix + b"/" + name if prefix else name).decode("utf-8", "surrogateescape")


def _pax_records(data: bytes, at: int) -> dict[bytes, bytes]:
    """Return the records of a pax header by key; a record has the format ``length key=value``."""
    records = {}
    begin, last = 0, len(data.rstrip(b"\0"))
    while begin < last:
        blank = data.find(b" ", begin, begin + _MOST_DIGITS)
        end = begin + _number(data[begin:blank], 10, at) if blank > begin else begin
        key, equals, value = data[blank + 1 : end - 1].partition(b"=")
        if not equals or not begin < blank < end <= len(data):  # so every record ends behind its beginning
            raise NotATarError(at, "a pax header is damaged")
        records[key] = value
        begin = end
    return records
