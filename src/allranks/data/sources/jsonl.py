"""Read JSON lines."""

from __future__ import annotations

import orjson

from allranks.data.sources import compressed
from allranks.data.sources.files import FileSource
from allranks.data.sources.line_file import Decoding, LineFormat
from allranks.data.sources.lines import BLOCK_BYTES
from allranks.data.sources.patterns import Pattern, place

_LINES = tuple(name + more for name in (".jsonl", ".ndjson") for more in compressed.SUFFIXES)
_SUFFIXES = (*_LINES, ".json.gz", ".json.zst")  # plain .json beside data is nearly always about the data
_JSON = Decoding(orjson.loads, orjson.JSONDecodeError, "JSON")


def jsonl(pattern: Pattern, *, block_bytes: int = BLOCK_BYTES, cache: str | None = None) -> FileSource:
    """Return files of JSON lines, ``.gz`` and ``.zst`` too: a sample is the value of a line, nearly always a dict.

    Empty lines are no samples; a line that is no JSON is Bad. Integers beyond 64 bits come as floats.
    ``block_bytes`` is what is read at a time, and shuffled as a whole: in an object store, where each read has its
    price, take ``1 << 20``. Compressed files: see ``allranks.data.sources.compressed`` for what they cost.
    """
    return FileSource(place(pattern), json_lines(block_bytes), cache)


def json_lines(block_bytes: int) -> LineFormat:
    """Return the format of ``jsonl``."""
    return LineFormat("jsonl", _SUFFIXES, blanks=False, decoding=_JSON, block_bytes=block_bytes)
