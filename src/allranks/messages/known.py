"""Recognize well-known messages of libraries in logs.

Each message has a text that is in no other message. Each library has its table in a separate file: XLA and JAX, torch
with NCCL, Gloo, the system.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["cause", "unclear", "waiting", "consequence", "harmless"]
KINDS: Mapping[Kind, str] = {
    "cause": "this message says what is wrong",
    "unclear": "if another rank has ended before, a consequence of that end; otherwise the cause",
    "waiting": "a rank waits for other ranks; the fault is on those other ranks",
    "consequence": "another rank failed first, or another message shows the cause",
    "harmless": "this message reports no fault",
}


@dataclass(frozen=True, slots=True)
class KnownMessage:
    """A well-known message of a library: how to recognize it, what it means, and what to do about it.

    - ``texts``: a line that contains any of these texts is this message.
    - ``facts``: a regular expression whose named groups are the values to show (``waited`` = "20 s").
    - ``timeout``: the setting for the time until the message is printed, with its default.
    - ``source``: the library that prints it. ``example``: a line as it was printed.
    """

    name: str
    kind: Kind
    title: str
    texts: tuple[str, ...]
    means: str
    do: str
    source: str
    example: str
    timeout: str = ""
    facts: str = ""

    def values_in_line(self, line: bytes) -> dict[str, str]:
        """Return the values that ``facts`` extracts from a line, by name."""
        found = re.search(self.facts.encode(), line) if self.facts else None
        told = found.groupdict() if found else {}
        return {name: text.decode(errors="replace") for name, text in told.items() if text}


class MessageBook:
    """Finds known messages in the bytes of a log.

    If a line has the texts of two messages, the first message is found.
    """

    def __init__(self, known: Sequence[KnownMessage]) -> None:
        self.known = tuple(known)
        self._texts = [(text.encode(), one) for one in known for text in one.texts]

    def find_in_output(self, output: bytes) -> Iterator[tuple[int, bytes, KnownMessage]]:
        """Yield the lines of ``output`` that are known messages: the line's number (from 0), the line, and the message.

        If a line ends with a colon, the next line is appended: ``stopped sending heartbeats): 3``. Output without any
        message costs little: each text is searched in all of the output at once.
        """
        here = [(text, one) for text, one in self._texts if text in output]
        if not here:
            return
        lines = output.split(b"\n")
        for number, line in enumerate(lines):
            for text, one in here:
                if text in line:
                    yield number, b" ".join(lines[number : number + 1 + line.endswith(b":")]), one
                    break

    def find_in_line(self, line: bytes) -> KnownMessage | None:
        """Return the known message of a line, or None if the line is no known message."""
        return next((one for _, _, one in self.find_in_output(line)), None)
