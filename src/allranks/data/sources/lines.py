"""Divide a file of lines into blocks, and find the lines of a block."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import xxhash
from numpy.typing import NDArray

from allranks.data.sources.limits import LONGEST_LINE

BLOCK_BYTES = 1 << 16
_NEWLINE, _RETURN, _MINUS = 10, 13, 45


@dataclass(frozen=True, slots=True)
class LineBlock:
    """A block of complete lines: the bytes from ``begin`` to ``end``, their number of samples, and their XXH3-64."""

    begin: int
    end: int
    rows: int
    check: int


def divide_into_blocks(
    chunks: Iterable[bytes | bytearray], *, min_block_bytes: int, counts_blank_lines: bool, begin: int = 0
) -> Iterator[LineBlock]:
    """Divide consecutive bytes of a file, whose first is byte ``begin``, into blocks of at least ``min_block_bytes``
    bytes.

    A block ends with the first line that reaches ``min_block_bytes``; the last block ends with the bytes. The sizes of
    the chunks do not matter. With ``counts_blank_lines``, empty lines count as samples. A chunk may be changed after
    the next one was requested.
    """
    started: list[bytes] = []
    held = 0
    for chunk in chunks:
        at = 0
        if started:
            stop = chunk.find(b"\n", max(0, min_block_bytes - held - 1)) + 1
            if not stop:
                started.append(bytes(chunk))
                held += len(chunk)
                if held > min_block_bytes + LONGEST_LINE:
                    raise ValueError(f"a line has more than {LONGEST_LINE:,} bytes, at about byte {begin:,}")
                continue
            started.append(bytes(chunk[:stop]))
            yield _line_block(b"".join(started), begin, counts_blank_lines)
            begin, at, held = begin + held + stop, stop, 0
            started.clear()
        view = memoryview(chunk)
        while (stop := chunk.find(b"\n", at + min_block_bytes - 1) + 1) > 0:
            yield _line_block(view[at:stop], begin, counts_blank_lines)
            begin, at = begin + stop - at, stop
        if at < len(chunk):
            started.append(bytes(view[at:]))
            held = len(chunk) - at
    if started:
        yield _line_block(b"".join(started), begin, counts_blank_lines)


def _line_block(data: bytes | memoryview, begin: int, blanks: bool) -> LineBlock:
    return LineBlock(
        begin, begin + len(data), count_lines(data, counts_blank_lines=blanks), xxhash.xxh3_64_intdigest(data)
    )


def count_lines(data: bytes | memoryview, *, counts_blank_lines: bool) -> int:
    """Return the number of lines in the bytes; without ``counts_blank_lines``, only of lines that are not empty."""
    if isinstance(data, bytes) and data.find(b"\n", 0, -1) < 0 and len(data) > 2:
        return 1  # a long line needs no more memory
    newline = np.frombuffer(data, np.uint8) == _NEWLINE
    if not counts_blank_lines and _may_have_blanks(newline):
        return len(line_spans(data, counts_blank_lines=False)[0])
    return int(np.count_nonzero(newline)) + (not newline[-1])


def may_have_long_integers(data: bytes) -> bool:
    """Return whether the bytes have 20 digits in a row, or 19 behind a minus: else all their integers fit 64 bits."""
    letters = np.frombuffer(data, np.uint8)
    fifth = _is_digit(letters[::5])  # of 19 digits in a row, three are at multiples of 5
    if not (fifth[2:] & fifth[1:-1] & fifth[:-2]).any():
        return False
    runs = _is_digit(letters)
    for step in (1, 2, 4, 8, 3):  # after the last step: whether 19 digits begin here
        runs = runs[step:] & runs[:-step]
    begins = np.flatnonzero(runs)
    return bool((np.diff(begins) == 1).any() or (letters[begins[begins > 0] - 1] == _MINUS).any())


def _is_digit(letters: NDArray[np.uint8]) -> NDArray[np.bool_]:
    return letters - np.uint8(ord("0")) < 10


def _may_have_blanks(newline: NDArray[np.bool_]) -> bool:
    """Return whether some line is at most one byte long: then it is empty, or may be just a carriage return."""
    at_the_ends = len(newline) < 3 or newline[:2].any() or newline[-2]
    return bool(at_the_ends or (newline[1:] & newline[:-1]).any() or (newline[2:] & newline[:-2]).any())


def line_spans(data: bytes | memoryview, *, counts_blank_lines: bool) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    r"""Return the starts and the ends of the lines, without their newlines (``\n`` or ``\r\n``).

    Without ``counts_blank_lines``, empty lines are left out.
    """
    letters = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(letters == _NEWLINE)
    if len(letters) and letters[-1] != _NEWLINE:
        ends = np.append(ends, len(letters))
    begins = np.empty_like(ends)
    begins[:1] = 0
    begins[1:] = ends[:-1] + 1
    longer = ends > begins
    ends = ends - (longer & (letters[ends - 1] == _RETURN)) if len(ends) else ends
    if counts_blank_lines:
        return begins, ends
    kept = ends > begins
    return begins[kept], ends[kept]
