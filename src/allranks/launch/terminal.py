"""Format the lines of ranks for a terminal: prefix, colour, width."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from allranks.errors import rank_list
from allranks.launch.lines import RESET
from allranks.launch.merge import MergedLine, Stream, ranks_of
from allranks.launch.placement import Placement
from allranks.report import character_width

# Okabe and Ito's colours, distinct with every kind of colour vision, as the nearest of the 256 that are readable on
# dark and on light ground; red is left to errors.
PALETTE = (74, 172, 36, 175, 32, 142, 166)
LONGEST_SET = 12  # characters
_PIECE = re.compile(r"\x1b\[[0-9;:]*m|.", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Style:
    """How to write to an output.

    ``color``: colours may be sent. ``live``: lines at the bottom may be redrawn (otherwise each line is written once).
    """

    color: bool
    live: bool


def choose_style(isatty: bool, environ: Mapping[str, str]) -> Style:
    """Return how to write to an output: a terminal gets colours and live bars; a pipe, CI and a dumb terminal do not.

    NO_COLOR (not empty) removes the colours and leaves the rest. FORCE_COLOR gives colours anywhere. NO_COLOR wins.
    """
    capable = isatty and environ.get("TERM") != "dumb" and not _is_on(environ.get("CI"))
    if environ.get("NO_COLOR"):
        return Style(color=False, live=capable)
    return Style(color=capable or _is_on(environ.get("FORCE_COLOR")), live=capable)


def _is_on(value: str | None) -> bool:
    return (value or "").lower() not in ("", "0", "false", "no")


def short_rank_list(ranks: Sequence[int]) -> str:
    """Return ``rank_list(ranks)``.

    A long list is cut to its first ranges and the count of the rest: ``0-15, 20, +3``.
    """
    whole = rank_list(ranks)
    if len(whole) <= LONGEST_SET:
        return whole
    runs = whole.split(", ")
    for count in range(len(runs) - 1, 0, -1):
        named = sum(_count_of_range(run) for run in runs[:count])
        text = ", ".join([*runs[:count], f"+{len(ranks) - named}"])
        if len(text) <= LONGEST_SET or count == 1:
            return text
    return whole


def _count_of_range(run: str) -> int:
    first, _, last = run.partition("-")
    return int(last or first) - int(first) + 1


class LinePrefixes(dict[tuple[int, Stream], bytes]):
    """The prefix of a line, by (bit mask of ranks, stream): ``[0-3] `` for stdout, ``(0-3) `` for stderr.

    The first bit is the first rank of the host. In a job of several hosts, the host's name comes first:
    ``[h1 4-7] ``. Each rank has its own colour; the prefix of several ranks is dim. A job of one rank has no prefix.
    """

    def __init__(self, placement: Placement, *, color: bool, names: Sequence[str] = ()) -> None:
        super().__init__()
        self._size, self._color, self._names = placement.size, color, names
        ranks = placement.ranks
        self._first, self._host = ranks.start, f"{placement.name} " if len(placement.hosts) > 1 else ""
        self._width = len(self._host) + max(map(len, [*names, f"{ranks.start}-{ranks.stop - 1}"])) + 2

    def __missing__(self, key: tuple[int, Stream]) -> bytes:
        ranks = tuple(self._first + bit for bit in ranks_of(key[0]))
        self[key] = self._make_prefix(ranks, key[1]) if self._size > 1 else b""
        return self[key]

    def _make_prefix(self, ranks: tuple[int, ...], stream: Stream) -> bytes:
        name = self._names[ranks[0]] if self._names and len(ranks) == 1 else short_rank_list(ranks)
        name = self._host + name
        label = f"[{name}]" if stream == "out" else f"({name})"
        blanks = " " * (self._width - len(label) + 1 if len(label) < self._width else 1)
        if not self._color:
            return (label + blanks).encode()
        code = f"38;5;{PALETTE[ranks[0] % len(PALETTE)]}" if len(ranks) == 1 else "2"
        return f"\x1b[{code}m{label}\x1b[0m{blanks}".encode()


def cut_to_width(text: bytes, width: int) -> bytes:
    """Return ``text`` cut to ``width`` columns of a terminal.

    Colour codes take no column. Invalid UTF-8 shows as U+FFFD.
    """
    if len(text) <= width and text.isascii() and text.decode().isprintable():
        return text
    whole, used = text.decode(errors="replace").replace("\t", " "), 0
    kept: list[str] = []
    for piece in _PIECE.findall(whole):
        columns = 0 if piece[0] == "\x1b" else character_width(piece)
        if used + columns > width:
            return "".join(kept).encode() + (RESET if b"\x1b" in text else b"")
        used += columns
        kept.append(piece)
    return "".join(kept).encode()


def erase_codes(rows: int) -> bytes:
    """Return the terminal codes that erase the last ``rows`` lines. The cursor must be in the last of them."""
    if not rows:
        return b""
    return (b"\r\x1b[%dA\x1b[J" % (rows - 1)) if rows > 1 else b"\r\x1b[J"


def live_rows(states: Sequence[MergedLine], prefixes: LinePrefixes, *, width: int, most: int) -> tuple[bytes, ...]:
    """Return the lines of the live area: one for each state, cut to ``width`` columns.

    There are at most ``most`` lines; if there are more states, the last line says how many more.
    """
    shown = states if len(states) <= most else states[: most - 1]
    rows = [cut_to_width(prefixes[ranks, stream] + text, width) for ranks, stream, text in shown]
    if len(shown) < len(states):
        rows.append(b"... and %d more" % (len(states) - len(shown)))
    return tuple(rows)
