"""Read the headers of tar files: ustar, GNU long names and pax."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

HEADER = 512
_FILES = b"0\0" + b"7"
_LONG_NAME, _PAX = b"L", b"x"


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


def iterate_members(read: Callable[[int, int], bytes], nbytes: int) -> Iterator[TarMember]:
    """Yield the files in a tar of ``nbytes`` bytes; ``read(offset, count)`` returns bytes of the tar.

    Folders and links are skipped. A tar may end without its two empty headers. Raises NotATarError.
    """
    at = begin = 0
    name, size_of_pax = "", -1
    while at + HEADER <= nbytes:
        header = read(at, HEADER)
        kind = header[156:157]
        if not header[0] and not header.strip(b"\0"):
            return
        size = _member_size(header, at) if size_of_pax < 0 or kind in _LONG_NAME + _PAX else size_of_pax
        content, end = at + HEADER, at + HEADER + -(-size // HEADER) * HEADER
        if content + size > nbytes:
            raise NotATarError(at, f"a member of {size:,} bytes would end behind the file's end at {nbytes:,}")
        if kind == _LONG_NAME:
            name = read(content, size).rstrip(b"\0").decode("utf-8", "surrogateescape")
        elif kind == _PAX:
            said = _pax_records(read(content, size), at)
            name, size_of_pax = said.get("path", name), int(said.get("size", -1))
        else:
            if kind in _FILES:
                yield TarMember(name or _member_name(header), begin, content, size, min(end, nbytes))
            name, size_of_pax, begin = "", -1, end
        at = end


def _member_size(header: bytes, at: int) -> int:
    try:
        told = int(header[148:156].strip(b" \0") or b"0", 8)
        if header[124] & 0x80:  # GNU, for what does not fit into octal digits
            size = int.from_bytes(header[125:136], "big")
        else:
            size = int(header[124:136].strip(b" \0") or b"0", 8)
    except ValueError:
        raise NotATarError(at, "there is no header of a member") from None
    if told != sum(header) - sum(header[148:156]) + 8 * 32:  # the checksum's own place counts as blanks
        raise NotATarError(at, "there is no header of a member, or it is damaged: its checksum is wrong")
    return size


def _member_name(header: bytes) -> str:
    name = header[:100].partition(b"\0")[0]
    prefix = header[345:500].partition(b"\0")[0] if header[257:263] == b"ustar\0" else b""
    return (prefix + b"/" + name if prefix else name).decode("utf-8", "surrogateescape")


def _pax_records(data: bytes, at: int) -> dict[str, str]:
    """Return the records of a pax header by key; a record has the format ``length key=value``."""
    said = {}
    while data.strip(b"\0"):
        try:
            length = int(data.partition(b" ")[0])
            key, _, value = data[:length].partition(b" ")[2].partition(b"=")
        except ValueError:
            raise NotATarError(at, "a pax header is damaged") from None
        said[key.decode()] = value[:-1].decode("utf-8", "surrogateescape")
        if length < 5:
            raise NotATarError(at, "a pax header is damaged")
        data = data[length:]
    return said
