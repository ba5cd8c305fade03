"""Scan logs for known messages. Each kind is listed once, with its first line and its count; causes are first."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from allranks.errors import name_ranks
from allranks.launch.explain import explanation_text, facts_text
from allranks.launch.lines import remove_control_codes
from allranks.messages.book import BOOK
from allranks.messages.known import KINDS, KnownMessage

# torch and torchrun name the rank that speaks; so do `allranks run` and `srun --label`.
_SPEAKER = re.compile(rb"^(?:\[rank(\d+)\]|\[default(\d+)\]|[\[(](\d+)[\])] |(\d+): )")
_MOST_SHOWN = 400  # bytes of a line
_ORDER = tuple(KINDS)


@dataclass(slots=True)
class LogMatch:
    """A known message that was found.

    ``log`` and ``number`` (from 1) give its first line, ``count`` how often it was found. ``ranks`` are the ranks that
    printed it.
    """

    known: KnownMessage
    log: str
    number: int
    line: str
    facts: str
    count: int = 0
    ranks: tuple[int, ...] = ()

    def document(self) -> dict[str, Any]:
        """Return the match as a dict of JSON values."""
        known = self.known
        said = {"log": self.log, "line": self.number, "text": self.line, "facts": self.facts}
        meant = {"title": known.title, "means": known.means, "to_do": known.do, "timeout": known.timeout}
        return {"name": known.name, "kind": known.kind, "count": self.count, "ranks": self.ranks} | said | meant


class LogScanner:
    """Scan logs for known messages, in blocks of whole lines."""

    def __init__(self) -> None:
        self._found: dict[str, LogMatch] = {}

    def read(self, log: str, first: int, block: bytes) -> None:
        """Scan a block of lines of ``log``. Its first line has the number ``first``."""
        for number, line, known in BOOK.find_in_output(block):
            found = self._found.get(known.name)
            if found is None:
                text = remove_control_codes(line, color=False)[:_MOST_SHOWN].decode(errors="replace").strip()
                found = LogMatch(known, log, first + number, text, facts_text(known, line))
                self._found[known.name] = found
            found.count += 1
            if speaker := _SPEAKER.match(line):
                rank = int(speaker[speaker.lastindex or 0])
                found.ranks = tuple(sorted({*found.ranks, rank}))

    def found(self) -> list[LogMatch]:
        """Return the matches: causes, then waiting, consequences, harmless. Each group is in the order of the logs."""
        return sorted(self._found.values(), key=lambda found: _ORDER.index(found.known.kind))


def describe(found: LogMatch, *, name_log: bool) -> str:
    """Return a text for people that describes a match. With ``name_log``, it names the log file."""
    place = f"{found.log}:{found.number}" if name_log else f"line {found.number}"
    often = f", {found.count} times" if found.count > 1 else ""
    ranks = f", {name_ranks(found.ranks)}" if found.ranks else ""
    kind = f"    {found.known.kind}: {KINDS[found.known.kind]}"
    head, *rest = explanation_text(found.known, about=f"{place}{often}{ranks}", facts=found.facts).splitlines()
    return "\n".join([head, f"    {found.line}", kind, *rest])
