"""Let everything that a command prints pass through one function that escapes what a terminal would act on.

Names in checkpoints, data, logs, failures and settings may contain such characters. Jobs of ``allranks run`` write
what ranks print to ``raw_stream``, after their own treatment (`allranks.launch.lines`).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

from allranks.failure import visible

# Colours and weights, as we and rich write them. Not: hidden, black, a background, or anything that moves the cursor.
_STYLE = re.compile(r"(\x1b\[(?:(?:[0-4]|3[1-79]|9[1-7]|38;5;\d{1,3})(?:;(?=\d)|(?=m)))*m)")


class VisibleStream:
    """A text stream over ``raw_stream``: hidden characters are written as escapes. Colours pass.

    All else is as in ``raw_stream``.
    """

    def __init__(self, raw_stream: TextIO) -> None:
        self.raw_stream = raw_stream

    def write(self, text: str) -> int:
        if not (text.isascii() and text.isprintable()):
            text = "".join(part if _STYLE.fullmatch(part) else visible(part) for part in _STYLE.split(text))
        return self.raw_stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw_stream, name)


def raw_stream(stream: TextIO) -> TextIO:
    """Return the stream below a ``VisibleStream``, for codes that move the cursor and bytes that must not change."""
    return cast(TextIO, getattr(stream, "raw_stream", stream))


@contextmanager
def visible_output() -> Iterator[None]:
    """Let ``sys.stdout`` and ``sys.stderr`` be VisibleStreams."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (cast(TextIO, one and VisibleStream(raw_stream(one))) for one in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
