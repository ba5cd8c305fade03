"""Run the protocol of a hang: one rank detects it, all ranks report where they are, and one rank judges.

Every rank puts its heartbeat into the store now and then. Nobody reads the heartbeats while there is no hang, so a rank
costs the store one ``set`` a heartbeat, however many ranks there are. The first rank whose own heartbeats show no
progress for ``limit`` seconds starts the protocol. It claims the n-th hang, wakes the other ranks, gathers their
reports, and judges. Any rank can do that, whichever rank is stuck: also a rank that waits in C++ has a heartbeat thread
that runs. A rank that does not answer is judged by its last heartbeat. The keys in the store are:

- ``hang/<n>/judge``: the rank that judges. The key is claimed, so there is one report.
- ``hang/<n>/at/<rank>``: a rank's report: its heartbeat, its stacks, and the states of other ranks on its machine.
- ``hang/<n>/verdict``: the judge's verdict: ``reported``, or that it is too early to report.
- ``hang/last``: when a hang was last reported.

The stage of a rank (a step, an evaluation, a checkpoint) sets its limit. A rank starts the protocol by its own limit.
The hang is reported by the limit of the ranks that cause the wait.

If the verdict is that the ranks that cause the wait still work, the ranks are queried again after ``limit`` more
seconds. After ``PATIENCE`` times ``limit`` the hang is reported in any case. If the user has set the limit of their
stage, that limit holds whether they work or not. After a report, a rank does not start the protocol again before it has
made progress.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from allranks.errors import KeyTimeout
from allranks.hang.calls import NO_CALLS, RecentCalls
from allranks.hang.diagnose import Diagnosis, RankObservation, diagnose
from allranks.hang.heartbeat import Heartbeat
from allranks.launch.hang_limits import STEP, HangLimits
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
    """The report of one rank.

    ``near`` maps other ranks of its machine to the states of their processes. ``calls`` are its last collectives of all
    ranks. ``notes`` are further lines for the user. ``branch`` is the condition on the rank under which its code runs.
    """

    heartbeat: Heartbeat
    stack: str
    threads: Mapping[str, str]
    near: Mapping[int, str]
    calls: RecentCalls = NO_CALLS
    notes: tuple[str, ...] = ()
    branch: str = ""

    def to_json(self) -> dict[str, Any]:
        near, calls = {str(rank): state for rank, state in self.near.items()}, [self.calls.number, *self.calls.forms]
        known = {"beat": self.heartbeat.to_json(), "stack": self.stack, "threads": dict(self.threads)}
        return {**known, "near": near, "calls": calls, "notes": list(self.notes), "branch": self.branch}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> RankSnapshot:
        near = {int(rank): state for rank, state in fields["near"].items()}
        number, *forms = fields["calls"]
        heartbeat, calls = Heartbeat.from_json(fields["beat"]), RecentCalls(number, tuple(forms))
        return cls(heartbeat, fields["stack"], fields["threads"], near, calls, tuple(fields["notes"]), fields["branch"])


class RankObserver(Protocol):
    """What the alarm needs to know of its own rank."""

    def heartbeat(self) -> Heartbeat:
        """Return the last heartbeat of this rank."""

    def snapshot(self, *, threads: bool) -> RankSnapshot:
        """Return the present state of this rank.

        With ``threads`` it has the stacks of all threads, otherwise only that of the training thread.
        """


@dataclass(frozen=True, slots=True)
class HangCase:
    """A hang, with the reports that the judging rank has gathered. ``rule`` says which limit it exceeds."""

    limit: float
    seen: tuple[RankObservation, ...]
    snapshots: Mapping[int, RankSnapshot]
    diagnosis: Diagnosis
    rule: str = ""

    @property
    def when(self) -> float:
        """The time at which the hang was seen, in Unix seconds."""
        return max((snapshot.heartbeat.when for snapshot in self.snapshots.values()), default=0.0)


class HangAlarm:
    """One rank's part of the protocol.

    One thread must call ``tick`` now and then. The thread that waits for wake-ups must call ``heard``. On the judging
    rank, ``report`` is called for each case to report, and ``over`` when that rank has made progress again.
    """

    def __init__(
        self,
        world: World,
        observer: RankObserver,
        *,
        limits: HangLimits,
        report: Callable[[HangCase], None],
        over: Callable[[], None] = lambda: None,
    ) -> None:
        self._world, self._store, self._observer = world, world.store, observer
        self._limits = limits
        self._limit = limits.step  # of this rank's stage
        self._report, self._over = report, over
        self._next = 1  # the hang that this rank will answer next
        self._waits_for: tuple[int, float] | None = None  # another's verdict on this hang, until then
        self._due = 0.0
        self._reported = self._judged = False
        self._well = 0  # beats since which this rank moves
        world.listener.on_wake(self.heard)

    def tick(self) -> None:
        """Put this rank's heartbeat into the store, and start the protocol of a hang if this rank makes no progress."""
        heartbeat, number = self._observer.heartbeat(), self._next
        self._store.set(f"beat/{self._world.rank}", dumps(heartbeat.to_json()))
        self._limit = self._limits.of(heartbeat.stage)
        if heartbeat.still < self._limit / 2:
            return self._reset_after_progress()
        self._well = 0
        if self._waits_for is not None:
            self._read_verdict(*self._waits_for)
        elif heartbeat.still >= max(self._limit, self._due) and not self._reported:
            self._claim_judge(number)
        return None

    def heard(self) -> None:
        """Put this rank's report into the store for every hang that it has not answered yet."""
        while self._store.get(f"hang/{self._next}/judge") is not None:
            snapshot = self._observer.snapshot(threads=self._world.size <= _MOST_TO_TELL_ALL)
            self._store.set(f"hang/{self._next}/at/{self._world.rank}", json.dumps(snapshot.to_json()).encode())
            self._waits_for = self._next, self._world.clock.now() + _VERDICT  # first, or ``tick`` calls once more
            self._next += 1

    def _reset_after_progress(self) -> None:
        self._due = 0.0
        self._waits_for = None
        self._reported = False
        self._well += 1
        if self._judged and self._well == _RECOVERED:  # before, this may be its end
            self._judged = False
            self._over()

    def _claim_judge(self, number: int) -> None:
        mine = dumps(self._world.rank)
        judge = self._store.claim(f"hang/{number}/judge", mine)
        self._world.listener.wake()  # a judge that has claimed it may have died before it rang
        if judge == mine:
            self._finish_judgement(*self._judge_hang(number))
        else:
            self._waits_for = number, self._world.clock.now() + _VERDICT

    def _read_verdict(self, number: int, until: float) -> None:
        verdict = self._store.get(f"hang/{number}/verdict")
        if verdict is not None:
            known = loads(verdict)
            self._finish_judgement(known["reported"], known["after"])
        elif self._world.clock.now() >= until:
            self._waits_for = None

    def _finish_judgement(self, reported: bool, after: float) -> None:
        self._waits_for = None
        self._reported = reported
        self._due = max(after, max(self._limit, self._due) + self._limit)

    def _judge_hang(self, number: int) -> tuple[bool, float]:
        """Find the ranks for which the others wait, and report the hang.

        Return whether it was reported, and before how many seconds without progress it is not. A hang counts as
        reported also if an earlier report has described it.
        """
        snapshots = self._gather_reports(number)
        case, after = self._build_case(snapshots)
        stands = max((snapshot.heartbeat.still for snapshot in snapshots.values()), default=0.0)
        too_early = stands < after * (PATIENCE if case.diagnosis.at_work else 1)
        anybody = case.diagnosis.culprits or len(case.diagnosis.waiting) == self._world.size
        reported = bool(anybody) and not too_early
        self._store.set(f"hang/{number}/verdict", dumps({"reported": reported, "after": after}))
        if reported and not self._is_known(case):
            self._judged = self._world.rank not in case.diagnosis.culprits
            self._store.set("hang/last", dumps(case.when))
            self._report(case)
        return reported, after

    def _is_known(self, case: HangCase) -> bool:
        """Return whether the last report has described this hang: some rank has made no progress since that report.

        A rank that polls seems to make progress, and so starts the protocol again.
        """
        last = self._store.get("hang/last")
        if last is None:
            return False
        since: float = case.when - loads(last)
        seconds_in_place = [
            one.heartbeat.still for one in case.seen if one.heartbeat and one.rank in case.diagnosis.waiting
        ]
        seconds_in_place += [
            one.heartbeat.alike for one in case.seen if one.heartbeat and one.rank in case.diagnosis.culprits
        ]
        return max(seconds_in_place, default=0.0) > since

    def _gather_reports(self, number: int) -> dict[int, RankSnapshot]:
        """Return the reports by rank, as soon as every rank that has not ended has reported, or at the deadline."""
        world = self._world
        deadline = world.clock.now() + _ANSWER + world.size / _A_SECOND
        while True:
            said = self._store.list(f"hang/{number}/at/")
            snapshots = {
                int(key.rpartition("/")[2]): RankSnapshot.from_json(json.loads(text)) for key, text in said.items()
            }
            missing = sorted(set(range(world.size)).difference(snapshots, departures.read_ended(self._store)))
            left = deadline - world.clock.now()
            if not missing or left <= 0:
                return snapshots
            try:
                self._store.wait(f"hang/{number}/at/{missing[0]}", min(left, 0.5))
            except KeyTimeout:
                continue

    def _build_case(self, snapshots: Mapping[int, RankSnapshot]) -> tuple[HangCase, float]:
        """Return the case, and the limit of the stage of the ranks that cause the wait."""
        ended = departures.read_ended(self._store)
        near = {rank: state for snapshot in snapshots.values() for rank, state in snapshot.near.items()}
        last: dict[str, bytes] = {} if len(snapshots) == self._world.size else self._store.list("beat/")
        now, seen = max((snapshot.heartbeat.when for snapshot in snapshots.values()), default=0.0), []
        for rank in range(self._world.size):
            snapshot, old = snapshots.get(rank), last.get(f"beat/{rank}")
            heartbeat = snapshot.heartbeat if snapshot else Heartbeat.from_json(loads(old)) if old else None
            # One that beats is not mute: its machine may only be too busy for an answer in time.
            fresh = heartbeat is not None and now - heartbeat.when < self._limits.shortest / 2
            calls, branch = (snapshot.calls, snapshot.branch) if snapshot else (NO_CALLS, "")
            seen.append(RankObservation(rank, heartbeat, fresh, ended.get(rank, ""), near.get(rank, ""), calls, branch))
        diagnosis = diagnose(seen, limit=self._limit)
        stage = self._slowest_stage(seen, diagnosis)
        if self._limits.is_exact(stage):
            diagnosis = replace(diagnosis, at_work=False)
        case = HangCase(self._limit, tuple(seen), snapshots, diagnosis, self._limits.describe(stage))
        return case, self._limits.of(stage)

    def _slowest_stage(self, seen: Sequence[RankObservation], diagnosis: Diagnosis) -> str:
        """Return the stage of the ranks that cause the wait, or else of all; of several, the one with most time."""
        ranks = diagnosis.culprits or range(len(seen))
        stages = [one.heartbeat.stage for rank in ranks if (one := seen[rank]).heartbeat and not one.ended]
        return max(stages, key=self._limits.of, default=STEP.name)
