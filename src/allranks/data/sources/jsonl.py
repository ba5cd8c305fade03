"""Read files of JSON lines."""

from __future__ import annotations

import json
import re
import secrets
from itertools import chain
from typing import Any

import orjson

from allranks.data.sample_columns import AnyColumn, compact_values
from allranks.data.sources import compressed
from allranks.data.sources.files import FileSource
from allranks.data.sources.line_file import LineDecoding, LineFormat
from allranks.data.sources.lines import BLOCK_BYTES, may_have_long_integers
from allranks.data.sources.patterns import Pattern, parse_pattern

_LINES = tuple(name + more for name in (".jsonl", ".ndjson") for more in compressed.SUFFIXES)
_SUFFIXES = (*_LINES, ".json.gz", ".json.zst")  # plain .json beside data is nearly always about the data
_SEPARATOR = secrets.randbits(60)
_EXACT = {str, int, bool, type(None)}
_LARGE = float(1 << 63)
_LONG_INTEGER = re.compile(rb"(?<![\d.])\d{20}|-\d{19}")


def _decode_exactly(line: bytes) -> Any:
    """Return the value of a line, with integers of any size, of which orjson makes floats. Raises ValueError."""
    value = orjson.loads(line)
    try:
        return json.loads(line) if _LONG_INTEGER.search(line) else value
    except RecursionError as error:
        raise ValueError("its lists are nested too deeply for an integer beyond 64 bits") from error


def _decode_columns(data: bytes) -> dict[str, AnyColumn] | None:
    """Return the columns of a block of lines; None unless each line is an object with the same keys, in one order.

    All lines are decoded in one call, as the array ``[line, separator, line, ...]``. Nobody who writes a file knows the
    separator. So if values and separators alternate, and there are as many values as lines, each value is one line.
    """
    separator = b",%d," % _SEPARATOR
    data = data.removesuffix(b"\n")
    joined = data.replace(b"\n", separator)
    lines = 1 + (len(joined) - len(data)) // (len(separator) - 1)  # to count them takes as long as to replace them
    try:
        found = orjson.loads(b"[%b]" % joined)
    except orjson.JSONDecodeError:
        return None
    values, separators = found[::2], found[1::2]
    if len(values) != lines or separators.count(_SEPARATOR) != len(separators) or set(map(type, values)) != {dict}:
        return None
    names = tuple(values[0])
    if not names or list(chain.from_iterable(values)) != [*names] * lines:
        return None
    columns = {name: [value[name] for value in values] for name in names}
    if any(_may_be_inexact(column, data) for column in columns.values()):
        return None
    return {name: compact_values(column) for name, column in columns.items()}


def _may_be_inexact(column: list[Any], data: bytes) -> bool:
    """Return whether a column may have an integer beyond 64 bits, of which orjson makes a float."""
    kinds = set(map(type, column))
    if kinds <= _EXACT:
        return False
    if kinds <= _EXACT | {float}:
        return any(type(value) is float and abs(value) >= _LARGE for value in column)
    return may_have_long_integers(data)


_JSON = LineDecoding(
    orjson.loads,
    orjson.JSONDecodeError,
    "JSON",
    with_long_integers=LineDecoding(_decode_exactly, ValueError, "JSON"),
    decode_columns=_decode_columns,
)


def jsonl(
    pattern: Pattern, *, block_bytes: int = BLOCK_BYTES, max_block_bytes: int | None = None, cache: str | None = None
) -> FileSource:
    """Return files of JSON lines, also ``.gz`` and ``.zst``, as a source. A sample is a line's value, mostly a dict.

    Empty lines are not samples; a line that is not JSON is a BadSample. ``block_bytes`` are read at a time, and
    shuffled as one block. In an object store, where each read has a price, set it to ``1 << 20``. For compressed files
    see ``allranks.data.sources.compressed``. ``max_block_bytes`` are the most bytes that a compressed block may need in
    memory (default: 256 MiB, or 64 times its bytes in the file).
    """
    return FileSource(parse_pattern(pattern), json_lines(block_bytes, max_block_bytes), cache)


def json_lines(block_bytes: int, max_block_bytes: int | None = None) -> LineFormat:
    """Return the file format of the source ``jsonl``."""
    return LineFormat(
        "jsonl", _SUFFIXES, blanks=False, decoding=_JSON, block_bytes=block_bytes, max_block_bytes=max_block_bytes
    )
