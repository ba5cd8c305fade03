"""A lane is read: blocks are asked for shortly before they are needed, and let go once all their samples were taken."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allranks.data.base import Bad, Reader, Rows
from allranks.data.index import Index
from allranks.data.mix import MixPlan
from allranks.data.plan import EpochPlan, Window

PADDING = Bad("padding behind the last sample")
_AT_ONCE = 4  # blocks that a thread reads before it lets another go on

Ids = NDArray[np.int64]


class Lane:
    """One lane of an epoch; its samples are taken in ascending order. ``pool`` reads blocks ahead."""

    def __init__(self, plan: EpochPlan, lane: int, *, reader: Reader, pool: Executor) -> None:
        self._plan, self._index, self._lane = plan, plan.index, lane
        self._reader, self._pool = reader, pool
        self._length = plan.length(lane)
        self._open: list[_Opened] = []

    def ask(self, depths: Ids) -> None:
        """Have the blocks of these depths read, in the background."""
        for opened, inside in self._parts(depths):
            opened.ask(inside)

    def take(self, depths: Ids) -> tuple[list[Any], Ids]:
        """Return the samples at these ascending depths, and their ids: PADDING and -1 behind the end of the lane."""
        samples: list[Any] = []
        ids = np.full(len(depths), -1, np.int64)
        for opened, inside in self._parts(depths):
            begin = len(samples)
            ids[begin : begin + len(inside)] = opened.take(inside, samples)
        samples += [PADDING] * (len(depths) - len(samples))
        if len(depths):
            self._open = [opened for opened in self._open if opened.window.end > depths[-1] + 1]
        return samples, ids

    def _parts(self, depths: Ids) -> list[tuple[_Opened, Ids]]:
        """Cut depths at the windows' ends."""
        parts, left = [], depths[: np.searchsorted(depths, self._length)]
        while len(left):
            opened = self._opened(int(left[0]))
            many = int(np.searchsorted(left, opened.window.end))
            parts.append((opened, left[:many]))
            left = left[many:]
        return parts

    def _opened(self, depth: int) -> _Opened:
        for opened in self._open:
            if opened.window.begin <= depth < opened.window.end:
                return opened
        made = _Opened(self._plan.window(self._lane, depth), self._index, reader=self._reader, pool=self._pool)
        self._open.append(made)
        return made


class _Opened:
    """A window of which some blocks were asked for."""

    def __init__(self, window: Window, index: Index, *, reader: Reader, pool: Executor) -> None:
        self.window = window
        self._reader, self._pool = reader, pool
        self._blocks = [piece.block for piece in window.pieces]
        starts = np.array([piece.start for piece in window.pieces])
        counts = np.array([piece.stop - piece.start for piece in window.pieces])
        self._piece_of = np.repeat(np.arange(len(counts)), counts)
        # Of the n-th sample of all pieces, n + shift is its row in the block, n + number its id.
        shift = starts - (np.cumsum(counts) - counts)
        self._row_shift = shift + index.skip[self._blocks]
        self._id_shift = shift + index.first[self._blocks]
        self._left = counts
        self._asked: dict[int, Future[Rows] | None] = {}  # by piece; None: hinted at, and read when it is needed
        self._there: dict[int, Rows] = {}

    def ask(self, depths: Ids) -> None:
        self._ask(np.flatnonzero(np.bincount(self._piece_of[self._numbers(depths)])).tolist())

    def take(self, depths: Ids, into: list[Any]) -> Ids:
        """Append the samples to a list; return their ids."""
        numbers = self._numbers(depths)
        pieces = self._piece_of[numbers]
        counts = np.bincount(pieces, minlength=len(self._left))
        needed = np.flatnonzero(counts).tolist()
        self._ask(needed)
        there = {piece: self._block(piece) for piece in needed}
        into += _gathered(there, pieces, numbers + self._row_shift[pieces])
        self._left -= counts
        for piece in np.flatnonzero((self._left == 0) & (counts > 0)).tolist():
            del self._there[piece]
        ids: Ids = numbers + self._id_shift[pieces]
        return ids

    def _numbers(self, depths: Ids) -> Ids:
        return self.window.order[depths - self.window.begin]

    def _ask(self, pieces: Sequence[int]) -> None:
        """Have the system fetch blocks, or a thread read them: some one after the other."""
        missing = [piece for piece in pieces if piece not in self._asked and piece not in self._there]
        hint = getattr(self._reader, "hint", None)
        if hint is not None:
            self._asked |= {piece: None for piece in missing if hint(self._blocks[piece])}
            missing = [piece for piece in missing if piece not in self._asked]
        for at in range(0, len(missing), _AT_ONCE):
            futures = {piece: Future[Rows]() for piece in missing[at : at + _AT_ONCE]}
            self._asked |= futures
            self._pool.submit(_fill, self._reader, [(self._blocks[piece], future) for piece, future in futures.items()])

    def _block(self, piece: int) -> Rows:
        if piece not in self._there:
            asked = self._asked.pop(piece)
            self._there[piece] = self._reader.read(self._blocks[piece]) if asked is None else asked.result()
        return self._there[piece]


def _fill(reader: Reader, asked: Sequence[tuple[int, Future[Rows]]]) -> None:
    for block, future in asked:
        try:
            future.set_result(reader.read(block))
        except BaseException as error:  # whatever it is: the one who waits gets it
            future.set_exception(error)


def _gathered(blocks: Mapping[int, Rows], pieces: Ids, rows: Ids) -> list[Any]:
    """Return the samples of rows of several blocks, in this order."""
    gather = getattr(next(iter(blocks.values())), "gather", None)
    if gather is not None:
        found: list[Any] = gather(blocks, pieces, rows)
        return found
    by_piece = np.argsort(pieces, kind="stable")
    sorted_rows, sorted_pieces = rows[by_piece], pieces[by_piece]
    bounds = [0, *(np.flatnonzero(np.diff(sorted_pieces)) + 1).tolist(), len(rows)]
    grouped: list[Any] = []
    for piece, (begin, end) in zip(sorted_pieces[bounds[:-1]].tolist(), pairwise(bounds), strict=True):
        grouped += blocks[piece].take(sorted_rows[begin:end])
    places = np.empty(len(by_piece), np.int64)
    places[by_piece] = np.arange(len(by_piece))
    return [grouped[place] for place in places.tolist()]


class MixLane:
    """One lane of a mixture: takes from a lane of each part. Has the methods of ``Lane``."""

    def __init__(self, plan: MixPlan, lane: int, *, readers: Sequence[Reader], pool: Executor) -> None:
        self._plan, self._lane = plan, lane
        self._readers, self._pool = readers, pool
        self._length = plan.length(lane)
        self._lanes: dict[tuple[int, int], Lane] = {}

    def ask(self, depths: Ids) -> None:
        """Have the blocks of these depths read, in the background."""
        for lane, _, _, inside in self._parts(depths):
            lane.ask(inside)

    def take(self, depths: Ids) -> tuple[list[Any], Ids]:
        """Return the samples at these ascending depths, and their ids: PADDING and -1 behind the end of the lane."""
        samples: list[Any] = [PADDING] * len(depths)
        ids = np.full(len(depths), -1, np.int64)
        begun: dict[int, int] = {}
        for lane, (number, epoch), places, inside in self._parts(depths):
            found, own = lane.take(inside)
            for place, sample in zip(places.tolist(), found, strict=True):
                samples[place] = sample
            ids[places] = own + self._plan.bases[number]
            begun[number] = epoch
        for number, epoch in list(self._lanes):
            if epoch < begun.get(number, 0):
                del self._lanes[number, epoch]
        return samples, ids

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
            plan = self._plan.part(number, epoch)
            self._lanes[number, epoch] = Lane(plan, self._lane, reader=self._readers[number], pool=self._pool)
        return self._lanes[number, epoch]
