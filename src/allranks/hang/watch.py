"""Run the hang watch of this rank: two threads take snapshots, send heartbeats, judge hangs and answer queries.

The thread ``allranks-look`` observes the training thread and keeps the last heartbeat. It re-arms the dump of stacks
that works without Python, and opens the endpoint for the doctor. It never waits for the store. The thread
``allranks-heartbeat`` puts the heartbeat into the store, and judges. If the store does not answer any more (its rank is
stopped), ``allranks-look`` reports that.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, Protocol

from allranks import agent
from allranks.errors import AllranksError, StoreError
from allranks.failure import Failure, visible
from allranks.hang import endpoint, kernel, messages, stacks
from allranks.hang.alarm import HangAlarm, HangCase, RankSnapshot
from allranks.hang.branches import rank_branch
from allranks.hang.calls import NO_CALLS
from allranks.hang.detect import recorded_collectives, torch_timeout, watch_first_step
from allranks.hang.heartbeat import Heartbeat
from allranks.hang.limits import Limits
from allranks.hang.sites import classify_stack, innermost_users_line
from allranks.hang.stragglers import Straggler, WaitCount, stragglers
from allranks.hang.training_thread import TrainingThread, collectives_of
from allranks.launch.hang_limits import HangLimits
from allranks.process import wait_readable
from allranks.program import HUNG
from allranks.world import departures
from allranks.world.base import World
from allranks.world.codec import loads
from allranks.world.failure_listener import FailureListener

Policy = Literal["warn", "end"]
# Beats are this long apart, in seconds: in a large world longer, so that the store serves as many a second.
_EVERY, _MOST_BEATS = 1.0, 1000
_PACE = 0.25
_SAMPLES_PER_REPORT = 15
# A larger world is not looked through for stragglers: its beats are too many to be read every second.
_MOST_PACES = 256
# Of a process, as proc(5) has them: stopped, traced, gone, not collected yet.
_MUTE_STATES = frozenset("TtXZ")
# How long the end of a process waits for these threads: the store may not answer any more.
_LEAVING = 2.0


@dataclass(frozen=True, slots=True)
class WatchSettings:
    """The settings of the watch.

    ``limits``: for how many seconds a rank may make no progress. ``policy``: what happens after the report of a hang.
    """

    limits: HangLimits
    policy: Policy


def heartbeat_period(limit: float, size: int) -> float:
    """Return the seconds between two heartbeats."""
    return max(min(_EVERY, limit / 8), size / _MOST_BEATS)


class Listener(FailureListener, Protocol):
    """What a watch needs beside the reports in the store: the processes of other ranks, and ways to end the job."""

    @property
    def near(self) -> Mapping[int, int]:
        """The process ids of the other ranks of this machine, by rank."""

    def end_all(self, failure: Failure) -> None:
        """End the job on all ranks because of this failure of any rank. Returns at once."""

    def at_end(self, farewell: Callable[[], None]) -> None:
        """Register ``farewell`` to be called when the process ends without an error, while the store still works."""


class Watch:
    """The hang watch of this process. ``start`` begins the watch, and it ends with the world."""

    def __init__(self, world: World, listener: Listener, settings: WatchSettings) -> None:
        self._world, self._listener, self._settings = world, listener, settings
        self._every = heartbeat_period(settings.limits.shortest, world.size)
        self._training_thread = TrainingThread(world.rank)
        self._heartbeat = self._training_thread.heartbeat()
        self._looking = threading.Lock()
        self._over = threading.Event()
        self._asked: float | None = None  # since when the store has not answered
        self._said_so = False
        self._slow: dict[int, Straggler] = {}
        self._wait_count = WaitCount()
        self._control: Any = agent.load("allranks_agent_control")
        self._c_stacks: Any = agent.load("allranks_agent_stacks")
        self._endpoint: endpoint.Endpoint | None = None
        self._job = ""
        self._wake, self._woken = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)  # so that ``stop`` waits for no look
        self._threads = [
            threading.Thread(target=self._run_guarded, args=(target,), name=f"{stacks.OURS}-{name}", daemon=True)
            for name, target in (("look", self._take_snapshots), ("heartbeat", self._send_heartbeats))
        ]

    def start(self) -> None:
        if self._world.identity.backend == "torch":
            watch_first_step()
        mine = f"{os.getpid():x}{time.time_ns():x}"[-12:]
        self._job = self._world.store.claim("hang/job", mine.encode()).decode()
        self._c_stacks.register()
        self._open_endpoint()
        self._listener.at_end(self.stop)
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End the watch's threads before Python ends: a thread that returned from C++ later would abort the process."""
        self._over.set()
        os.write(self._woken, b"1")
        for thread in self._threads:
            thread.join(_LEAVING)
        if self._endpoint is not None:
            self._endpoint.close()

    def _run_guarded(self, work: Callable[[], None]) -> None:
        """Run one of the watch's threads; report an error in it, which must not end the training."""
        try:
            work()
        except Exception:
            write_stderr(f"rank {self._world.rank}: the hang watch has ended with an error:\n{traceback.format_exc()}")

    # What the alarm needs.

    def heartbeat(self) -> Heartbeat:
        return self._heartbeat

    def snapshot(self, *, threads: bool) -> RankSnapshot:
        with self._looking:
            heartbeat = self._heartbeat = self._training_thread.heartbeat()
            stack, branch = (
                stacks.format_stack(self._training_thread.frame()),
                rank_branch(self._training_thread.frame()),
            )
        others = stacks.of_others(self._training_thread.thread) if threads else {}
        near = self._process_states()
        words = {name: stacks.format_stack(frame) for name, frame in others.items()}
        return RankSnapshot(
            heartbeat,
            stack,
            words,
            near,
            recorded_collectives() if threads else NO_CALLS,
            tuple(collectives_of(others)),
            branch,
        )

    def _process_states(self) -> dict[int, str]:
        """Return the states of other ranks' processes: of all on this machine, elsewhere of those that are stopped."""
        near = {rank: kernel.process_state(pid) for rank, pid in self._listener.near.items()}
        return {**dict.fromkeys(self._control.suspended_ranks(), "T"), **near}

    # The thread that looks.

    def _take_snapshots(self) -> None:
        due, spread = time.monotonic(), random.Random()
        watched = [self._wake, *([] if self._endpoint is None else [self._endpoint.fileno()])]
        while not self._over.is_set():
            ready = wait_readable(watched, min(_PACE, self._every, due - time.monotonic()))
            if self._endpoint is not None and self._endpoint.fileno() in ready:
                self._endpoint.accept_one()
            self._training_thread.pace()
            if time.monotonic() >= due:
                # At no regular times: each look would find a step of as many seconds at the same point.
                due = time.monotonic() + self._every * spread.uniform(0.75, 1.25)
                with self._looking:
                    self._heartbeat = self._training_thread.heartbeat()
                self._count_waits()
                self._check_store()

    def _count_waits(self) -> None:
        """Count whether this look finds the rank in a wait; report the counts to the launcher now and then."""
        count = self._wait_count
        count.record(self._heartbeat)
        if count.samples % _SAMPLES_PER_REPORT == 0 and "ALLRANKS_CONTROL" in os.environ:
            agent.load().report(
                "waits", samples=count.samples, waits=count.waits, begun=count.begun, period=self._every
            )

    def _check_store(self) -> None:
        """Report a hang that the heartbeat thread cannot report: the store does not answer, and this rank is stuck."""
        asked, limit = self._asked, self._settings.limits.of(self._heartbeat.stage)
        if asked is None or time.monotonic() - asked < limit or self._heartbeat.still < limit or self._said_so:
            return
        self._said_so = True
        states = self._process_states()
        able = [rank for rank in self._listener.near if rank and states[rank] not in _MUTE_STATES]
        if able and self._world.rank > min(able):
            return  # one rank of each machine is enough
        text = messages.mute_store(self._heartbeat, self._world.hosts, state=states.get(0, ""), seconds=limit)
        self._publish(text, (0,))
        if self._settings.policy == "end":
            self._end_without_a_store(text.partition("\n")[0])

    def _publish(self, text: str, culprits: Sequence[int], *, is_over: bool = False) -> None:
        """Print the report of a hang, or of its end. For ranks on several hosts, their launchers print it."""
        if not self._control.report_hang(text, culprits, prints=len(set(self._world.hosts)) > 1, is_over=is_over):
            write_stderr(text)

    def _end_without_a_store(self, what: str) -> None:
        if "ALLRANKS_CONTROL" in os.environ:
            self._listener.end_all(self._failure_of(0, what, ""))
        elif 0 in self._listener.near:
            os.kill(self._listener.near[0], signal.SIGKILL)  # the sentinels of its machine end the job
        else:
            agent.load("allranks_agent_exits").leave(HUNG)

    # The thread that beats.

    def _send_heartbeats(self) -> None:
        try:
            alarm = HangAlarm(
                self._world, self, limits=self._settings.limits, report=self._report_hang, over=self._report_end
            )
            while not self._over.is_set():
                self._asked = time.monotonic()
                alarm.tick()
                if self._said_so:
                    self._said_so = False
                    self._report_end()
                if self._world.is_main and self._heartbeat.pace and self._world.size <= _MOST_PACES:
                    self._find_stragglers()
                self._asked = None
                self._over.wait(self._every)
        except StoreError:
            self._asked = None  # the sentinel sees it too, and knows whether it is an end in order

    def _report_hang(self, case: HangCase) -> None:
        case = self._with_dumps(case)
        waits = messages.first_waiting(case)
        flags = os.environ.get("XLA_FLAGS", "")
        limits = Limits(self._world.timeout, torch_timeout(waits.group if waits else ""), flags)
        self._publish(messages.hang_report(case, self._world.hosts, limits), case.diagnosis.culprits)
        if self._settings.policy == "end" and not case.diagnosis.at_work:
            self._end_job(case)

    def _with_dumps(self, case: HangCase) -> HangCase:
        """Return the case with the stacks that C writes, on a signal, for ranks of this machine that do not answer.

        These stacks are newer than the last snapshots of those ranks.
        """
        seen, snapshots, states = list(case.seen), dict(case.snapshots), self._process_states()
        mute = {
            rank: pid
            for rank in case.diagnosis.culprits
            if (pid := self._listener.near.get(rank)) and rank not in snapshots and states[rank] not in _MUTE_STATES
        }
        texts = self._c_stacks.read(mute.values())
        for rank, pid in mute.items():
            heartbeat = seen[rank].heartbeat
            if heartbeat is None or pid not in texts:
                continue
            frames = stacks.threads_of_dump(texts[pid])[-1]
            phase, what = classify_stack(frames)
            since = case.when - heartbeat.when
            heartbeat = replace(
                heartbeat, phase=phase, what=what, where=innermost_users_line(frames), kernel="", since=since
            )
            seen[rank] = replace(seen[rank], heartbeat=heartbeat, is_written=True)
            snapshots[rank] = RankSnapshot(heartbeat, stacks.format_dump(frames), {}, {})
        return replace(case, seen=tuple(seen), snapshots=snapshots)

    def _end_job(self, case: HangCase) -> None:
        culprits = case.diagnosis.culprits or (self._world.rank,)
        heartbeat = case.seen[culprits[0]].heartbeat
        where = heartbeat.where.partition(" in ")[0] if heartbeat else ""
        failure = self._failure_of(culprits[0], f"HANG: {messages.hang_headline(case, self._world.hosts)}", where)
        self._listener.end_all(failure)
        if "ALLRANKS_CONTROL" not in os.environ:
            for rank in culprits:
                if case.diagnosis.verdicts[rank] in ("stopped", "frozen") and rank in self._listener.near:
                    os.kill(self._listener.near[rank], signal.SIGKILL)  # it cannot end itself

    def _failure_of(self, rank: int, what: str, where: str) -> Failure:
        return Failure(rank, self._world.hosts[rank], what, time.time(), where=where, exit_code=HUNG)

    def _report_end(self) -> None:
        self._publish(f"HANG: the hang is over: rank {self._world.rank} makes progress again", (), is_over=True)

    def _find_stragglers(self) -> None:
        """Report each slow rank once, when it begins to be slow, and again only after it was as fast as the others.

        Only rank 0 calls this.
        """
        heartbeats = [Heartbeat.from_json(loads(text)) for text in self._world.store.list("beat/").values()]
        slow = {
            one.rank: one
            for one in stragglers({heartbeat.rank: (heartbeat.pace, heartbeat.noise) for heartbeat in heartbeats})
        }
        for rank, one in slow.items():
            if rank not in self._slow:
                write_stderr(
                    messages.describe_straggler(
                        one,
                        next(heartbeat for heartbeat in heartbeats if heartbeat.rank == rank),
                        self._world.hosts[rank],
                    )
                )
        self._slow = slow

    # The endpoint for `allranks doctor job`.

    def _open_endpoint(self) -> None:
        try:
            at = endpoint.socket_name(self._job, self._world.rank, os.getpid())
            self._endpoint = endpoint.Endpoint(at, self._answer_question)
        except (AllranksError, OSError) as error:
            write_stderr(f"rank {self._world.rank}: allranks doctor job cannot query this rank: {error}")

    def _answer_question(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        if question.get("want") == "beats":
            heartbeats = self._world.store.list("beat/").values()
            ended = {str(rank): why for rank, why in departures.read_ended(self._world.store).items()}
            return {"beats": [loads(text) for text in heartbeats], "ended": ended}
        me = {
            **asdict(self._world.identity),
            "pid": os.getpid(),
            "command": sys.argv,
            "limit": self._settings.limits.step,
        }
        return {"rank": me, "sight": self.snapshot(threads=bool(question.get("threads"))).to_json()}


def write_stderr(text: str) -> None:
    """Write lines to stderr, but not through Python's stream: the training thread may hold the lock of that stream."""
    lines = "".join(f"allranks: {line}".rstrip() + "\n" for line in visible(text).split("\n") if line.strip())
    os.write(2, lines.encode())
