"""Merge the lines of N ranks into one stream: a line that several ranks print appears once, with all these ranks.

All entries form one queue, and a rank only moves forward in it. The rank's next line joins an equal line that is behind
all its lines so far; if there is none, the line becomes a new entry at the end. So the lines of a rank keep their
order. An entry leaves at the front as soon as every rank has printed the line, or ``window`` seconds after it arrived.
Sets of ranks are bit masks (rank 3 is ``1 << 3``), because this code must be fast.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import repeat
from typing import Literal, NamedTuple

WINDOW = 0.15  # seconds
MOST_WAITING = 50_000  # entries
_CLOCK = re.compile(rb"\d+:[\d:]+<[\d:?]+, *[\d.?]+[^],]*")

Stream = Literal["out", "err"]


class MergedLine(NamedTuple):
    """A line and the ranks that printed it. ``ranks`` is a bit mask; ``text`` has no newline."""

    ranks: int
    stream: Stream
    text: bytes


@lru_cache(maxsize=4096)
def ranks_of(mask: int) -> tuple[int, ...]:
    """Return the ranks in a bit mask, in ascending order."""
    return tuple(rank for rank in range(mask.bit_length()) if mask >> rank & 1)


def merge_equal(states: Iterable[tuple[int, Stream, bytes]]) -> list[MergedLine]:
    """Merge what ranks show at one moment (the states of their bars): one entry per text, in order of first appearance.

    Bars that differ only in tqdm's clock (``00:01<00:03, 9.8it/s``) are merged, with the clock of the first bar.
    """
    merged: dict[tuple[Stream, bytes], tuple[int, bytes]] = {}
    for rank, stream, text in states:
        key = stream, _CLOCK.sub(b"", text)
        ranks, first = merged.get(key, (0, text))
        merged[key] = ranks | 1 << rank, first
    return [MergedLine(ranks, stream, text) for (stream, _), (ranks, text) in merged.items()]


def group_blocks(entries: list[MergedLine]) -> list[MergedLine]:
    """Reorder ``entries`` so that each rank's indented lines follow the line above them.

    The order of each rank is kept. Tracebacks of several ranks arrive mixed, line by line. A line that starts with a
    blank continues what the same ranks printed before. So does the line after it (the ``ValueError: ...`` that ends a
    traceback).
    """
    if not any(text[:1] in b" \t" for _, _, text in entries) or len({ranks for ranks, _, _ in entries}) == 1:
        return entries
    turns: dict[int, deque[int]] = defaultdict(deque)
    for place, entry in enumerate(entries):
        for rank in ranks_of(entry.ranks):
            turns[rank].append(place)
    ordered: list[MergedLine] = []
    done = bytearray(len(entries))
    for first in range(len(entries)):
        place = first
        while not done[place]:
            done[place] = 1
            ordered.append(entries[place])
            place = _joined_continuation(entries, place, turns)
    return ordered


def _joined_continuation(entries: list[MergedLine], place: int, turns: dict[int, deque[int]]) -> int:
    """Remove ``place`` from its ranks' queues.

    Return the index of the entry that continues it, or ``place`` if none does.
    """
    above = entries[place]
    heads = set()
    for rank in ranks_of(above.ranks):
        turn = turns[rank]
        turn.popleft()
        heads.add(turn[0] if turn else place)
    if len(heads) != 1:
        return place
    below = entries[head := heads.pop()]
    indented = below.text[:1] in b" \t" or above.text[:1] in b" \t"
    return head if indented and below.ranks == above.ranks else place


class LineMerger:
    """The queue of lines.

    ``add`` lines of ranks, and take the entries that are ``due``, or all entries with ``flush``.
    """

    def __init__(self, size: int, *, window: float = WINDOW) -> None:
        self._full = (1 << size) - 1
        self._window = window
        self._gone = 0  # entries that have left: the number of the first one that waits
        self._masks: list[int] = []
        self._streams: list[Stream] = []
        self._texts: list[bytes] = []
        self._next = [0] * size  # by rank: the number of the first entry that it may still join
        self._places: dict[Stream, dict[bytes, list[int]]] = {"out": {}, "err": {}}
        self._arrivals: deque[tuple[float, int]] = deque()  # (time, number of the entry after the last one of then)

    def add(self, rank: int, stream: Stream, lines: Sequence[bytes], now: float) -> None:
        """Queue finished lines of a rank that arrived at ``now`` (seconds, never running backwards)."""
        bit, gone = 1 << rank, self._gone
        masks, texts, places = self._masks, self._texts, self._places[stream]
        begin = max(self._next[rank], gone)
        before = end = gone + len(texts)
        for line in lines:
            found = places.get(line)
            if found is None:
                places[line] = [end]
            elif found[-1] < begin:
                found.append(end)
            else:
                place = found[0] if found[0] >= begin else found[bisect_left(found, begin)]
                masks[place - gone] |= bit
                begin = place + 1
                continue
            texts.append(line)
            masks.append(bit)
            begin = end = end + 1
        self._next[rank] = begin
        if end > before:
            self._streams.extend(repeat(stream, end - before))
            self._arrivals.append((now, end))

    def waiting(self, stream: Stream) -> Mapping[bytes, object]:
        """Return the entries that wait, by text. An equal line of another rank will join the entry."""
        return self._places[stream]

    def due(self, now: float) -> list[MergedLine]:
        """Remove and return, from the front, entries that every rank has printed or that waited ``window`` seconds."""
        end, arrivals = self._gone, self._arrivals
        while arrivals and now >= arrivals[0][0] + self._window:
            end = arrivals.popleft()[1]
        masks, count = self._masks, max(0, end - self._gone)
        while count < len(masks) and masks[count] == self._full:
            count += 1
        if len(masks) - count > MOST_WAITING:
            count = len(masks)
        return self._remove_first_entries(count)

    def flush(self) -> list[MergedLine]:
        """Remove and return all entries."""
        return self._remove_first_entries(len(self._texts))

    @property
    def deadline(self) -> float | None:
        """The latest time at which ``due`` will return something, or None if nothing waits."""
        return self._arrivals[0][0] + self._window if self._arrivals else None

    def _remove_first_entries(self, count: int) -> list[MergedLine]:
        if not count:
            return []
        entries = list(map(MergedLine, self._masks[:count], self._streams[:count], self._texts[:count]))
        del self._masks[:count], self._streams[:count], self._texts[:count]
        self._gone += count
        while self._arrivals and self._arrivals[0][1] <= self._gone:
            self._arrivals.popleft()
        self._remove_from_index(entries)
        return group_blocks(entries)

    def _remove_from_index(self, entries: list[MergedLine]) -> None:
        """Remove from the index the texts of entries that no longer wait."""
        if not self._texts:
            for places in self._places.values():
                places.clear()
            return
        for _, stream, text in entries:
            found = self._places[stream].get(text)
            if found is None or found[0] >= self._gone:
                continue
            if found[-1] < self._gone:
                del self._places[stream][text]
            else:
                del found[: bisect_left(found, self._gone)]
