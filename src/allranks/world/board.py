"""The notice board in the store: what every rank must hear of at once, and a bell that wakes them all.

``bell/<n>`` is the n-th ring. Who has news first puts them up, then rings a bell that has not rung yet. Whoever hears
it reads the board after that, and so sees the news; two who ring one bell at a time do no harm. Nothing here needs an
atomic counter, which a rank that dies half-way would leave behind broken.

    failure/<rank>          how a rank failed
    heard/<rank>            it has heard of a failure
    ask/<question>          ranks that are asked where they are          answer/<question>/<rank>    their answers
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from allranks.failure import Failure
from allranks.world.codec import dumps, loads
from allranks.world.store import KeyValueStore


class HearingStore(KeyValueStore, Protocol):
    """A store of several processes, in which a thread may listen until the process ends."""

    def hear(self, key: str) -> bool:
        """Wait for a key without a deadline. False once this process has begun to leave the store."""

    def serves(self) -> bool:
        """Say whether the other ranks lose the store when this process ends."""

    def at_end(self, farewell: Callable[[], None]) -> None:
        """Have ``farewell`` called when the process ends in order, at the last moment to call ``leave``."""

    def leave(self, stop: Callable[[], None]) -> None:
        """Leave the store: wait until nobody needs this process for it, end ``hear``, and call ``stop``."""


class Board:
    """One rank's view. ``hear`` is for one thread; the rest for any."""

    def __init__(self, store: HearingStore, rank: int) -> None:
        self._store = store
        self._rank = rank
        self._heard = 0
        self._answered: set[str] = set()
        self._asked = 0

    def hear(self) -> bool:
        """Wait for the next ring. False when there will be none any more."""
        if not self._store.hear(f"bell/{self._heard + 1}"):
            return False
        self._heard += 1
        return True

    def post_failure(self, failure: Failure) -> None:
        """Put up how a rank failed, unless that is known, and ring."""
        self._store.claim(f"failure/{failure.rank}", failure.to_json().encode())
        self._ring()

    def failures(self) -> tuple[Failure, ...]:
        return tuple(Failure.from_json(text.decode()) for text in self._store.list("failure/").values())

    def ask(self, ranks: Sequence[int]) -> str:
        """Ask ranks where they are; return the question's name."""
        self._asked += 1
        question = f"{self._rank}-{self._asked}"
        self._store.set(f"ask/{question}", dumps(list(ranks)))
        self._ring()
        return question

    def await_answer(self, question: str, rank: int, timeout: float) -> None:
        """Wait for one rank's answer. Raises KeyTimeout."""
        self._store.wait(f"answer/{question}/{rank}", timeout)

    def answers(self, question: str) -> dict[int, str]:
        """Return what the ranks answered so far, by rank, and take the question down."""
        found = self._store.list(f"answer/{question}/")
        self._store.delete(f"ask/{question}")
        return {int(key.rpartition("/")[2]): text.decode() for key, text in found.items()}

    def questions(self) -> tuple[str, ...]:
        """Return the questions to this rank that it has not answered."""
        asked = {key.removeprefix("ask/"): loads(ranks) for key, ranks in self._store.list("ask/").items()}
        return tuple(q for q, ranks in asked.items() if self._rank in ranks and q not in self._answered)

    def answer(self, question: str, where: str) -> None:
        self._answered.add(question)
        self._store.set(f"answer/{question}/{self._rank}", where.encode())

    def confirm(self) -> None:
        """Say that this rank has heard of a failure, and needs the store no more."""
        self._store.set(f"heard/{self._rank}", b"1")

    def confirmed(self) -> set[int]:
        """Return the ranks that have heard of a failure."""
        return {int(key.removeprefix("heard/")) for key in self._store.list("heard/")}

    def _ring(self) -> None:
        bell = self._heard + 1
        while self._store.get(f"bell/{bell}") is not None:
            bell += 1
        self._store.set(f"bell/{bell}", b"1")
