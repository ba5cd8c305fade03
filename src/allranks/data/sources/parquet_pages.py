"""Find out from its page headers how much memory a column chunk of a Parquet file needs; a footer may tell anything.

A page header is a struct in Thrift's compact encoding (parquet.thrift in apache/parquet-format).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_DATA, _DICTIONARY, _DATA_V2 = 0, 2, 3
_DICTIONARY_CODES = (2, 8)  # PLAIN_DICTIONARY, RLE_DICTIONARY
_FRONT_CODES = (7,)  # DELTA_BYTE_ARRAY: a value may repeat the one before
_DEEPEST = 16
_OFFSET_BYTES = 4


@dataclass(frozen=True, slots=True)
class ChunkMemory:
    """The memory of a decoded column chunk: it needs at least ``certain`` bytes, and at most ``most``."""

    certain: int
    most: int


def chunk_memory(data: bytes | memoryview, *, num_values: int, value_bytes: int | None) -> ChunkMemory:
    """Return the memory that the pages of a column chunk need.

    Readers stop after ``num_values`` values. ``value_bytes`` is the size of a value in memory; None for values of
    varying size. Raises ValueError if the bytes are not pages.
    """
    at = certain = most = dictionary = seen = 0
    while at < len(data) and seen < num_values:
        try:
            header, at = _read_struct(data, at, 0)
            kind, unpacked, packed = header[1], header[2], header[3]
            if kind not in (_DATA, _DICTIONARY, _DATA_V2):  # readers leave other pages out
                at += max(packed, 0)
                continue
            values, code = (header[{_DATA: 5, _DICTIONARY: 7, _DATA_V2: 8}[kind]][number] for number in (1, 2))
            code = header[8][4] if kind == _DATA_V2 else code
        except (IndexError, KeyError, TypeError) as error:
            raise ValueError(f"there is no page header at byte {at:,} of a column") from error
        if min(unpacked, packed, values) < 0:
            raise ValueError(f"the page header before byte {at:,} of a column has sizes that cannot be")
        at += packed
        certain += unpacked
        if kind == _DICTIONARY:
            dictionary = unpacked
            continue
        seen += values
        certain += values * (value_bytes or _OFFSET_BYTES)
        if value_bytes is None and code in _DICTIONARY_CODES:
            most += values * dictionary
        elif value_bytes is None and code in _FRONT_CODES:
            most += values * unpacked
    return ChunkMemory(certain, certain + most)


def _read_struct(data: bytes | memoryview, at: int, depth: int) -> tuple[dict[int, Any], int]:
    """Return the integers and structs of a struct by field, and the position behind it."""
    if depth > _DEEPEST:
        raise IndexError
    found: dict[int, Any] = {}
    field = 0
    while byte := data[at]:
        at += 1
        if byte >> 4:
            field += byte >> 4
        else:
            field, at = _read_number(data, at)
        found[field], at = _read_value(data, at, byte & 15, depth)
    return found, at + 1


def _read_value(data: bytes | memoryview, at: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind in (1, 2):  # a bool, which is in the field's own byte
        return kind == 1, at
    if kind in (4, 5, 6):
        return _read_number(data, at)
    if kind == 8:
        size, at = _read_varint(data, at)
        return None, at + size
    if kind == 12:
        return _read_struct(data, at, depth + 1)
    if kind in (3, 7):
        return None, at + (1 if kind == 3 else 8)
    raise IndexError  # a page header has no other


def _read_number(data: bytes | memoryview, at: int) -> tuple[int, int]:
    number, at = _read_varint(data, at)
    return number >> 1 ^ -(number & 1), at


def _read_varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 127) << shift
        at += 1
        if byte < 128:
            return number, at
        shift += 7
        if shift > 63:
            raise IndexError
