"""Limit the memory that a block of a file may need, because a small file can ask for any amount."""

from __future__ import annotations

from typing import Any

from allranks.data.arguments import check_number
from allranks.errors import DataError

LONGEST_LINE = (1 << 28) - 1
_MOST_BYTES = 256 << 20
_MOST_RATIO = 64
_ROW_BYTES = 16  # that a row needs at least, for its place in the order


def check_limit(max_block_bytes: Any) -> int | None:
    """Return the argument ``max_block_bytes`` of a source. Raises DataError for a value that is no limit."""
    if max_block_bytes is None:
        return None
    return check_number("max_block_bytes", max_block_bytes, "the most bytes of a block in memory", least=1)


def limit_of_block(max_block_bytes: int | None, packed_bytes: int) -> int:
    """Return how many bytes a block of ``packed_bytes`` bytes in its file may need in memory.

    ``max_block_bytes`` is what the user gave. The default is 256 MiB, or 64 times the bytes in the file if that is
    more.
    """
    return max_block_bytes or max(_MOST_BYTES, _MOST_RATIO * packed_bytes)


def check_block(path: str, where: str, nbytes: int, packed_bytes: int, max_block_bytes: int | None) -> None:
    """Raise DataError if a block needs more bytes in memory than its limit. ``where`` says which block."""
    limit = limit_of_block(max_block_bytes, packed_bytes)
    if nbytes > limit:
        raise DataError(
            f"{path}: {where} needs {nbytes:,} bytes of memory or more, unpacked from {packed_bytes:,}: expected at "
            f"most {limit:,}.",
            path=path,
            remedy="If the file is as it should be, pass max_block_bytes=... with a higher limit, or write the file "
            "again in smaller parts (frames, row groups, record batches).",
        )


def check_rows(path: str, where: str, rows: int, packed_bytes: int, max_block_bytes: int | None) -> None:
    """Raise DataError if a block counts more rows than its limit has room for."""
    check_block(path, f"{where} with {rows:,} rows", rows * _ROW_BYTES, packed_bytes, max_block_bytes)
