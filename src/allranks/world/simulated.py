"""Simulate N ranks in one process on a manual clock: runs of 10,000 ranks, and runs with faults.

Each rank is a greenlet that runs until it uses the store. Every store operation takes a seeded random time on the
manual clock, and the scheduler resumes the next rank. So a run is a function of (program, size, seed, faults): equal
inputs give runs that are equal to the last operation.
"""

from __future__ import annotations

import contextlib
import dis
import heapq
import inspect
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import greenlet

from allranks.clock import ManualClock
from allranks.errors import AllranksError
from allranks.evidence import weight_of
from allranks.failure import failure_of, text_of
from allranks.topology import Topology
from allranks.world import departures, stall
from allranks.world.base import DEFAULT_FANOUT, DEFAULT_TIMEOUT, RankIdentity, World
from allranks.world.failure_listener import WakeUp
from allranks.world.faults import Crash, Delay, Drop, Fault, Pause
from allranks.world.store import LocalStore, no_key

T = TypeVar("T")
MAX_OPERATIONS = 1_000_000  # of one rank: more is a loop without end
# One trip to a store on the same network, in seconds: the range that was measured on JAX's service and torch's Store.
_LATENCY = (20e-6, 400e-6)


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """The result of ``SimulatedWorld.run``.

    - ``results``, ``errors``: by rank, in the order in which the ranks ended. A crashed rank is in neither.
    - ``crashed``: the ranks that crashed.
    - ``seconds``: the time on the manual clock when the last rank had ended.
    - ``operations``: the number of store operations, by name.
    - ``busiest``: the most store operations of one rank.
    """

    results: dict[int, T]
    errors: dict[int, BaseException]
    crashed: tuple[int, ...]
    seconds: float
    operations: Counter[str]
    busiest: int

    def values(self) -> tuple[T, ...]:
        """Return all ranks' results in rank order. If ranks failed, raise the error that caused the other errors.

        An error that would end the caller silently (SystemExit) is raised as an AllranksError.
        """
        if not self.errors:
            return tuple(self.results[rank] for rank in sorted(self.results))
        rank = min(self.errors, key=lambda rank: weight_of(failure_of(self.errors[rank])))
        error = self.errors[rank]
        if not isinstance(error, Exception):
            raise AllranksError(f"rank {rank} of the simulated world: {failure_of(error).what}.") from error
        note = f"(rank {rank} of the simulated world)"
        if note not in getattr(error, "__notes__", ()):
            error.add_note(note)
        raise error


class SimulatedWorld:
    """N simulated ranks. ``run(program)`` calls ``program(world)`` on each rank and returns all results.

    A rank that makes more than ``max_operations`` store operations fails: it loops for ever. The program must
    communicate only through its world, because all ranks share one thread. A rank that blocks in any other way (a lock
    that another rank holds, a loop) blocks all ranks, which is reported on stderr after a while. Deterministic from
    ``seed``.

        Examples:
            >>> SimulatedWorld(4).run(lambda world: world.max(world.rank)).values()
            (3, 3, 3, 3)
    """

    def __init__(
        self,
        size: int,
        *,
        ranks_per_host: int = 8,
        seed: int = 0,
        faults: Iterable[Fault] = (),
        fanout: int = DEFAULT_FANOUT,
        timeout: float = DEFAULT_TIMEOUT,
        max_operations: int = MAX_OPERATIONS,
    ) -> None:
        if size < 1:
            raise AllranksError(f"a simulated world of {size} ranks: there must be at least 1.")
        self.size = size
        self.faults = tuple(faults)
        if wrong := [fault for fault in self.faults if not 0 <= fault.rank < size]:
            raise AllranksError(f"{wrong[0]}: there is no such rank among 0-{size - 1}.")
        self.topology = Topology.of(size, ranks_per_host)
        self.seed = seed
        self.fanout = fanout
        self.timeout = timeout
        self.max_operations = max_operations

    def run(self, program: Callable[[World], T]) -> Outcome[T]:
        """Run the program on every rank until all ranks have ended; return their results and errors."""
        return _SimulatedRun(self, program).finish()


class _SimulatedRun(Generic[T]):
    """One run of a simulated world: the scheduler, and the state that the ranks share."""

    def __init__(self, of: SimulatedWorld, program: Callable[[World], T]) -> None:
        self.clock = ManualClock()
        self.max_operations = of.max_operations
        self.state = LocalStore()
        self.random = random.Random(of.seed)
        self.operations: Counter[str] = Counter()
        self.waiting: dict[str, dict[_Sleeper, None]] = {}
        self.results: dict[int, T] = {}
        self.errors: dict[int, BaseException] = {}
        self.crashed: list[int] = []
        self.ended = 0.0
        self.over = False
        self.thread = threading.get_ident()
        self._agenda: list[tuple[float, float, Callable[[], None]]] = []
        self._others: list[greenlet.greenlet] = []
        self._hub = greenlet.getcurrent()
        places = [(host, local) for host, ranks in enumerate(of.topology.ranks_per_host) for local in range(ranks)]
        hosts = tuple(f"host-{host}" for host, _ in places)
        faults: dict[int, list[Fault]] = {}
        for fault in of.faults:
            faults.setdefault(fault.rank, []).append(fault)
        self.ranks = [_SimulatedRank(self, rank, faults.get(rank, [])) for rank in range(of.size)]
        for rank in self.ranks:
            me = RankIdentity(rank.number, of.size, places[rank.number][1], hosts, "simulated")
            world = World(
                me,
                rank,
                clock=self.clock,
                timeout=of.timeout,
                fanout=of.fanout,
                listener=_SimulatedListener(self, rank),
            )
            rank.thread = greenlet.greenlet(lambda rank=rank, world=world: self._run_rank(rank, world, program))
            self.later(0.0, rank.resume)

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        """Schedule an action in ``seconds`` on the manual clock. Actions of the same moment run in random order."""
        heapq.heappush(self._agenda, (self.clock.now() + seconds, self.random.random(), action))

    def spawn(self, target: Callable[[], None]) -> None:
        """Start another greenlet. It may outlive the greenlet that starts it, and ends with the run."""
        self._others.append(greenlet.greenlet(target, parent=self._hub))
        self.later(0.0, self._others[-1].switch)

    def latency(self) -> float:
        return self.random.uniform(*_LATENCY)

    def finish(self) -> Outcome[T]:
        with stall.watch_for_stalls() as progress:
            while self._agenda:
                moment, _, action = heapq.heappop(self._agenda)
                self.clock.advance_to(moment)
                progress.turns += 1
                action()
        for other in self._others:  # a greenlet that never ends keeps its objects in memory
            other.throw()
        self.over = True
        return Outcome(
            results=self.results,
            errors=self.errors,
            crashed=tuple(sorted(self.crashed)),
            seconds=self.ended,
            operations=self.operations,
            busiest=max(rank.done for rank in self.ranks),
        )

    def switch_to_hub(self) -> None:
        self._hub.switch()

    def _run_rank(self, rank: _SimulatedRank, world: World, program: Callable[[World], T]) -> None:
        try:
            self.results[rank.number] = program(world)
        except _CrashedError:
            self.crashed.append(rank.number)
        except greenlet.GreenletExit:
            raise
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) and not _is_raised(error):
                raise
            self.errors[rank.number] = error
            why = f"has failed: {text_of(error)}"
            self.later(self.latency(), lambda: departures.mark_ended(self.state, rank.number, why))
        self.ended = self.clock.now()


def running_rank() -> int | None:
    """Return the number of the simulated rank whose program calls this, or None outside of a simulated rank."""
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_code is _SimulatedRun._run_rank.__code__:
            number: int = frame.f_locals["rank"].number
            return number
        frame = frame.f_back
    return None


class _CrashedError(BaseException):
    """Raised to end a simulated rank. It is a BaseException, so that the program does not catch it."""


def _is_raised(error: KeyboardInterrupt) -> bool:
    """Return whether a ``raise`` of the program raised this exception. (Ctrl-C interrupts between instructions.)"""
    step = error.__traceback__
    while step is not None and step.tb_next is not None:
        step = step.tb_next
    return step is not None and dis.opname[step.tb_frame.f_code.co_code[step.tb_lasti]] == "RAISE_VARARGS"


class _Sleeper:
    """A waiting greenlet of a rank. It is resumed once: by the key that it waits for, or by the clock."""

    def __init__(self, run: _SimulatedRun[T]) -> None:
        self._run = run
        self._thread: greenlet.greenlet | None = greenlet.getcurrent()

    def sleep(self, seconds: float | None) -> None:
        if seconds is not None:
            self._run.later(seconds, self._resume_greenlet)
        self._run.switch_to_hub()

    def wake(self) -> None:
        """Resume the greenlet, after the time of one store operation."""
        self._run.later(self._run.latency(), self._resume_greenlet)

    def _resume_greenlet(self) -> None:
        if self._thread is not None:
            thread, self._thread = self._thread, None
            thread.switch()


class _SimulatedRank:
    """One rank's connection to the simulated store (a KeyValueStore), and the rank's faults."""

    def __init__(self, run: _SimulatedRun[T], number: int, faults: list[Fault]) -> None:
        self.number = number
        self.thread: greenlet.greenlet | None = None
        self.done = 0
        self._run = run
        self._delays = [fault for fault in faults if isinstance(fault, Delay)]
        self._once = [fault for fault in faults if not isinstance(fault, Delay)]
        self.crashed = False

    def resume(self) -> None:
        assert self.thread is not None
        self.thread.switch()

    def set(self, key: str, value: bytes) -> None:
        if self._spend_operation("set", unanswered=True):
            self._run.state.set(key, value)
            self._wake_waiting(key)

    def claim(self, key: str, value: bytes) -> bytes:
        self._spend_operation("claim")
        there = self._run.state.claim(key, value)
        self._wake_waiting(key)
        return there

    def _wake_waiting(self, key: str) -> None:
        for sleeper in self._run.waiting.pop(key, ()):
            sleeper.wake()

    def get(self, key: str) -> bytes | None:
        self._spend_operation("get")
        return self._run.state.get(key)

    def wait(self, key: str, timeout: float) -> bytes:
        self._spend_operation("wait")
        run, deadline = self._run, self._run.clock.now() + timeout
        while (value := run.state.get(key)) is None:
            if run.clock.now() >= deadline:
                raise no_key(key, timeout)
            self._wait_for_key(key, deadline - run.clock.now())
        return value

    def hear(self, key: str) -> bool:
        """Wait for a key without a deadline, and return True."""
        self._spend_operation("hear")
        while self._run.state.get(key) is None:
            self._wait_for_key(key, None)
        return True

    def _wait_for_key(self, key: str, seconds: float | None) -> None:
        sleeper, waiting = _Sleeper(self._run), self._run.waiting
        waiting.setdefault(key, {})[sleeper] = None
        sleeper.sleep(seconds)
        waiting.get(key, {}).pop(sleeper, None)

    def add(self, key: str, amount: int) -> int:
        self._spend_operation("add")
        return self._run.state.add(key, amount)

    def delete(self, key: str) -> None:
        if self._spend_operation("delete", unanswered=True):
            self._run.state.delete(key)

    def list(self, prefix: str) -> dict[str, bytes]:
        self._spend_operation("list")
        return self._run.state.list(prefix)

    def _spend_operation(self, name: str, *, unanswered: bool = False) -> bool:
        """Spend the time of one store operation; return False if the operation is lost."""
        if self.crashed:
            raise _CrashedError
        if self._run.over:
            raise AllranksError(
                f"rank {self.number}: the run of this simulated world has ended, so its world cannot be used any more."
            )
        if threading.get_ident() != self._run.thread:
            raise AllranksError(f"rank {self.number}: a simulated world can be used only in the thread of its program.")
        if self.done >= self._run.max_operations and greenlet.getcurrent() is self.thread:
            raise AllranksError(
                f"rank {self.number}: simulated world: more than {self._run.max_operations:,} store operations.",
                remedy="Check the program for an endless loop. If there is none, pass a larger max_operations to "
                "SimulatedWorld.",
            )
        now, run = self.done, self._run
        self.done += 1
        run.operations[name] += 1
        arrives = True
        extra = sum(fault.seconds for fault in self._delays if now >= fault.at)
        for fault in [fault for fault in self._once if now >= fault.at]:
            if isinstance(fault, Drop) and not unanswered:
                continue
            self._once.remove(fault)
            if isinstance(fault, Crash):
                self._crash_rank(fault)
            elif isinstance(fault, Pause):
                extra += fault.seconds
            else:
                arrives = False
        _Sleeper(run).sleep(run.latency() + extra)
        return arrives

    def _crash_rank(self, fault: Crash) -> None:
        run, number = self._run, self.number
        self.crashed = True
        if fault.noticed_after is not None:
            run.later(fault.noticed_after, lambda: departures.mark_ended(run.state, number, "crashed"))
        raise _CrashedError


class _SimulatedListener:
    """The failure listener of a simulated rank. A second greenlet listens; in a real rank a thread does."""

    def __init__(self, run: _SimulatedRun[T], rank: _SimulatedRank) -> None:
        self._run = run
        self._bell = WakeUp(rank)

    def locate(self, ranks: Sequence[int]) -> Mapping[int, str]:
        ended = dict.fromkeys(self._run.results, "has ended")
        return {rank: ended[rank] for rank in ranks if rank in ended}

    def wake(self) -> None:
        self._bell.wake()

    def before_end(self, finish: Callable[[], object]) -> Callable[[], None]:
        """Do nothing: a simulated rank ends only when all greenlets that it started have ended."""
        del finish
        return lambda: None

    def on_wake(self, heard: Callable[[], None]) -> None:
        self._run.spawn(lambda: self._listen_until_end(heard))

    def _listen_until_end(self, heard: Callable[[], None]) -> None:
        with contextlib.suppress(_CrashedError):
            heard()
            while self._bell.hear():
                heard()
