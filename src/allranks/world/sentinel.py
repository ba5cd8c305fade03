"""Run each rank's sentinel. The failure of one rank ends all ranks at once; a missing rank reports where it is.

How a rank learns that another rank has failed:
- The failing rank reports it (exception in any thread, non-zero exit, SIGTERM: seen by the agent, before any exit
  handler can hang) in the failure table. The table's wake-up key wakes a thread in every rank.
- A killed rank (SIGKILL, out of memory) reports nothing. But every rank of the same machine sees its process end, and
  reports that. Rank 0 does so for the ranks of other machines, and they for rank 0 (`peer_connections`), which also
  report a host that does not answer.
- When the rank that serves the store ends, the store ends.

Under ``allranks run`` the launcher does all this, and better. Then the sentinel only records ranks that have ended, so
that exchanges raise RankDied, and answers queries for where its rank is.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, NoReturn

from allranks import agent, program
from allranks.callsite import whereabouts
from allranks.errors import KeyTimeout, StoreError
from allranks.evidence import CauseWeight, first_of, weight_of
from allranks.failure import Failure, describe_exit, shell_exit_code
from allranks.world import departures, sigterm, workers
from allranks.world.failure_listener import WakeUpThread
from allranks.world.failure_table import FailureTable, SharedStore
from allranks.world.peer_connections import (
    GIVE_UP_AFTER,
    PeerConnections,
    PeerEndpoint,
    PeerEvent,
    describe_silence,
    is_cut_off,
    watched_ranks,
)
from allranks.world.processes import ExitWatch, ProcessInfo

# How long a rank that fails waits whether it hears that another one failed: then its own failure is a consequence. The
# second, where a rank of its machine is seen ending.
_SETTLE, _SETTLE_LONG = 0.15, 1.0
# How much longer, where its own failure says that there is another, or may be.
_SEARCH = {CauseWeight.CAUSE: 0.0, CauseWeight.UNCLEAR: 1.0, CauseWeight.WAITING: 3.0, CauseWeight.CONSEQUENCE: 3.0}
# How long a rank that has failed may go on with its exit handlers (flush a log, finish an upload).
_LAST_WORDS = 1.0
# How long the rank that serves the store keeps it open for the others to hear of a failure: their last words included,
# because JAX aborts a rank whose coordinator goes.
_SERVE = 1.5
# How long the end of a rank may wait for the store: a store that does not answer must not hold it.
_EXIT_PATIENCE = 10.0
# How long missing ranks have to answer where they are.
_ANSWER = 2.0


class Sentinel:
    """The sentinel of this process, which is one of ``size`` ranks. Call ``listen`` first, then ``watch``."""

    def __init__(self, store: SharedStore, rank: int, size: int, me: ProcessInfo, *, fail_fast: bool) -> None:
        self._store = store
        self._failure_table = FailureTable(store, rank)
        self._rank, self._size, self._me = rank, size, me
        self._ends_all = fail_fast and "ALLRANKS_CONTROL" not in os.environ
        self._hosts: Mapping[int, str] = {rank: me.host}
        self.near: Mapping[int, int] = {}  # the pids of the other ranks of this machine, by rank
        self._heard = threading.Event()
        self._left = False
        self._dead: set[int] = set()
        self._deaths: ExitWatch | None = None
        self._peers = PeerConnections(rank, self._on_peer_event)
        self._is_store_rank_0 = False
        self._seen_by_others: set[int] = set()  # ranks with another rank on their machine, which knows how they end
        self._ending = threading.Lock()
        self._listeners: list[WakeUpThread] = []
        self._thread = threading.Thread(target=self._run_listener, name="allranks-sentinel", daemon=True)

    def listen(self) -> None:
        """From now on, listen for failures of other ranks, and report failures of this rank."""
        self._thread.start()
        agent.load().listen(self._rank, self._me.host, self._on_report)
        self._store.at_end(self._leave_store)
        workers.prepare_workers()
        if self._ends_all:
            sigterm.on_sigterm(self._report_sigterm, doomed=self._is_doomed)

    def open_endpoint(self, addresses: Sequence[str]) -> Mapping[str, Any] | None:
        """On rank 0, listen for connections of other machines; return what ``watch`` needs on every rank, else None."""
        if self._rank or "ALLRANKS_CONTROL" in os.environ:
            return None
        try:
            return {**self._peers.listen(addresses).to_json(), "serves": self._store.serves()}
        except OSError as error:
            self._write_stderr(f"cannot listen, so silent hosts will not be reported: {error}")
            return None

    def watch(self, everybody: Sequence[ProcessInfo], endpoint: Mapping[str, Any] | None, *, rendezvous: str) -> None:
        """Watch the processes of the other ranks.

        ``everybody`` has the processes of all ranks, in rank order, ``endpoint`` is that of rank 0, ``rendezvous`` is
        the host at which the ranks have joined, or "".
        """
        self._hosts = {rank: one.host for rank, one in enumerate(everybody)}
        here = self._me.machine
        self.near = {r: one.pid for r, one in enumerate(everybody) if here == one.machine != "" and r != self._rank}
        if here and "ALLRANKS_CONTROL" not in os.environ:
            self._deaths = ExitWatch(self.near, self._report_death)
        if endpoint is not None:
            addresses = [*filter(None, [rendezvous]), *endpoint["addresses"]]
            machines = [one.machine for one in everybody]
            watched = watched_ranks(machines)
            shared = {machine for machine, ranks in Counter(machines).items() if ranks > 1}
            self._seen_by_others = {rank for rank, machine in enumerate(machines) if machine in shared}
            self._is_store_rank_0 = endpoint["serves"]
            self._peers.watch(PeerEndpoint(tuple(addresses), endpoint["port"], endpoint["secret"]), watched)

    def wake(self) -> None:
        """Wake the listening threads of every rank."""
        self._failure_table.wake_up.wake()

    def on_wake(self, heard: Callable[[], None]) -> None:
        """Call ``heard`` now and after every wake-up, in a separate thread.

        The sentinel's own thread must not be blocked: it would miss a failure.
        """
        self._listeners.append(WakeUpThread(heard))

    def before_end(self, finish: Callable[[], object]) -> Callable[[], None]:
        undo: Callable[[], None] = agent.load().before_end(finish)
        return undo

    def end_all(self, failure: Failure) -> None:
        """End the job, on all ranks, because of a failure of any rank. Returns at once."""
        if "ALLRANKS_CONTROL" in os.environ:
            agent.load().report_peer_failure(asdict(failure))
            return
        departures.mark_ended(self._store, failure.rank, f"has failed: {failure.what}")
        self._failure_table.post_failure(failure)

    def at_end(self, farewell: Callable[[], None]) -> None:
        """Call ``farewell`` when the process ends normally, before the sentinel's thread leaves the store."""
        self._store.at_end(farewell)

    def locate(self, missing: Sequence[int]) -> Mapping[int, str]:
        """Return where each missing rank is, if it is known to have ended or answers within about two seconds."""
        places = {rank: why for rank, why in departures.read_ended(self._store).items() if rank in missing}
        asked = [rank for rank in missing if rank not in places and rank != self._rank]
        if not asked:
            return places
        question, deadline = self._failure_table.query(asked), time.monotonic() + _ANSWER
        for rank in asked:
            try:
                self._failure_table.await_answer(question, rank, max(0.0, deadline - time.monotonic()))
            except KeyTimeout:
                break
        return {**places, **self._failure_table.answers(question)}

    def _run_listener(self) -> None:
        """Run the listening thread: answer queries, and end this process when a rank has failed."""
        try:
            while self._failure_table.wake_up.hear():
                for question in self._failure_table.questions():
                    self._failure_table.answer(question, f"at {whereabouts() or 'its end'}")
                if failures := self._failure_table.failures():
                    self._heard.set()
                    self._end_process(first_of(failures))
                for listener in self._listeners:
                    listener.wake()
        except StoreError as error:
            if not self._left:
                self._handle_store_loss(error)

    def _on_report(self, kind: str, **fields: Any) -> None:
        """Handle a message of this rank's agent, in the thread where the event happened."""
        failure, exit_code = fields.get("failure"), fields.get("exit_code", 0)
        if failure is not None and kind in ("failed", "leaving", "exiting"):
            self._run_bounded(lambda: self._report_failure(Failure(**failure)), _EXIT_PATIENCE)
        elif kind in ("left", "leaving", "exiting"):
            self._run_bounded(lambda: self._mark_left(exit_code), _EXIT_PATIENCE)

    def _run_bounded(self, work: Callable[[], object], seconds: float) -> None:
        """Run ``work``, which uses the store, in a thread, and return when it has ended, or after so many seconds."""

        def run() -> None:
            try:
                work()
            except StoreError as error:
                time.sleep(_SETTLE)  # who sees the rank dead that served the store ends this process
                self._write_stderr(f"could not tell the other ranks how it ends: {error}")

        thread = threading.Thread(target=run, name="allranks-report", daemon=True)
        try:
            thread.start()
            thread.join(seconds)
        except RuntimeError:  # Python 3.12 and newer start no thread once the main thread is in its exit handlers
            run()

    def _mark_left(self, exit_code: int) -> None:
        if not self._left:
            self._left = True
            departures.mark_ended(self._store, self._rank, f"has left (exit code {exit_code})")

    def _report_sigterm(self) -> None:
        failure = self._failure_of(self._rank, "killed by SIGTERM", program.PREEMPTED)
        if sigterm.is_too_early():
            failure = replace(failure, what=f"{failure.what}; {program.NOT_YET}", exit_code=program.NOTHING_SAVED)
            if self._rank == 0:
                self._write_stderr(f"ends with exit code {failure.exit_code}: {failure.what}")
        self._report_failure(failure)
        self._exit_now(failure.exit_code)

    def _is_doomed(self) -> bool:
        """Return whether SIGTERM may be a consequence of another rank's failure.

        (torchrun sends SIGTERM to the surviving ranks.)
        """
        try:
            return self._heard.wait(self._seconds_for_cause(departures.read_ended(self._store)))
        except StoreError:
            return True

    def _on_peer_event(self, event: PeerEvent) -> None:
        """Handle the end of a rank of another machine, or the silence of its host."""
        if event.kind == "closed":
            self._heard.wait(_SETTLE if event.ranks[0] in self._seen_by_others else 0.0)
            self._report_death(event.ranks[0], None)
            return
        what = describe_silence(event, self._rank, self._hosts, self._peers.count)
        then = f". The job waits for it, {GIVE_UP_AFTER:.0f} s at most" if event.kind == "silent" else ""
        self._write_stderr(f"reports: {what}{then}")
        if event.kind == "lost" and self._ends_all:
            culprit = self._rank if is_cut_off(event, self._peers.count) else event.ranks[0]
            failure = self._failure_of(culprit, f"its host has not answered for {event.seconds:.0f} s", 1)
            self._run_bounded(lambda: self._report_failure(failure), _SERVE)
            self._end_process(failure)

    def _report_death(self, rank: int, wait_code: int | None) -> None:
        """Report that another rank has ended, unless that rank has reported it."""
        self._dead.add(rank)
        if self._heard.is_set():
            return
        what = (
            "its process ended without a message: killed, or crashed" if wait_code is None else describe_exit(wait_code)
        )
        failure = self._failure_of(rank, what, 1 if wait_code is None else shell_exit_code(wait_code))
        if rank == 0 and self._is_store_rank_0 and self._ends_all and not self._left:
            self._end_process(failure)  # at once: JAX is about to abort this process
        try:
            if rank in departures.read_ended(self._store):
                return
            if wait_code == 0:
                departures.mark_ended(self._store, rank, "has left (exit code 0, without a word: os._exit?)")
                return
            self._report_failure(failure)
        except StoreError:  # it served the store: everybody has to see for himself
            if self._ends_all and not self._left:
                self._end_process(failure)

    def _handle_store_loss(self, error: StoreError) -> None:
        """Handle the loss of the store: the rank that serves it has died, or the network has failed.

        If that rank has died, another rank on its machine reports a better reason.
        """
        time.sleep(_SETTLE)
        failure = self._failure_of(0, f"the store that it serves is gone ({error})", 1)
        if self._ends_all:
            self._end_process(failure)
        self._write_stderr(f"has lost its world: {failure.headline()}")

    def _report_failure(self, failure: Failure) -> None:
        """Report a failure to all ranks, unless it is this rank's failure and only a consequence of another one."""
        own, weight = failure.rank == self._rank, weight_of(failure)
        if own and self._ends_all and self._hears_of_another(weight):
            threading.Event().wait()  # the listening thread ends this process
        before = departures.read_ended(self._store)
        departures.mark_ended(self._store, failure.rank, f"has failed: {failure.what}")
        if not self._ends_all:
            return
        if own and before:
            left = "; ".join(f"rank {rank} {why}" for rank, why in before.items())
            failure = replace(failure, what=f"{failure.what} (before: {left})")
            self._write_stderr(f"failed after {left}")  # the launcher may end the others before they can say so
        if own and weight is not CauseWeight.CAUSE:
            failure = self._cause_of(failure, weight, before)
        self._failure_table.post_failure(failure)
        self._heard.set()
        if own:
            self._serve_store()

    def _hears_of_another(self, weight: CauseWeight) -> bool:
        """Wait for another rank's failure; return whether one is reported.

        Wait longer if this rank's failure is not a cause.
        """
        if self._heard.wait(self._seconds_for_cause(departures.read_ended(self._store))):
            return True
        deadline = time.monotonic() + _SEARCH[weight]
        while time.monotonic() < deadline and not departures.read_ended(self._store):
            if self._heard.wait(_SETTLE):
                return True
        return False

    def _seconds_for_cause(self, gone_before: Mapping[int, str]) -> float:
        dying = set() if self._deaths is None else self._deaths.dying().difference(gone_before)
        return _SETTLE_LONG if dying else _SETTLE

    def _cause_of(self, failure: Failure, weight: CauseWeight, before: Mapping[int, str]) -> Failure:
        """Return the failure of another rank that must have caused this rank's failure.

        Return ``failure`` if none is found. The cause is a rank that has left too early; or a rank of another machine
        that does not answer, because its failure cannot be seen from here.
        """
        left = [rank for rank, why in before.items() if why.startswith("has left")]
        if left and weight is not CauseWeight.UNCLEAR:
            rank, what = left[0], f"left early (exit code 0) while rank {self._rank} still needed it"
        else:
            silent = self._silent_ranks(before)
            if not silent:
                return failure
            if len({self._hosts.get(one) for one in silent}) > 1:
                return replace(failure, what=f"{failure.what} (several hosts do not answer: is this one cut off?)")
            rank, what = silent[0], "ended without a word, or its host did: it does not answer"
        what = f"{what}. Rank {self._rank} got {failure.what}"
        return replace(self._failure_of(rank, what, failure.exit_code), traceback=failure.traceback)

    def _silent_ranks(self, before: Mapping[int, str]) -> list[int]:
        known = {self._rank, *self.near, *before, *self._peers.reachable()}
        far = [rank for rank in range(self._size) if rank not in known]
        places = self.locate(far)
        return [rank for rank in far if rank not in places]

    def _end_process(self, first: Failure) -> NoReturn:
        """End this process because of the job's first failure, which may be this rank's or another rank's."""
        self._ending.acquire()  # for good: another thread is not to end it in other words
        if first.rank == self._rank:
            time.sleep(_LAST_WORDS)
        else:
            trace = f"\n{first.traceback.rstrip()}" if self._rank == 0 and first.traceback else ""
            self._write_stderr(f"ends with exit code {first.exit_code}, because {first.headline()}{trace}")
        self._run_bounded(self._confirm_end, _SERVE + _SETTLE_LONG)
        self._exit_now(first.exit_code)

    def _confirm_end(self) -> None:
        with contextlib.suppress(StoreError):
            self._failure_table.confirm()
            self._serve_store()

    def _serve_store(self) -> None:
        """Keep the store open until all ranks have learnt of the failure.

        Does nothing on ranks that do not serve the store.
        """
        others = set(range(self._size)) - {self._rank}
        deadline = time.monotonic() + _SERVE
        while (
            self._store.serves()
            and others - self._dead - self._failure_table.confirmed()
            and time.monotonic() < deadline
        ):
            time.sleep(0.02)

    def _exit_now(self, code: int) -> NoReturn:
        flush = threading.Thread(target=sys.stdout.flush, daemon=True)  # the main thread may hold its lock for ever
        try:
            flush.start()
            flush.join(_SERVE)
        except RuntimeError:  # Python 3.12 and newer start no thread once the main thread is in its exit handlers
            sys.stdout.flush()
        leave: Callable[[int], NoReturn] = agent.load("allranks_agent_exits").leave
        leave(code)

    def _leave_store(self) -> None:
        """Leave the store normally.

        A failed rank does not leave: the agent ends it, and it must not wait for other ranks.
        """
        if not self._left:
            return
        self._store.leave(self._stop_threads)

    def _stop_threads(self) -> None:
        self._thread.join()
        for listener in self._listeners:
            listener.stop()
        if self._deaths is not None:
            self._deaths.stop()
        self._peers.stop()

    def _failure_of(self, rank: int, what: str, exit_code: int) -> Failure:
        where = whereabouts().partition(" in ")[0] if rank == self._rank else ""
        return Failure(rank, self._hosts.get(rank, "?"), what, time.time(), where=where, exit_code=exit_code)

    def _write_stderr(self, text: str) -> None:
        """Write a line to file descriptor 2. (The main thread may hold the lock of Python's ``sys.stderr``.)"""
        os.write(2, f"allranks: rank {self._rank} {text}\n".encode())
