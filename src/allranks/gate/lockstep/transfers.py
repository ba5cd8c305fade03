"""Sends and receives: the n-th send of a rank to another one, by group and tag, is the n-th that this one receives.

A pair does not ask: either may come first, in any order with other pairs, and go on. Each side foretells its next form
(dtype and number of elements) by one rule from the forms before (predictor.py). A sender whose next one was not
foretold announces it before it sends. A receiver whose next one was not foretold looks for the announcement when the
data has come; none means that the sender sent what was foretold. Where the receiver's was foretold, its monitor
compares what is announced. So forms that differ are found, and a loop sends no message.

A rank that waits for a transfer for a moment tells for which, and how many it has posted itself. Ranks that wait for
each other in a ring, each for what its next has not posted, wait for ever.

Keys, below ``lockstep/transfers/``: ``<rank>/<i>`` what is announced to a receiver, ``waits/<rank>`` what a rank waits
for.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

from allranks.errors import Mismatch
from allranks.gate.lockstep.predictor import Predictor
from allranks.world.base import World
from allranks.world.codec import dumps, loads

# A transfer's way: the group's name, sender, receiver, tag.
Way = tuple[str, int, int, int]
# How long a wait lasts before it is told, and between two looks, in seconds; what is seen twice counts.
_PATIENCE, _LOOK = 0.5, 0.25
_KEYS = "lockstep/transfers/"
_REMEDY = "Every send needs one receive of the same form, group and tag, and both ranks the same order of them."
_REMEMBERED = 1024


@dataclass(frozen=True, slots=True)
class Post:
    """A send or receive that this rank has begun: the ``number``-th on its way."""

    way: Way
    number: int
    sends: bool
    form: str
    foretold: bool
    expected: str | None
    where: str

    @property
    def key(self) -> tuple[Way, bool]:
        return self.way, self.sends

    def words(self) -> str:
        _, sender, receiver, tag = self.way
        verb = f"sends {self.form} to rank {receiver}" if self.sends else f"receives {self.form} from rank {sender}"
        details = [f"number {self.number}", f"tag {tag}" if tag else "", self.where]
        return f"{verb} ({', '.join(filter(None, details))})"


class Transfers:
    """All sends and receives of one rank. ``judge`` is called, in a thread of ours, with the error of a rank that is in
    a call in which it cannot be told."""

    def __init__(self, world: World, judge: Callable[[Mismatch], None]) -> None:
        self._world = world
        self._judge = judge
        self._forms: dict[tuple[Way, bool], Predictor[str]] = {}
        self._received: dict[tuple[Way, int], str] = {}
        self._announced: dict[tuple[Way, int], str] = {}
        self._told = [0] * world.size
        self._heard = 0
        self._waits: tuple[Post, float] | None = None
        self._lock = threading.Lock()
        self._watches = False

    def post(self, way: Way, form: str, where: str, *, sends: bool) -> Post:
        """Begin a send or receive: call it before it starts. Raises Mismatch for a receive of another form than was
        announced."""
        form = sys.intern(form)
        forms = self._forms.setdefault((way, sends), Predictor())
        expected = forms.expected
        post = Post(way, forms.count + 1, sends, form, expected is form, expected, where)
        if expected is form:
            forms.advance()
        elif sends:
            self._announce(post)
            forms.learn(form)
        else:
            forms.learn(form)
        if not sends:
            self._received[way, post.number] = form
            self._received.pop((way, post.number - _REMEMBERED), None)
            self._compare(way, post.number)
        return post

    def arrived(self, post: Post) -> None:
        """Compare a receive, whose data has come, with what was sent. Raises Mismatch where that has another form."""
        if post.foretold or post.sends:
            return
        self.hear()
        sent = self._announced.pop((post.way, post.number), None) or post.expected
        if sent is not None and sent != post.form:
            raise self._mismatch(post.way, post.number, sent, post.form)

    @contextmanager
    def waiting(self, post: Post) -> Iterator[None]:
        """Wait for a transfer in this block."""
        self._waits = post, time.monotonic()
        if not self._watches:
            self._watches = True
            threading.Thread(target=self._watch, name="allranks-lockstep-transfers", daemon=True).start()
        try:
            yield
        finally:
            self._waits = None

    def hear(self) -> Mismatch | None:
        """Read what was announced to this rank; return the error of what it has received otherwise. Any thread may."""
        if not self._forms:
            return None
        with self._lock:
            while text := self._world.store.get(f"{_KEYS}{self._world.rank}/{self._heard}"):
                *way, number, form = loads(text)
                self._announced[tuple(way), number] = form
                self._heard += 1
        for way_, number_ in list(self._announced):
            try:
                self._compare(way_, number_)
            except Mismatch as error:
                return error
        return None

    def _announce(self, post: Post) -> None:
        receiver = post.way[2]
        document = dumps([*post.way, post.number, post.form])
        for i in count(self._told[receiver]):
            if self._world.store.claim(f"{_KEYS}{receiver}/{i}", document) == document:
                self._told[receiver] = i + 1
                break
        self._world.listener.ring()

    def _compare(self, way: Way, number: int) -> None:
        """Raise Mismatch if what was announced is not what is received; what agrees is forgotten."""
        sent, received = self._announced.get((way, number)), self._received.get((way, number))
        if sent is None or received is None:
            return
        if sent != received:
            raise self._mismatch(way, number, sent, received)

    def _mismatch(self, way: Way, number: int, sent: str, received: str) -> Mismatch:
        _, sender, receiver, tag = way
        return Mismatch(
            f"rank {self._world.rank}: lockstep: transfer {number} from rank {sender} to rank {receiver} (tag {tag}) "
            f"differs: rank {sender} sends {sent}; rank {receiver} receives {received}.",
            ranks=(sender, receiver),
            remedy=_REMEDY,
        )

    def _watch(self) -> None:
        """Tell for what this rank waits, and look whether those that it waits for wait for it."""
        seen: list[tuple[int, Any]] = []
        key, beat = f"{_KEYS}waits/{self._world.rank}", 0
        while True:
            time.sleep(_LOOK)
            waits = self._waits
            if waits is None or time.monotonic() - waits[1] < _PATIENCE:
                if beat:
                    self._world.store.delete(key)
                beat, seen = 0, []
                continue
            post, beat = waits[0], beat + 1
            posted = [[*way, sends, forms.count] for (way, sends), forms in list(self._forms.items())]
            document = [list(post.way), post.number, post.sends, post.words(), posted, beat]
            self._world.store.set(key, dumps(document))
            ring = self._ring()
            if [(rank, wait[:-1]) for rank, wait in ring] != [(rank, wait[:-1]) for rank, wait in seen]:
                seen = ring
            elif ring and self._waits == waits and _have_all_said_so_since(ring, seen):
                self._judge(self._deadlock(ring))
                return

    def _ring(self) -> list[tuple[int, Any]]:
        """Return the ranks, with what they wait for, that wait for each other in a ring that this one is in."""
        rank, ring = self._world.rank, list[tuple[int, Any]]()
        while all(rank != one for one, _ in ring):
            text = self._world.store.get(f"{_KEYS}waits/{rank}")
            if text is None:
                return []
            wait = loads(text)
            way, number, sends, *_ = wait
            peer = way[2] if sends else way[1]
            other = self._world.store.get(f"{_KEYS}waits/{peer}")
            if other is None or _posted(loads(other)[4], way, not sends) >= number:
                return []
            ring.append((rank, wait))
            rank = peer
        return ring if ring[0][0] == rank else []

    def _deadlock(self, ring: Sequence[tuple[int, Any]]) -> Mismatch:
        told = "; ".join(f"rank {rank} {wait[3]}" for rank, wait in sorted(ring))
        return Mismatch(
            f"rank {self._world.rank}: lockstep: ranks wait for each other: {told}. None of them has posted what "
            "the other one waits for.",
            ranks=sorted(rank for rank, _ in ring),
            remedy=_REMEDY,
        )


def _have_all_said_so_since(ring: Sequence[tuple[int, Any]], seen: Sequence[tuple[int, Any]]) -> bool:
    return all(wait[-1] > before[-1] for (_, wait), (_, before) in zip(ring, seen, strict=True))


def _posted(posted: Sequence[Sequence[Any]], way: Sequence[Any], sends: bool) -> int:
    """Return how many transfers a rank has posted on its side of a way."""
    known: Mapping[tuple[Any, ...], int] = {tuple(one[:-1]): one[-1] for one in posted}
    return known.get((*way, sends), 0)
