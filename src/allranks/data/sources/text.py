"""Read files of text, line by line."""

from __future__ import annotations

from allranks.data.sources import compressed
from allranks.data.sources.files import FileSource
from allranks.data.sources.line_file import LineDecoding, LineFormat
from allranks.data.sources.lines import BLOCK_BYTES
from allranks.data.sources.patterns import Pattern, parse_pattern

_SUFFIXES = tuple(name + more for name in (".txt", ".text", ".md") for more in compressed.SUFFIXES)
_UTF_8 = LineDecoding(bytes.decode, UnicodeDecodeError, "UTF-8")


def text(
    pattern: Pattern, *, block_bytes: int = BLOCK_BYTES, max_block_bytes: int | None = None, cache: str | None = None
) -> FileSource:
    r"""Return files of UTF-8 text, also ``.gz`` and ``.zst``, as a source. A sample is a line without its newline.

    Empty lines are samples, so for a single file sample i is line i. A line that is not UTF-8 is a BadSample. Lines end
    with ``\n`` or ``\r\n``. For complete files as samples, use ``folder``. ``block_bytes`` and
    ``max_block_bytes`` are as for ``jsonl``.
    """
    form = LineFormat(
        "text", _SUFFIXES, blanks=True, decoding=_UTF_8, block_bytes=block_bytes, max_block_bytes=max_block_bytes
    )
    return FileSource(parse_pattern(pattern), form, cache)
