"""Let all ranks act at the same call after one rank got a notice: SIGTERM, a clock, a request.

Every rank calls ``arrived(k)`` for k = 1, 2, ... at the same points of its program, once a training step. It never
waits for the other ranks there. A notice may reach any rank at any time, and the main threads may be in a collective,
each in another step. So the listening threads vote. Each thread freezes its rank's counter (a main thread that reaches
its next call now waits) and publishes it. Rank 0 computes the target, one more than the highest counter. Each thread
reads the target and releases its main thread. No rank had begun its target-th call when its counter was frozen, and all
ranks will reach that call, so they act at the same call. A main thread in a collective delays no other rank: its
counter does not change.

Keys below ``<name>/<n>/``, for the n-th vote:

- ``what``: the notice. A second rank with another notice finds it there (``claim``).
- ``at/<rank>``: the rank's frozen counter.
- ``target``: the call, or the ranks that did not answer. It is claimed, so there is one outcome for all ranks.

A rank that is to leave has a grace period, then it is killed. After half of the grace, rank 0 reports where the ranks
are that have not reached the call at which all ranks leave (`allranks.world.overdue`).
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from allranks.errors import BarrierTimeout, KeyTimeout, StoreError
from allranks.world import departures, overdue
from allranks.world.base import World
from allranks.world.codec import Json, dumps, loads

Kind = Literal["save", "leave"]
# "leave" is to save, and then to leave.
_WEIGHT: dict[Kind, int] = {"save": 0, "leave": 1}
# How long the ranks have to answer a vote; the others give rank 0 this much more to say the target.
PATIENCE = 30.0
_GRACE = 5.0
# How many seconds a main thread waits before it checks again whether the vote is over.
_NAP = 1.0
# Seconds between two checks whether a rank that is to answer has ended.
_LOOK = 1.0


@dataclass(frozen=True, slots=True)
class Notice:
    """A notice that reached rank ``rank``: to save, or to leave. ``why`` is the reason, for people."""

    kind: Kind
    why: str
    rank: int

    def covers(self, other: Notice) -> bool:
        return _WEIGHT[self.kind] >= _WEIGHT[other.kind]


def decide(counters: Mapping[int, int]) -> int:
    """Return the number of the call at which all ranks act: the first call that no rank has begun.

    ``counters`` has, for each rank, the number of the last call that the rank has begun.
    """
    return max(counters.values()) + 1


class Notices:
    """The notices of one rank. Every rank must make one, and call ``arrived`` at the same points of its program.

    - ``name``: the name of its votes. Votes of different names are independent.
    - ``patience``: how many seconds a rank may be silent in a vote, because it is stopped or its machine has failed.
    - ``call``: what a call is, for messages.
    """

    def __init__(
        self, world: World, *, name: str = "notice", patience: float = PATIENCE, call: str = "training step"
    ) -> None:
        self._name, self._call = name, call
        self._world = world
        self._store = world.store
        self._patience = patience
        self._lock = threading.Lock()
        self._count = 0
        self._vote = 1  # the next one, or that for which the counter is frozen
        self._frozen = False
        self._targets: dict[int, Notice] = {}
        self._failure: BarrierTimeout | None = None
        self._leaving = False
        world.listener.on_wake(self._answer_votes)

    @property
    def is_leaving(self) -> bool:
        """Whether the ranks have agreed on a call at which all of them leave."""
        return self._leaving

    def raise_notice(self, kind: Kind, why: str) -> None:
        """Make all ranks act at one of their next calls. Any rank and any thread may call; returns at once.

        A notice during a pending vote joins that vote if the pending notice covers it ("leave" covers "save"). After a
        notice to leave, further notices are ignored.
        """
        if self._leaving:
            return
        notice, vote = Notice(kind, why, self._world.rank), self._vote
        mine = dumps(asdict(notice))
        while (there := self._store.claim(f"{self._name}/{vote}/what", mine)) != mine:
            if Notice(**loads(there)).covers(notice):
                return
            vote += 1
        self._world.listener.wake()

    def arrived(self, call: int) -> Notice | None:
        """Record that this rank begins its ``call``-th call (1, 2, ...). Return the notice for this call, or None.

        All ranks act on the notice at this call. Waits only during a vote. If the vote on a notice to leave failed,
        raises BarrierTimeout once, on every rank.
        """
        notice = self._take_notice(call)
        if notice is not None and notice.kind == "leave":
            with contextlib.suppress(StoreError):
                overdue.record_arrival(self._world)
        return notice

    def _take_notice(self, call: int) -> Notice | None:
        while True:
            with self._lock:
                if not self._frozen:
                    self._count = call
                    return self._due_notice() if self._targets or self._failure else None
                vote = self._vote
            try:
                self._apply_outcome(vote, loads(self._store.wait(f"{self._name}/{vote}/target", _NAP)))
            except KeyTimeout:
                continue

    def _due_notice(self) -> Notice | None:
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        return self._targets.pop(self._count, None)

    def _answer_votes(self) -> None:
        """Answer all open votes of this rank."""
        while (what := self._store.get(f"{self._name}/{self._vote}/what")) is not None:
            self._answer_vote(self._vote, Notice(**loads(what)))

    def _answer_vote(self, vote: int, notice: Notice) -> None:
        with self._lock:
            self._frozen = True
            count = self._count
        self._store.set(f"{self._name}/{vote}/at/{self._world.rank}", dumps(count))
        deadline = self._world.clock.now() + self._patience
        if self._world.is_main:
            outcome = self._claim_outcome(vote, {"notice": asdict(notice), **self._count_all(vote, deadline)})
        elif (target := self._wait_for_key(f"{self._name}/{vote}/target", 0, deadline + _GRACE)) is not None:
            outcome = loads(target)
        else:
            outcome = self._claim_outcome(vote, {"notice": asdict(notice), "missing": self._missing_ranks([0])})
        self._apply_outcome(vote, outcome)

    def _count_all(self, vote: int, deadline: float) -> Json:
        """Return the target of a vote, or the ranks that did not answer. Only rank 0 calls."""
        counters: dict[int, int] = {}
        for rank in range(self._world.size):
            answer = self._wait_for_key(f"{self._name}/{vote}/at/{rank}", rank, deadline)
            if answer is None:
                answered = self._store.list(f"{self._name}/{vote}/at/")
                missing = [r for r in range(self._world.size) if f"{self._name}/{vote}/at/{r}" not in answered]
                return {"missing": self._missing_ranks(missing)}
            counters[rank] = loads(answer)
        return {"target": decide(counters)}

    def _wait_for_key(self, key: str, rank: int, deadline: float) -> bytes | None:
        """Wait for a key that ``rank`` is to set.

        Return None if the rank has ended, or does not set it before the deadline.
        """
        clock = self._world.clock
        while True:
            try:
                return self._store.wait(key, max(0.0, min(_LOOK, deadline - clock.now())))
            except KeyTimeout:
                if clock.now() >= deadline or rank in departures.read_ended(self._store):
                    return None

    def _missing_ranks(self, ranks: Sequence[int]) -> Json:
        dead = departures.read_ended(self._store)
        return [[rank, dead.get(rank, f"gave no sign for {self._patience:g} s")] for rank in ranks]

    def _claim_outcome(self, vote: int, outcome: Json) -> Json:
        return loads(self._store.claim(f"{self._name}/{vote}/target", dumps(outcome)))

    def _apply_outcome(self, vote: int, outcome: Json) -> None:
        """Apply the outcome of a vote, and release the main thread. The first thread that learns the outcome calls."""
        notice = Notice(**outcome["notice"])
        with self._lock:
            if vote != self._vote:
                return
            if "target" in outcome:
                before = self._targets.get(outcome["target"])
                if before is None or not before.covers(notice):
                    self._targets[outcome["target"]] = notice
                self._leaving |= notice.kind == "leave"
            else:
                self._set_failure(notice, outcome["missing"])
            self._frozen = False
            self._vote += 1
        if self._leaving and self._world.is_main and self._world.backend != "simulated":
            overdue.watch_late_ranks(self._world, self._name, why=f"{notice.why} came", call=self._call)

    def _set_failure(self, notice: Notice, missing: list[tuple[int, str]]) -> None:
        told = "; ".join(f"rank {rank} (host {self._world.hosts[rank]}) {why}" for rank, why in missing)
        failure = BarrierTimeout(
            f"rank {self._world.rank}: all ranks were to {notice.kind} at the same call ({notice.why}), but {told}.",
            ranks=[rank for rank, _ in missing],
            remedy="Nothing was saved because of it.",
        )
        if notice.kind == "leave":
            self._failure = failure
        if self._world.rank in (0, notice.rank):
            print(f"allranks: {failure}", file=sys.stderr)
