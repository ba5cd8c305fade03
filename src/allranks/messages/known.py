"""What known messages of the libraries mean, and what to do about them. Pure: a line in, an explanation out.

A message is recognised by a ``sign``, a text that is in no other message. There is one table per library: XLA and JAX,
Gloo, torch and NCCL, the system.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["cause", "unclear", "waiting", "consequence", "harmless"]
KINDS: Mapping[Kind, str] = {
    "cause": "this message says what is wrong",
    "unclear": "the consequence of another rank's end, if one has ended before; otherwise the cause",
    "waiting": "a rank waits for others; what is wrong is on those ranks",
    "consequence": "another rank, or another message, has the cause",
    "harmless": "this message reports no fault",
}


@dataclass(frozen=True, slots=True)
class Known:
    """A message that is known.

    ``signs``: any of them in a line makes it this message. ``facts`` is a regular expression whose named groups are
    what the message says that matters (``waited`` = "20 s"). ``timeout`` is what governs how long until it comes, with
    the default. ``source`` is who prints it, ``example`` a line as it was printed.
    """

    name: str
    kind: Kind
    title: str
    signs: tuple[str, ...]
    means: str
    do: str
    source: str
    example: str
    timeout: str = ""
    facts: str = ""

    def facts_in(self, line: bytes) -> dict[str, str]:
        """Return what the line says that matters, in its order."""
        found = re.search(self.facts.encode(), line) if self.facts else None
        told = found.groupdict() if found else {}
        return {name: text.decode(errors="replace") for name, text in told.items() if text}


class Book:
    """Known messages, to be found in the bytes of a log. Where a line has the signs of two, the first one is meant."""

    def __init__(self, known: Sequence[Known]) -> None:
        self.known = tuple(known)
        self._signs = [(sign.encode(), one) for one in known for sign in one.signs]

    def look(self, output: bytes) -> Iterator[tuple[int, bytes, Known]]:
        """Yield the lines of ``output`` that are known messages, with their number, from 0.

        A line that ends with a colon comes with the next one: ``stopped sending heartbeats): 3``. Output without any
        message is passed at about the speed of memory: each sign is looked for in the whole of it.
        """
        here = [(sign, one) for sign, one in self._signs if sign in output]
        if not here:
            return
        lines = output.split(b"\n")
        for number, line in enumerate(lines):
            for sign, one in here:
                if sign in line:
                    yield number, b" ".join(lines[number : number + 1 + line.endswith(b":")]), one
                    break

    def find(self, line: bytes) -> Known | None:
        """Return the message that a line is."""
        return next((one for _, _, one in self.look(line)), None)
