"""A lane is read: blocks are asked for shortly before they are needed, and let go at the end of their window."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future

import numpy as np

from allranks.data.base import Reader, Rows
from allranks.data.found import Found, Ids
from allranks.data.index import Index
from allranks.data.mix import MixPlan
from allranks.data.plan import EpochPlan, Window

_AT_ONCE = 4  # blocks that a thread reads before it lets another go on


class Lane:
    """One lane of an epoch; its samples are found in ascending order. ``pool`` reads blocks ahead.

    ``first_key`` is the key of the index's block 0: of a mixture, the parts' are different.
    """

    def __init__(self, plan: EpochPlan, lane: int, *, reader: Reader, pool: Executor, first_key: int = 0) -> None:
        self._plan, self._lane, self._first_key = plan, lane, first_key
        self._reader, self._pool = reader, pool
        self._length = plan.length(lane)
        self._open: list[_Opened] = []

    def ask(self, depths: Ids) -> None:
        """Have the blocks of these depths read, in the background."""
        for opened, inside in self._parts(depths):
            opened.ask(inside)

    def find(self, depths: Ids) -> Found:
        """Return where the samples at these ascending depths are; behind the end of the lane there is padding."""
        parts = [opened.find(inside) for opened, inside in self._parts(depths)]
        if len(depths):
            self._open = [opened for opened in self._open if opened.window.end > depths[-1] + 1]
        if len(parts) == 1 and len(parts[0].keys) == len(depths):
            return parts[0]
        keys, spots, ids = np.full((3, len(depths)), -1, np.int64)
        at = 0
        for part in parts:
            here = slice(at, at + len(part.keys))
            keys[here], spots[here], ids[here] = part.keys, part.spots, part.ids
            at = here.stop
        return Found(keys, spots, ids, {key: block for part in parts for key, block in part.blocks.items()})

    def _parts(self, depths: Ids) -> list[tuple[_Opened, Ids]]:
        """Cut depths at the windows' ends; each part counts from its window's begin on."""
        parts, left = [], depths[: np.searchsorted(depths, self._length)]
        while len(left):
            opened = self._opened(int(left[0]))
            many = len(left) if left[-1] < opened.window.end else int(np.searchsorted(left, opened.window.end))
            parts.append((opened, left[:many] - opened.window.begin))
            left = left[many:]
        return parts

    def _opened(self, depth: int) -> _Opened:
        for opened in self._open:
            if opened.window.begin <= depth < opened.window.end:
                return opened
        window = self._plan.window(self._lane, depth)
        made = _Opened(window, self._plan.index, self._first_key, reader=self._reader, pool=self._pool)
        self._open.append(made)
        return made


class _Opened:
    """A window of which some blocks were asked for. Its samples count from 0 on, in the order in which they are
    taken."""

    def __init__(self, window: Window, index: Index, first_key: int, *, reader: Reader, pool: Executor) -> None:
        self.window = window
        self._first_key, self._reader, self._pool = first_key, reader, pool
        blocks = np.array([piece.block for piece in window.pieces])
        starts = np.array([piece.start for piece in window.pieces])
        counts = np.array([piece.stop - piece.start for piece in window.pieces])
        piece = np.repeat(np.arange(len(counts), dtype=np.int32), counts)[window.order]
        # Of the n-th sample of all pieces, n + shift is its row in the block, n + number its id.
        shift = starts - (np.cumsum(counts) - counts)
        self._keys = (blocks + first_key)[piece]
        self._ids = window.order + (shift + index.first[blocks])[piece]
        self._spots = window.order + (shift + index.skip[blocks])[piece]  # rows, until their block is there
        self._to_ask = set((blocks + first_key).tolist())
        self._asked: dict[int, Future[Rows] | None] = {}  # by key; None: hinted at, and read when it is needed
        self._there: dict[int, Rows] = {}

    def ask(self, places: Ids) -> None:
        if self._to_ask:
            self._ask(self._to_ask.intersection(self._keys[places].tolist()))

    def find(self, places: Ids) -> Found:
        if self._to_ask or self._asked:
            keys = set(self._keys[places].tolist())
            self._ask(self._to_ask & keys)
            for key in self._asked.keys() & keys:
                self._fetch(key)
        return Found(self._keys[places], self._spots[places], self._ids[places], self._there)

    def _ask(self, keys: Iterable[int]) -> None:
        """Have the system fetch blocks, or a thread read them: some one after the other."""
        wanted = list(keys)
        self._to_ask.difference_update(wanted)
        hint = getattr(self._reader, "hint", None)
        if hint is not None:
            self._asked |= {key: None for key in wanted if hint(key - self._first_key)}
            wanted = [key for key in wanted if key not in self._asked]
        for at in range(0, len(wanted), _AT_ONCE):
            futures = {key: Future[Rows]() for key in wanted[at : at + _AT_ONCE]}
            self._asked |= futures
            asked = [(key - self._first_key, future) for key, future in futures.items()]
            self._pool.submit(_fill, self._reader, asked)

    def _fetch(self, key: int) -> None:
        """Have a block there that was asked for; from now on its samples' spots are those of its class."""
        asked = self._asked.pop(key)
        rows = self._reader.read(key - self._first_key) if asked is None else asked.result()
        self._there[key] = rows
        if hasattr(rows, "spots"):
            here = np.flatnonzero(self._keys == key)
            self._spots[here] = rows.spots()[self._spots[here]]


def _fill(reader: Reader, asked: Sequence[tuple[int, Future[Rows]]]) -> None:
    for block, future in asked:
        try:
            future.set_result(reader.read(block))
        except BaseException as error:  # whatever it is: the one who waits gets it
            future.set_exception(error)


class MixLane:
    """One lane of a mixture: its samples are found in a lane of each part. Has the methods of ``Lane``."""

    def __init__(self, plan: MixPlan, lane: int, *, readers: Sequence[Reader], pool: Executor) -> None:
        self._plan, self._lane = plan, lane
        self._readers, self._pool = readers, pool
        self._length = plan.length(lane)
        self._lanes: dict[tuple[int, int], Lane] = {}
        blocks = [len(plan.part(number, 0).index) for number in range(len(readers))]
        self._first_keys = np.cumsum([0, *blocks]).tolist()

    def ask(self, depths: Ids) -> None:
        """Have the blocks of these depths read, in the background."""
        for lane, _, _, inside in self._parts(depths):
            lane.ask(inside)

    def find(self, depths: Ids) -> Found:
        """Return where the samples at these ascending depths are; behind the end of the lane there is padding."""
        keys, spots, ids = np.full((3, len(depths)), -1, np.int64)
        blocks: dict[int, Rows] = {}
        begun: dict[int, int] = {}
        for lane, (number, epoch), places, inside in self._parts(depths):
            found = lane.find(inside)
            keys[places], spots[places], ids[places] = found.keys, found.spots, found.ids + self._plan.bases[number]
            blocks |= found.blocks
            begun[number] = epoch
        for number, epoch in list(self._lanes):
            if epoch < begun.get(number, 0):
                del self._lanes[number, epoch]
        return Found(keys, spots, ids, blocks)

    def _parts(self, depths: Ids) -> Iterator[tuple[Lane, tuple[int, int], Ids, Ids]]:
        """Yield a part's lane, its number and epoch, places among ``depths``, and the depths in it that these are."""
        turns = self._plan.turns(self._lane, depths[: np.searchsorted(depths, self._length)])
        for number in np.unique(turns.part).tolist():
            places = np.flatnonzero(turns.part == number)
            epochs, inside = np.divmod(turns.number[places], self._plan.part(number, 0).length(self._lane))
            for epoch in np.unique(epochs).tolist():
                here = epochs == epoch
                yield self._opened(number, epoch), (number, epoch), places[here], inside[here]

    def _opened(self, number: int, epoch: int) -> Lane:
        if (number, epoch) not in self._lanes:
            plan, reader, first_key = self._plan.part(number, epoch), self._readers[number], self._first_keys[number]
            self._lanes[number, epoch] = Lane(plan, self._lane, reader=reader, pool=self._pool, first_key=first_key)
        return self._lanes[number, epoch]
