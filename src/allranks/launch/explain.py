"""Explain known messages: as text for logs, or inline, below a message in the output of a running job."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from allranks.errors import name_ranks
from allranks.launch.merge import WINDOW
from allranks.messages.book import BOOK
from allranks.messages.known import KnownMessage

WIDTH = 118
# What is looked at of a job's output: as many bytes as come at once, and then so many a second. That is all of what
# people read, and about a hundredth of a core where ranks write as fast as they can.
BURST, RATE = 1 << 20, 1 << 19


def explanation_text(known: KnownMessage, *, about: str, facts: str = "") -> str:
    """Return an explanation as lines of text: what the message means, what to do, and which timeout governs it.

    ``about`` says which message is explained; ``facts`` are values from the message.
    """
    parts = {"said": facts, "means": known.means, "to do": known.do, "timeout": known.timeout}
    lines = [f"{about}: {known.title} [{known.name}]"]
    for word, text in parts.items():
        if text:
            lead = f"    {word + ':':<9}"
            lines += textwrap.wrap(text, WIDTH, initial_indent=lead, subsequent_indent=" " * len(lead))
    return "\n".join(lines)


def facts_text(known: KnownMessage, line: bytes) -> str:
    """Return the values in a line that matter, as text: ``seconds 20, expected 2``."""
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in known.values_in_line(line).items())


@dataclass(slots=True)
class _SeenMessage:
    known: KnownMessage
    line: bytes
    due: float
    ranks: set[int] = field(default_factory=set)


class InlineExplainer:
    """Explain each kind of message once per job, a moment after its first line.

    The text names all ranks that printed it. Messages that are consequences are not explained here: the end of the job
    names the first failure. Harmless messages are not explained.
    """

    def __init__(self) -> None:
        known = [one for one in BOOK.known if one.kind in ("cause", "waiting")]
        self._kinds = {one.name for one in known}
        self._seen: dict[str, _SeenMessage] = {}
        self._waiting: list[_SeenMessage] = []
        self._allowance, self._since = float(BURST), 0.0

    def feed(self, rank: int, lines: Sequence[bytes], now: float) -> None:
        """Search finished lines of a rank for known messages. ``now`` is in seconds and never runs backwards."""
        self._allowance = min(BURST, self._allowance + (now - self._since) * RATE)
        self._since = now
        if self._allowance <= 0:
            return
        text = b"\n".join(lines)
        self._allowance -= len(text)
        for _, line, known in BOOK.find_in_output(text):
            if known.name in self._kinds:
                seen = self._seen.get(known.name)
                if seen is None:
                    seen = self._seen[known.name] = _SeenMessage(known, line, now + WINDOW)
                    self._waiting.append(seen)
                seen.ranks.add(rank)

    @property
    def deadline(self) -> float | None:
        """The time at which ``due`` has something to yield, or None."""
        return self._waiting[0].due if self._waiting else None

    def due(self, now: float) -> Iterator[str]:
        """Yield the explanations that are due."""
        while self._waiting and now >= self._waiting[0].due:
            seen = self._waiting.pop(0)
            about = f"allranks: what {name_ranks(seen.ranks)} said above"
            yield explanation_text(seen.known, about=about, facts=facts_text(seen.known, seen.line))
