"""Format tables as plain text, for a terminal or a log file."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence

from allranks.failure import one_line

_NUMBER = re.compile(r"[-+]?\d[\d,._]*(e[-+]?\d+)?\s?[^\d\s]{0,8}")


def display_width(text: str) -> int:
    """Return how many terminal columns a text takes: two for East Asian wide characters, none for accents."""
    if text.isascii():
        return len(text)
    return sum(character_width(character) for character in text)


def character_width(character: str) -> int:
    """Return how many terminal columns one character takes: 0, 1 or 2."""
    if unicodedata.combining(character) or unicodedata.category(character) in ("Cf", "Me", "Mn"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def format_table(column_headers: Sequence[str], rows: Iterable[Sequence[object]], *, indent: str = "") -> str:
    """Return an aligned table: the headers, a line of dashes, one line per row.

    The text has no newline at the end. A column of numbers (``12``, ``1.5 s``, ``127 MB``) is aligned right, with its
    header. None is written as ``-``. An empty cell or ``-`` fits both kinds of column. Raises ValueError for a row that
    is not as long as the headers.
    """
    cells = [["-" if cell is None else one_line(str(cell)) for cell in row] for row in rows]
    for row in cells:
        if len(row) != len(column_headers):
            raise ValueError(f"a row of {len(row)} cells under {len(column_headers)} headers: {row}")
    columns = [[row[at] for row in cells] for at in range(len(column_headers))]
    widths = [max(map(display_width, [head, *column])) for head, column in zip(column_headers, columns, strict=True)]
    right = [_is_numeric(column) for column in columns]
    lines = [column_headers, ["-" * width for width in widths], *cells]
    return "\n".join((indent + "  ".join(map(_pad_cell, line, widths, right))).rstrip() for line in lines)


def _is_numeric(column: Iterable[str]) -> bool:
    filled = [cell for cell in column if cell not in ("", "-")]
    return bool(filled) and all(_NUMBER.fullmatch(cell) for cell in filled)


def _pad_cell(cell: str, width: int, right: bool) -> str:
    blanks = " " * (width - display_width(cell))
    return blanks + cell if right else cell + blanks
