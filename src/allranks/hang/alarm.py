"""The protocol of a hang: a rank that makes no progress calls all ranks, all report where they are, one judges.

Theory. Every rank puts a beat into the store now and then, and nobody reads it: while all is well, a rank costs the
store one ``set`` a beat, however many ranks there are. The rank that first stands still for ``limit`` seconds, by its
own beats, calls: it claims the n-th hang, rings, gathers what all ranks say, and judges. Any rank can, whichever is
stuck: a rank that waits in C++ has a heartbeat thread that lives. Ranks that do not answer are known by their last
beats. Below ``hang/<n>/``:

    judge        the rank that looks into it; claimed, so there is one report
    at/<rank>    what a rank says: its beat, its stacks, and the states of the other ranks' processes on its machine
    verdict      what the judge made of it: ``reported``, or that it is too early to say

``hang/last`` is when a hang was reported last.

While the verdict is that the culprits work, it is asked for again after ``limit`` more seconds, and at last
(``PATIENCE`` times ``limit``) reported all the same. Once reported, nobody calls before he has moved.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from allranks.errors import KeyTimeout
from allranks.hang.calls import NO_CALLS, Calls
from allranks.hang.diagnose import Diagnosis, Seen, diagnose
from allranks.hang.heartbeat import Heartbeat
from allranks.world import departures
from allranks.world.base import World
from allranks.world.codec import dumps, loads

# How many times ``limit`` ranks that work may make the others wait before that is reported.
PATIENCE = 10
# How long ranks have to answer a call, in seconds, and so many of them for one second more; a rank that calls waits so
# long for another judge's verdict.
_ANSWER, _A_SECOND, _VERDICT = 1.0, 1000, 15.0
# In a larger world, each rank sends the stack of its training thread alone: all must pass through one store.
_MOST_TO_TELL_ALL = 128
_RECOVERED = 4  # beats


@dataclass(frozen=True, slots=True)
class RankSnapshot:
    """What one rank says of itself. ``near`` are the states of the processes of other ranks of its machine, ``calls``
    its last collectives of all ranks, ``notes`` what a person should know beside,
    ``branch`` the condition on the rank below which it is."""

    beat: Heartbeat
    stack: str
    threads: Mapping[str, str]
    near: Mapping[int, str]
    calls: Calls = NO_CALLS
    notes: tuple[str, ...] = ()
    branch: str = ""

    def to_json(self) -> dict[str, Any]:
        near, calls = {str(rank): state for rank, state in self.near.items()}, [self.calls.number, *self.calls.forms]
        known = {"beat": self.beat.to_json(), "stack": self.stack, "threads": dict(self.threads)}
        return {**known, "near": near, "calls": calls, "notes": list(self.notes), "branch": self.branch}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> RankSnapshot:
        near = {int(rank): state for rank, state in fields["near"].items()}
        number, *forms = fields["calls"]
        beat, calls = Heartbeat.from_json(fields["beat"]), Calls(number, tuple(forms))
        return cls(beat, fields["stack"], fields["threads"], near, calls, tuple(fields["notes"]), fields["branch"])


class Observer(Protocol):
    """How a rank sees itself."""

    def beat(self) -> Heartbeat:
        """Return the last beat."""

    def snapshot(self, *, threads: bool) -> RankSnapshot:
        """Look now; with the stacks of all ``threads``, or of the training one alone."""


@dataclass(frozen=True, slots=True)
class Case:
    """A hang, as its judge sees it."""

    limit: float
    seen: tuple[Seen, ...]
    snapshots: Mapping[int, RankSnapshot]
    diagnosis: Diagnosis

    @property
    def when(self) -> float:
        """When it was seen, in Unix seconds."""
        return max((snapshot.beat.when for snapshot in self.snapshots.values()), default=0.0)


class Alarm:
    """One rank's side. ``tick`` is for one thread, now and then; ``heard`` is for the thread that hears rings.

    ``report`` is called on the rank that judged, for each case that is to be reported; ``over`` when it has moved.
    """

    def __init__(
        self,
        world: World,
        observer: Observer,
        *,
        limit: float,
        report: Callable[[Case], None],
        over: Callable[[], None] = lambda: None,
    ) -> None:
        self._world, self._store, self._observer = world, world.store, observer
        self.limit = limit
        self._report, self._over = report, over
        self._next = 1  # the hang that this rank will answer next
        self._waits_for: tuple[int, float] | None = None  # another's verdict on this hang, until then
        self._due = limit
        self._reported = self._judged = False
        self._well = 0  # beats since which this rank moves
        world.listener.on_ring(self.heard)

    def tick(self) -> None:
        """Put the beat into the store, and call if this rank stands still."""
        beat, number = self._observer.beat(), self._next
        self._store.set(f"beat/{self._world.rank}", dumps(beat.to_json()))
        if beat.still < self.limit / 2:
            return self._moved()
        self._well = 0
        if self._waits_for is not None:
            self._read_verdict(*self._waits_for)
        elif beat.still >= self._due and not self._reported:
            self._call(number)
        return None

    def heard(self) -> None:
        """Answer every call that was not answered yet."""
        while self._store.get(f"hang/{self._next}/judge") is not None:
            snapshot = self._observer.snapshot(threads=self._world.size <= _MOST_TO_TELL_ALL)
            self._store.set(f"hang/{self._next}/at/{self._world.rank}", json.dumps(snapshot.to_json()).encode())
            self._waits_for = self._next, self._world.clock.now() + _VERDICT  # first, or ``tick`` calls once more
            self._next += 1

    def _moved(self) -> None:
        self._due = self.limit
        self._waits_for = None
        self._reported = False
        self._well += 1
        if self._judged and self._well == _RECOVERED:  # before, this may be its end
            self._judged = False
            self._over()

    def _call(self, number: int) -> None:
        mine = dumps(self._world.rank)
        judge = self._store.claim(f"hang/{number}/judge", mine)
        self._world.listener.ring()  # a judge that has claimed it may have died before it rang
        if judge == mine:
            self._settle(reported=self._judge(number))
        else:
            self._waits_for = number, self._world.clock.now() + _VERDICT

    def _read_verdict(self, number: int, until: float) -> None:
        verdict = self._store.get(f"hang/{number}/verdict")
        if verdict is not None:
            self._settle(reported=loads(verdict)["reported"])
        elif self._world.clock.now() >= until:
            self._waits_for = None

    def _settle(self, *, reported: bool) -> None:
        self._waits_for = None
        self._reported = reported
        self._due += self.limit

    def _judge(self, number: int) -> bool:
        """Find out who is waited for; return whether that was reported."""
        snapshots = self._gather(number)
        case = self._case(snapshots)
        stands = max((snapshot.beat.still for snapshot in snapshots.values()), default=0.0)
        too_early = case.diagnosis.at_work and stands < PATIENCE * self.limit
        anybody = case.diagnosis.culprits or len(case.diagnosis.waiting) == self._world.size
        reported = bool(anybody) and not too_early
        self._store.set(f"hang/{number}/verdict", dumps({"reported": reported}))
        if reported and not self._is_known(case):
            self._judged = self._world.rank not in case.diagnosis.culprits
            self._store.set("hang/last", dumps(case.when))
            self._report(case)
        return reported

    def _is_known(self, case: Case) -> bool:
        """Say whether a rank has not moved since the last report: one that polls seems to move, and calls again."""
        last = self._store.get("hang/last")
        if last is None:
            return False
        since: float = case.when - loads(last)
        stood = [one.beat.still for one in case.seen if one.beat and one.rank in case.diagnosis.waiting]
        stood += [one.beat.alike for one in case.seen if one.beat and one.rank in case.diagnosis.culprits]
        return max(stood, default=0.0) > since

    def _gather(self, number: int) -> dict[int, RankSnapshot]:
        """Return what the ranks say, once all that are not known to have ended have, or their time is over."""
        world = self._world
        deadline = world.clock.now() + _ANSWER + world.size / _A_SECOND
        while True:
            said = self._store.list(f"hang/{number}/at/")
            snapshots = {
                int(key.rpartition("/")[2]): RankSnapshot.from_json(json.loads(text)) for key, text in said.items()
            }
            missing = sorted(set(range(world.size)).difference(snapshots, departures.read(self._store)))
            left = deadline - world.clock.now()
            if not missing or left <= 0:
                return snapshots
            try:
                self._store.wait(f"hang/{number}/at/{missing[0]}", min(left, 0.5))
            except KeyTimeout:
                continue

    def _case(self, snapshots: Mapping[int, RankSnapshot]) -> Case:
        ended = departures.read(self._store)
        near = {rank: state for snapshot in snapshots.values() for rank, state in snapshot.near.items()}
        last: dict[str, bytes] = {} if len(snapshots) == self._world.size else self._store.list("beat/")
        now, seen = max((snapshot.beat.when for snapshot in snapshots.values()), default=0.0), []
        for rank in range(self._world.size):
            snapshot, old = snapshots.get(rank), last.get(f"beat/{rank}")
            beat = snapshot.beat if snapshot else Heartbeat.from_json(loads(old)) if old else None
            # One that beats is not mute: its machine may only be too busy for an answer in time.
            fresh = beat is not None and now - beat.when < self.limit / 2
            calls, branch = (snapshot.calls, snapshot.branch) if snapshot else (NO_CALLS, "")
            seen.append(Seen(rank, beat, fresh, ended.get(rank, ""), near.get(rank, ""), calls, branch))
        return Case(self.limit, tuple(seen), snapshots, diagnose(seen, limit=self.limit))
