"""Decide when a job continues, when it is stopped, and when it has ended: a table of phases and events, without I/O.

A job is N ranks that need each other, so the end of one (other than a normal end of all) is the end of all.

```
             a failure                  settled                  grace over                 all exited
  RUNNING ---------------> SETTLING ---------------> STOPPING ---------------> KILLING ---------------> ENDED
     |  \\__ Ctrl-C, SIGTERM, time limit ______________^ |                        ^                        ^
     |                                                  |__ a second Ctrl-C ______|                        |
     |__________________________________ all exited (from every phase) __________________________________|
```

- RUNNING: nothing is wrong. Ranks start, join, leave, exit with 0.
- SETTLING: one failure is known, but perhaps not yet the one that caused it (`allranks.launch.first_failure`). For
  ``settle`` seconds, or until all have failed or ended, other ranks may report failures, so that the same exception on
  every rank is shown as such. If the known failure can only be a consequence, or a process is seen ending, the job
  waits ``search`` seconds for the cause. Nothing is signalled.
- STOPPING: the living ranks were sent a signal (TERM; INT after a Ctrl-C) and have a grace to end normally, a short one
  after a crash. Ranks that have reported a failure wait with open sockets until the others have ended; otherwise the
  others would report only broken connections. Then a TERM releases them.
- KILLING: SIGKILL was sent to every rank's process group.
- ENDED: every rank has exited, or could not be killed in ``kill_patience`` seconds. Later events are ignored.

Every phase but RUNNING has a deadline, so a stopped job ends whatever the ranks do. ``TABLE`` has the answer to each
event in each phase. One more way to fail needs the clock: a rank that exited with 0 without having joined the world,
while another has waited ``join_patience`` seconds to join. Nobody will ever answer the waiting rank.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

from allranks.errors import name_ranks
from allranks.evidence import CauseWeight
from allranks.failure import Failure
from allranks.launch.events import (
    EVENTS,
    Action,
    Event,
    Finish,
    ForkServerLost,
    Interrupted,
    Joined,
    Joining,
    LocateRanks,
    MarkFailed,
    NotifyPeers,
    Print,
    RankExited,
    RankFailed,
    RankFailing,
    RankLeft,
    RankStarted,
    SaveReport,
    Signal,
    Terminated,
    Tick,
)
from allranks.launch.first_failure import (
    Candidate,
    Departure,
    FailureReport,
    RankExit,
    early_exit,
    find_first_failure,
    with_exit_code,
)
from allranks.launch.limits import OUT_OF_TIME, Limits, Phase
from allranks.launch.saves import Saves
from allranks.launch.stall import StallDetector
from allranks.program import PREEMPTED


class Supervisor:
    """The state of one job. ``on`` takes an event and the time, and returns the actions to carry out.

    ``now`` is any clock that runs forward, in seconds; ``deadline`` is the time on it at which a ``Tick`` is due.
    """

    def __init__(
        self, size: int, *, now: float, limits: Limits, host: str, cwd: str = "", saves: Saves | None = None
    ) -> None:
        self.size = size
        self.phase = Phase.RUNNING
        self.alive: set[int] = set()
        self.exits: dict[int, RankExit] = {}
        self.reports: list[FailureReport] = []
        self.departures: dict[int, Departure] = {}
        self.cause = ""  # why we stopped the job, where no rank failed
        self._limits = limits
        self._host, self._cwd = host, cwd
        self._now = now
        self._end_of_time = None if limits.timeout is None else now + limits.timeout
        self._phase_deadline: float | None = None
        self._settling_since = now
        self.stalls = StallDetector(size, limits.hang_after)
        self._sent: dict[int, tuple[int, ...]] = {}
        self._failed: set[int] = set()  # these wait to be released
        self._released: set[int] = set()
        self._unnotified: set[int] = set()  # have joined, and do not know of a departure
        self._saves = saves or Saves()
        self._exit_code: int | None = None  # if the launcher, and not a rank, decides it

    def on(self, event: Event, now: float) -> list[Action]:
        """Process one event that is known since ``now``; return the actions to carry out, in order."""
        self._now = max(self._now, now)
        return TABLE[self.phase, type(event)](self, event)

    @property
    def deadline(self) -> float | None:
        """The time at which a ``Tick`` is due, or None."""
        due = [self._phase_deadline, self._stranded_at()]
        if self.phase is Phase.RUNNING:
            due.append(self.stalls.due)
        if self.phase in (Phase.RUNNING, Phase.SETTLING):
            due.append(self._end_of_time)
        return min((moment for moment in due if moment is not None), default=None)

    @property
    def first_failure(self) -> Failure | None:
        """The failure that caused the end, as far as it is known now; None if the launcher had to stop the job."""
        found = self._best_candidate()
        return None if self.cause or found is None else self._saves.with_save_outcome(with_exit_code(found.failure))

    def _best_candidate(self) -> Candidate | None:
        return find_first_failure(self.reports, self.exits, departures=self.departures, host=self._host, cwd=self._cwd)

    # What the table names. Each takes the event and returns actions.

    def _on_started(self, event: RankStarted) -> list[Action]:
        self.alive.add(event.rank)
        return []

    def _started_too_late(self, event: RankStarted) -> list[Action]:
        self.alive.add(event.rank)
        return [self._signal_action((event.rank,), signal.SIGKILL)]

    def _on_joining(self, event: Joining) -> list[Action]:
        self.stalls.joining.setdefault(event.rank, self._now)
        return []

    def _joined_world(self, event: Joined) -> list[Action]:
        self.stalls.join(event.rank)
        self._unnotified.add(event.rank)
        return self._notify_peers() if self.departures else []

    def _note_departure(self, event: RankLeft) -> list[Action]:
        if event.exit_code:
            self._saves.leave(event)
            self.reports = [one for one in self.reports if one.failure.rank != event.rank]  # caused by a SIGTERM
        return []

    def _note_left(self, event: RankLeft) -> list[Action]:
        self._note_departure(event)
        self.departures.setdefault(event.rank, Departure(event.when, event.failure, event.where, event.lines))
        if event.has_ended:
            self.stalls.leave(event, self._now)
        return self._notify_peers()

    def _note_failing(self, event: RankFailing | RankFailed) -> list[Action]:
        if isinstance(event, RankFailing) and event.explains:
            self.reports = [one for one in self.reports if one.failure.rank != event.failure.rank]
        self.reports.append(FailureReport(event.failure, event.lines))
        return []

    def _note_save(self, event: SaveReport) -> list[Action]:
        self._saves.note(event)
        return []

    def _on_failure(self, event: RankFailed) -> list[Action]:
        self._note_failing(event)
        self._failed.update([event.failure.rank] if event.waits else [])
        if self.phase is not Phase.SETTLING:
            self._wait_for_cause()
        return self._stop_if_none_is_well()

    def _fail_stopping(self, event: RankFailed) -> list[Action]:
        self._failed.add(event.failure.rank)  # by our signal: no failure of the job
        self._saves.failures.append(event.failure)
        return self._release_failed_ranks()

    def _on_exit(self, event: RankExited) -> list[Action]:
        if done := self._note_exit(event):
            return done
        if self.exits[event.rank].wait_code == 0:
            return self._notify_peers()
        return self._wait_for_cause()

    def _exit_settling(self, event: RankExited) -> list[Action]:
        return self._note_exit(event) or self._stop_if_none_is_well()

    def _exit_stopping(self, event: RankExited) -> list[Action]:
        return self._note_exit(event) or self._release_failed_ranks()

    def _note_exit(self, event: RankExited) -> list[Action]:
        sent = self._sent.get(event.rank, ())
        code = 0 if event.wait_code == self._saves.exit_codes.get(event.rank, 0) else event.wait_code
        self.exits[event.rank] = RankExit(event.rank, code, event.when, sent, event.lines)
        self.stalls.exit(event.rank, self._now)
        self.alive.discard(event.rank)
        stopping = self.phase in (Phase.STOPPING, Phase.KILLING)
        ended = len(self.exits) == self.size or (stopping and not self.alive)
        return self._finish_job() if ended else []

    def _on_interrupt(self, _event: Interrupted) -> list[Action]:
        self.cause, self._exit_code = "interrupted by Ctrl-C", 128 + signal.SIGINT
        return self._stop_ranks(signal.SIGINT, self._limits.grace, "interrupted")

    def _on_terminate(self, event: Terminated) -> list[Action]:
        name, at = signal.Signals(event.signum).name, f" (host {event.host})" if event.host else ""
        self.cause, self._exit_code = f"stopped by {name}{at}", 128 + event.signum
        self._saves.terminated_at = self._now
        return self._stop_ranks(signal.SIGTERM, self._limits.grace, f"{name} received{at}")

    def _terminate_settling(self, event: Terminated) -> list[Action]:
        first = self.first_failure
        killed = first is not None and first.exit_code == PREEMPTED  # a signal to all may reach a rank before us
        return self._on_terminate(event) if killed else self._kill_all(event)

    def _terminate_again(self, event: Terminated) -> list[Action]:
        if self._saves.is_repeated(self._now, self._limits.repeat):
            return []
        self._saves.killed = "at a second signal"
        return self._kill_all(event)

    def _run_out_of_time(self) -> list[Action]:
        limit = f"the time limit of {self._limits.timeout:g} s"
        self.cause, self._exit_code = f"stopped at {limit}", OUT_OF_TIME
        where = LocateRanks("time", self._limits.timeout or 0.0, (), tuple(sorted(self.exits)))
        return [where, *self._stop_ranks(signal.SIGTERM, self._limits.grace, f"{limit} is over")]

    def _lose_fork_server(self, event: ForkServerLost) -> list[Action]:
        self.cause, self._exit_code = event.TEXT, 128 + signal.SIGKILL
        return [Print(f"{self.cause}, and the ranks with it"), *self._finish_job()]

    def _kill_all(self, _event: Event) -> list[Action]:
        self._enter_phase(Phase.KILLING, self._limits.kill_patience)
        if not self.alive:
            return self._finish_job()
        return [self._signal_action(tuple(sorted(self.alive)), signal.SIGKILL)]

    def _ignore_event(self, _event: Event) -> list[Action]:
        return []

    def _tick_running(self, _event: Tick) -> list[Action]:
        if _is_over(self._end_of_time, self._now):
            return self._run_out_of_time()
        if _is_over(self._stranded_at(), self._now):
            self.reports.append(FailureReport(self._absence_failure()))
            return self._wait_for_cause()
        return [*self.stalls.report(self._now)]

    def _tick_settling(self, event: Tick) -> list[Action]:
        if not _is_over(self._phase_deadline, self._now):
            return []
        weight = found.weight if (found := self._best_candidate()) else CauseWeight.CAUSE
        until = self._settling_since + self._limits.patience(weight, dying=bool(event.dying & self.alive))
        if _is_over(until, self._now):
            return self._stop_after_failure()
        self._phase_deadline = min(until, self._now + self._limits.settle)
        return []

    def _tick_stopping(self, event: Tick) -> list[Action]:
        if not _is_over(self._phase_deadline, self._now):
            return []
        over = f"the grace of {self._limits.grace:g} s"
        self._saves.killed = f"when {over} was over"
        say = Print(f"{over} is over: killing {name_ranks(self.alive)}")
        return [*([] if self._exit_code is None else [say]), *self._kill_all(event)]

    def _tick_killing(self, _event: Tick) -> list[Action]:
        if not _is_over(self._phase_deadline, self._now):
            return []
        them = "it" if len(self.alive) == 1 else "them"
        return [Print(f"{name_ranks(self.alive)} could not be killed; giving up on {them}"), *self._finish_job()]

    # Steps that several answers share.

    def _wait_for_cause(self) -> list[Action]:
        self._enter_phase(Phase.SETTLING, self._limits.settle)
        self._settling_since = self._now
        return []

    def _stop_if_none_is_well(self) -> list[Action]:
        unwell = self._failed | self.exits.keys() if len(self._failed) + len(self.exits) >= self.size else ()
        return self._stop_after_failure() if len(unwell) == self.size else []

    def _stop_after_failure(self) -> list[Action]:
        first = self.first_failure
        why = f"{name_ranks([first.rank])} failed" if first else "a rank failed"  # it says more itself
        return [MarkFailed(), *self._stop_ranks(signal.SIGTERM, self._limits.crash_grace, why)]

    def _stop_ranks(self, signum: int, grace: float, why: str) -> list[Action]:
        self._enter_phase(Phase.STOPPING, grace)
        if not self.alive:
            return self._finish_job()
        ranks = tuple(sorted(self.alive - self._failed))
        if not ranks:
            return self._release_failed_ranks()
        hint = "; Ctrl-C again to kill at once" if signum == signal.SIGINT else ""
        what = self._saves.expected_save(ranks, grace) or f"stopping {name_ranks(ranks)}{hint}"
        return [Print(f"{why}: {what}", notice=True), self._signal_action(ranks, signum)]

    def _release_failed_ranks(self) -> list[Action]:
        """Release the failed ranks if only they are left; the lowest last, since it may serve the others' store."""
        if not self.alive <= self._failed:
            return []
        *others, lowest = sorted(self.alive, reverse=True)
        due = tuple(rank for rank in others or [lowest] if rank not in self._released)
        self._released.update(due)
        return [self._signal_action(due, signal.SIGTERM)] if due else []

    def _notify_peers(self) -> list[Action]:
        due, self._unnotified = self._unnotified & self.alive - self.departures.keys(), set()
        return [NotifyPeers(tuple(sorted(due)))] if due else []

    def _signal_action(self, ranks: tuple[int, ...], signum: int) -> Signal:
        for rank in ranks:
            self._sent[rank] = (*self._sent.get(rank, ()), signum)
        return Signal(ranks, signum)

    def _finish_job(self) -> list[Action]:
        self._enter_phase(Phase.ENDED, None)
        first = self.first_failure
        if first is not None:
            return [Finish(first.exit_code)]
        what, code = self._saves.outcome(self.exits, self._exit_code)
        self.cause = "; ".join(filter(None, (self.cause, what)))
        return [Finish(code)]

    def _enter_phase(self, phase: Phase, seconds: float | None) -> None:
        self.phase = phase
        self._phase_deadline = None if seconds is None else self._now + seconds

    def _stranded_at(self) -> float | None:
        running = self.phase is Phase.RUNNING
        return self.stalls.stranded_at(self._limits.join_patience) if running else None

    def _absence_failure(self) -> Failure:
        rank, wait = self.stalls.first_absent()
        return early_exit(rank, self.exits[rank].when, host=self._host, while_doing=wait)


def _is_over(deadline: float | None, now: float) -> bool:
    return deadline is not None and now >= deadline


Answer = Callable[[Supervisor, Any], list[Action]]
_UNTIL_STOPPED: dict[type[Event], Answer] = {
    RankStarted: Supervisor._on_started,
    RankFailing: Supervisor._note_failing,
    SaveReport: Supervisor._note_save,
    RankFailed: Supervisor._on_failure,
    RankLeft: Supervisor._note_left,
    ForkServerLost: Supervisor._lose_fork_server,
}
_ROWS: dict[Phase, dict[type[Event], Answer]] = {
    Phase.RUNNING: {
        **_UNTIL_STOPPED,
        Joining: Supervisor._on_joining,
        Joined: Supervisor._joined_world,
        RankExited: Supervisor._on_exit,
        Interrupted: Supervisor._on_interrupt,
        Terminated: Supervisor._on_terminate,
        Tick: Supervisor._tick_running,
    },
    Phase.SETTLING: {
        **_UNTIL_STOPPED,
        **dict.fromkeys((Joining, Joined), Supervisor._ignore_event),
        RankExited: Supervisor._exit_settling,
        Interrupted: Supervisor._kill_all,
        Terminated: Supervisor._terminate_settling,
        Tick: Supervisor._tick_settling,
    },
    Phase.STOPPING: {
        RankStarted: Supervisor._started_too_late,
        **dict.fromkeys((Joining, Joined, RankFailing), Supervisor._ignore_event),
        SaveReport: Supervisor._note_save,
        RankFailed: Supervisor._fail_stopping,
        RankLeft: Supervisor._note_departure,
        RankExited: Supervisor._exit_stopping,
        Interrupted: Supervisor._kill_all,
        Terminated: Supervisor._terminate_again,
        Tick: Supervisor._tick_stopping,
        ForkServerLost: Supervisor._lose_fork_server,
    },
    Phase.KILLING: {
        **dict.fromkeys(EVENTS, Supervisor._ignore_event),
        RankStarted: Supervisor._started_too_late,
        RankExited: Supervisor._note_exit,
        Tick: Supervisor._tick_killing,
        ForkServerLost: Supervisor._lose_fork_server,
    },
    Phase.ENDED: dict.fromkeys(EVENTS, Supervisor._ignore_event),
}
TABLE: dict[tuple[Phase, type[Event]], Answer] = {
    (phase, event): answer for phase, row in _ROWS.items() for event, answer in row.items()
}
