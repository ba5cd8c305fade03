"""Share failures, and queries between ranks, in the store. Adding a failure or a query wakes all ranks.

failure/<rank>          how the rank failed
heard/<rank>            the rank has learnt of a failure
ask/<query>             the ranks that are queried
answer/<query>/<rank>   the answer of one rank to a query
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from allranks.failure import Failure
from allranks.world.codec import dumps, loads
from allranks.world.failure_listener import HearingStore, WakeUp


class SharedStore(HearingStore, Protocol):
    """A store that several processes use. One of these processes may serve it."""

    def serves(self) -> bool:
        """Return whether the other ranks lose the store when this process ends."""

    def at_end(self, farewell: Callable[[], None]) -> None:
        """Call ``farewell`` when the process ends normally. It is the last moment at which ``leave`` can be called."""

    def leave(self, stop: Callable[[], None]) -> None:
        """Wait until no other rank needs this process for the store, end ``hear``, and call ``stop``."""


class FailureTable:
    """One rank's access to the failure table.

    Only one thread may call ``wake_up.hear``; any thread may call the rest.
    """

    def __init__(self, store: SharedStore, rank: int) -> None:
        self.wake_up = WakeUp(store)
        self._store = store
        self._rank = rank
        self._answered: set[str] = set()
        self._asked = 0

    def post_failure(self, failure: Failure) -> None:
        """Record how a rank failed, unless a failure of this rank is recorded already, and wake the other ranks."""
        self._store.claim(f"failure/{failure.rank}", failure.to_json().encode())
        self.wake_up.wake()

    def failures(self) -> tuple[Failure, ...]:
        return tuple(Failure.from_json(text.decode()) for text in self._store.list("failure/").values())

    def query(self, ranks: Sequence[int]) -> str:
        """Send a query to ranks: where are they? Return the name of the query, for ``await_answer`` and ``answers``."""
        self._asked += 1
        question = f"{self._rank}-{self._asked}"
        self._store.set(f"ask/{question}", dumps(list(ranks)))
        self.wake_up.wake()
        return question

    def await_answer(self, question: str, rank: int, timeout: float) -> None:
        """Wait for one rank's answer to a query. Raises KeyTimeout after ``timeout`` seconds."""
        self._store.wait(f"answer/{question}/{rank}", timeout)

    def answers(self, question: str) -> dict[int, str]:
        """Return the answers that have arrived for a query, by rank, and delete the query."""
        found = self._store.list(f"answer/{question}/")
        self._store.delete(f"ask/{question}")
        return {int(key.rpartition("/")[2]): text.decode() for key, text in found.items()}

    def questions(self) -> tuple[str, ...]:
        """Return the names of the queries to this rank that it has not answered."""
        asked = {key.removeprefix("ask/"): loads(ranks) for key, ranks in self._store.list("ask/").items()}
        return tuple(q for q, ranks in asked.items() if self._rank in ranks and q not in self._answered)

    def answer(self, question: str, where: str) -> None:
        self._answered.add(question)
        self._store.set(f"answer/{question}/{self._rank}", where.encode())

    def confirm(self) -> None:
        """Record that this rank has learnt of a failure, and no longer needs the store."""
        self._store.set(f"heard/{self._rank}", b"1")

    def confirmed(self) -> set[int]:
        """Return the ranks that have learnt of a failure."""
        return {int(key.removeprefix("heard/")) for key in self._store.list("heard/")}
