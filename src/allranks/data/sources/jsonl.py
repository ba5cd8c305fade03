"""Read files of JSON lines."""

from __future__ import annotations

import orjson

from allranks.data.sources import compressed
from allranks.data.sources.files import FileSource
from allranks.data.sources.line_file import LineDecoding, LineFormat
from allranks.data.sources.lines import BLOCK_BYTES
from allranks.data.sources.patterns import Pattern, parse_pattern

_LINES = tuple(name + more for name in (".jsonl", ".ndjson") for more in compressed.SUFFIXES)
_SUFFIXES = (*_LINES, ".json.gz", ".json.zst")  # plain .json beside data is nearly always about the data
_JSON = LineDecoding(orjson.loads, orjson.JSONDecodeError, "JSON")


def jsonl(pattern: Pattern, *, block_bytes: int = BLOCK_BYTES, cache: str | None = None) -> FileSource:
    """Return files of JSON lines, also ``.gz`` and ``.zst``, as a source. A sample is a line's value, mostly a dict.

    Empty lines are not samples; a line that is not JSON is a BadSample. Integers beyond 64 bits become floats.
    ``block_bytes`` are read at a time, and shuffled as one block. In an object store, where each read has a price, set
    it to ``1 << 20``. For compressed files see ``allranks.data.sources.compressed``.
    """
    return FileSource(parse_pattern(pattern), json_lines(block_bytes), cache)


def json_lines(block_bytes: int) -> LineFormat:
    """Return the file format of the source ``jsonl``."""
    return LineFormat("jsonl", _SUFFIXES, blanks=False, decoding=_JSON, block_bytes=block_bytes)
