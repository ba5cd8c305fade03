"""Check that each send fits its receive: the n-th send on a channel (group, sender, receiver, tag) and the n-th
receive.

The form of a transfer is its dtype and its number of elements. A pair of a send and a receive needs no agreement.
Either rank may be first, in any order with other pairs, and continue. Each rank predicts the next form by one rule from
the forms before (predictor.py). A sender whose next form was not predicted announces the form before it sends. A
receiver whose next form was not predicted looks for the announcement when the data has arrived. If there is none, the
sender has sent the predicted form. If the receiver's form was predicted, its monitor compares announcements. So
different forms are found, and a loop sends no message.

A rank that waits for a transfer for a moment reports which transfer, and how many it has posted itself. Ranks that wait
in a cycle, each for a transfer that the next rank has not posted, wait for ever.

Keys in the store, below ``lockstep/transfers/``:

- ``<rank>/<i>``: what is announced to a receiver.
- ``waits/<rank>``: the transfer for which a rank waits.
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
from allranks.gate.lockstep.predictor import CallPredictor
from allranks.world.base import World
from allranks.world.codec import dumps, loads

# A channel: the group's name, sender, receiver, tag.
Channel = tuple[str, int, int, int]
# How long a wait lasts before it is reported, and seconds between two checks; what is seen twice counts.
_PATIENCE, _INTERVAL = 0.5, 0.25
_KEYS = "lockstep/transfers/"
_REMEDY = "Every send needs one receive of the same form, group and tag, and both ranks the same order of them."
_REMEMBERED = 1024


@dataclass(frozen=True, slots=True)
class PostedTransfer:
    """A send or receive that this rank has posted: the ``number``-th in its direction on its channel."""

    channel: Channel
    number: int
    sends: bool
    form: str
    predicted: bool
    expected: str | None
    where: str

    @property
    def key(self) -> tuple[Channel, bool]:
        return self.channel, self.sends

    def describe_transfer(self) -> str:
        _, sender, receiver, tag = self.channel
        verb = f"sends {self.form} to rank {receiver}" if self.sends else f"receives {self.form} from rank {sender}"
        details = [f"number {self.number}", f"tag {tag}" if tag else "", self.where]
        return f"{verb} ({', '.join(filter(None, details))})"


class TransferMonitor:
    """All sends and receives of one rank.

    ``on_deadlock`` is called, in a thread of ours, with the error for a rank that waits in a call and cannot raise it.
    """

    def __init__(self, world: World, on_deadlock: Callable[[Mismatch], None]) -> None:
        self._world = world
        self._on_deadlock = on_deadlock
        self._forms: dict[tuple[Channel, bool], CallPredictor[str]] = {}
        self._received: dict[tuple[Channel, int], str] = {}
        self._announced: dict[tuple[Channel, int], str] = {}
        self._announced_count = [0] * world.size
        self._read_count = 0
        self._waits: tuple[PostedTransfer, float] | None = None
        self._lock = threading.Lock()
        self._is_watching = False

    def post_transfer(self, channel: Channel, data_form: str, call_line: str, *, sends: bool) -> PostedTransfer:
        """Record a send or receive, and return its PostedTransfer. Call this before the send or receive starts.

        Raises Mismatch if the sender has announced another form.
        """
        data_form = sys.intern(data_form)
        forms = self._forms.setdefault((channel, sends), CallPredictor())
        expected = forms.expected
        post = PostedTransfer(channel, forms.count + 1, sends, data_form, expected is data_form, expected, call_line)
        if expected is data_form:
            forms.count_predicted_call()
        elif sends:
            self._announce_transfer(post)
            forms.count_agreed_call(data_form)
        else:
            forms.count_agreed_call(data_form)
        if not sends:
            self._received[channel, post.number] = data_form
            self._received.pop((channel, post.number - _REMEMBERED), None)
            self._compare_forms(channel, post.number)
        return post

    def compare_receive(self, post: PostedTransfer) -> None:
        """Compare a receive, whose data has arrived, with what was sent; raise Mismatch if the forms differ."""
        if post.predicted or post.sends:
            return
        self.read_announcements()
        sent = self._announced.pop((post.channel, post.number), None) or post.expected
        if sent is not None and sent != post.form:
            raise self._mismatch_of_transfer(post.channel, post.number, sent, post.form)

    @contextmanager
    def record_waiting(self, post: PostedTransfer) -> Iterator[None]:
        """Record in this block that the rank waits for a transfer, so that a deadlock is found."""
        self._waits = post, time.monotonic()
        if not self._is_watching:
            self._is_watching = True
            threading.Thread(target=self._watch_waits, name="allranks-lockstep-transfers", daemon=True).start()
        try:
            yield
        finally:
            self._waits = None

    def read_announcements(self) -> Mismatch | None:
        """Read the announcements to this rank; return the Mismatch that they show, or None. For any thread."""
        if not self._forms:
            return None
        with self._lock:
            while text := self._world.store.get(f"{_KEYS}{self._world.rank}/{self._read_count}"):
                *channel, number, form = loads(text)
                self._announced[tuple(channel), number] = form
                self._read_count += 1
        for channel_, number_ in list(self._announced):
            try:
                self._compare_forms(channel_, number_)
            except Mismatch as error:
                return error
        return None

    def _announce_transfer(self, post: PostedTransfer) -> None:
        receiver = post.channel[2]
        document = dumps([*post.channel, post.number, post.form])
        for i in count(self._announced_count[receiver]):
            if self._world.store.claim(f"{_KEYS}{receiver}/{i}", document) == document:
                self._announced_count[receiver] = i + 1
                break
        self._world.listener.wake()

    def _compare_forms(self, channel: Channel, number: int) -> None:
        """Raise Mismatch if this rank receives another form than was announced."""
        sent, received = self._announced.get((channel, number)), self._received.get((channel, number))
        if sent is None or received is None:
            return
        if sent != received:
            raise self._mismatch_of_transfer(channel, number, sent, received)

    def _mismatch_of_transfer(self, channel: Channel, number: int, sent: str, received: str) -> Mismatch:
        _, sender, receiver, tag = channel
        return Mismatch(
            f"rank {self._world.rank}: lockstep: transfer {number} from rank {sender} to rank {receiver} (tag {tag}) "
            f"differs: rank {sender} sends {sent}; rank {receiver} receives {received}.",
            ranks=(sender, receiver),
            remedy=_REMEDY,
        )

    def _watch_waits(self) -> None:
        """Report the transfer for which this rank waits, and find ranks that wait for each other in a cycle."""
        seen: list[tuple[int, Any]] = []
        key, looks = f"{_KEYS}waits/{self._world.rank}", 0
        while True:
            time.sleep(_INTERVAL)
            waits = self._waits
            if waits is None or time.monotonic() - waits[1] < _PATIENCE:
                if looks:
                    self._world.store.delete(key)
                looks, seen = 0, []
                continue
            post, looks = waits[0], looks + 1
            posted = [[*channel, sends, forms.count] for (channel, sends), forms in list(self._forms.items())]
            document = [list(post.channel), post.number, post.sends, post.describe_transfer(), posted, looks]
            self._world.store.set(key, dumps(document))
            cycle = self._find_waiting_cycle()
            if [(rank, wait[:-1]) for rank, wait in cycle] != [(rank, wait[:-1]) for rank, wait in seen]:
                seen = cycle
            elif cycle and self._waits == waits and _all_repeated(cycle, seen):
                self._on_deadlock(self._deadlock_error(cycle))
                return

    def _find_waiting_cycle(self) -> list[tuple[int, Any]]:
        """Return the ranks that wait for each other in a cycle with this rank, each with its transfer."""
        rank, cycle = self._world.rank, list[tuple[int, Any]]()
        while all(rank != one for one, _ in cycle):
            text = self._world.store.get(f"{_KEYS}waits/{rank}")
            if text is None:
                return []
            wait = loads(text)
            channel, number, sends, *_ = wait
            peer = channel[2] if sends else channel[1]
            other = self._world.store.get(f"{_KEYS}waits/{peer}")
            if other is None or _posted_count(loads(other)[4], channel, not sends) >= number:
                return []
            cycle.append((rank, wait))
            rank = peer
        return cycle if cycle[0][0] == rank else []

    def _deadlock_error(self, cycle: Sequence[tuple[int, Any]]) -> Mismatch:
        reported = "; ".join(f"rank {rank} {wait[3]}" for rank, wait in sorted(cycle))
        return Mismatch(
            f"rank {self._world.rank}: lockstep: ranks wait for each other: {reported}. None of them has posted what "
            "the other one waits for.",
            ranks=sorted(rank for rank, _ in cycle),
            remedy=_REMEDY,
        )


def _all_repeated(cycle: Sequence[tuple[int, Any]], seen: Sequence[tuple[int, Any]]) -> bool:
    return all(wait[-1] > before[-1] for (_, wait), (_, before) in zip(cycle, seen, strict=True))


def _posted_count(posted: Sequence[Sequence[Any]], channel: Sequence[Any], sends: bool) -> int:
    """Return how many transfers a rank has posted on a channel, as the sender or as the receiver."""
    known: Mapping[tuple[Any, ...], int] = {tuple(one[:-1]): one[-1] for one in posted}
    return known.get((*channel, sends), 0)
