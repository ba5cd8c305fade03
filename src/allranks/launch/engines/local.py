"""Run N ranks on this machine. One loop waits for all events, a decider says what to do, and this file carries it out.

The decider of host 0, also of a job on one host, is `allranks.launch.hosts.coordinator`.
"""

from __future__ import annotations

import contextlib
import functools
import os
import selectors
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from allranks.errors import name_ranks
from allranks.launch import fork_server_messages as messages
from allranks.launch import forked_rank
from allranks.launch.capacity import needed_descriptors
from allranks.launch.console import Console
from allranks.launch.control_socket import ControlSocket
from allranks.launch.environment import JobLocation, common_variables, for_rank
from allranks.launch.events import (
    Action,
    Event,
    ForkServerLost,
    Interrupted,
    LocateRanks,
    MarkFailed,
    NotifyPeers,
    Print,
    RankExited,
    RankFailed,
    RankFailing,
    RankLeft,
    RankStarted,
    ShareSuspended,
    Signal,
    Tick,
)
from allranks.launch.fork_server import ForkServer
from allranks.launch.hosts.start import JobHosts, Start, on_this_host
from allranks.launch.job import Command, Job, to_json
from allranks.launch.limits import Limits, Phase
from allranks.launch.ports import ReservedPorts
from allranks.launch.rank_pipes import RankPipes, raised_descriptor_limit
from allranks.launch.rank_processes import RankProcesses
from allranks.launch.result import JobResult, RankResult
from allranks.launch.saves import Saves
from allranks.launch.signals import Signals
from allranks.launch.stall import RankLocator, seconds_until_report

# How many ranks may be on their way: between the starts, the loop takes the reports of those that have started.
MOST_STARTING = 16
# After the end: seconds for the fork server's last report, then for what is still in the pipes. Both end early.
SWEEP_PATIENCE, DRAIN_PATIENCE = 8.0, 1.0
AGENT = str(Path(__file__).parents[2] / "agent")


def run(
    job: Job,
    console: Console,
    *,
    cwd: str | None = None,
    base: Mapping[str, str] | None = None,
    fork_server: ForkServer | None = None,
    show: RankLocator | None = None,
    hosts: JobHosts | None = None,
) -> JobResult:
    """Run a job to its end, and return its result. Afterwards no process, port or file of the job is left.

    With ``hosts``, this machine is one host of a job on several: the result has the ranks of this host only.

    The ranks start in ``cwd`` (default: the current folder) with the environment ``base`` (default: ours) and a rank's
    variables. If a fork of imported frameworks is unsafe, the console says so, and each rank starts its own
    interpreter. A ``fork_server`` (ready, and of the same environment) is used and left open. Without one, the job
    starts its own. ``show`` finds out where the ranks are that hold up the job, when the launcher has to report that.
    In the main thread, this function handles the signals of ``Signals``. Raises OutputClosed if nobody reads the
    console any more; the ranks have ended then too.
    """
    cwd = os.getcwd() if cwd is None else cwd
    with ExitStack() as stack:
        files = stack.enter_context(raised_descriptor_limit(needed_descriptors(job.ranks, with_logs=False)))
        if hosts is None:
            hosts = on_this_host(job, stack.enter_context(ReservedPorts(2)).numbers)
        control_socket = stack.enter_context(ControlSocket(hosts.placement))
        site = JobLocation(
            job_id=hosts.job_id,
            placement=hosts.placement,
            address=hosts.address,
            coordinator_port=hosts.ports[0],
            master_port=hosts.ports[1],
            cores=len(os.sched_getaffinity(0)),
            control_path=control_socket.path,
            agent_dir=AGENT,
            base=os.environ if base is None else base,
            store_key=hosts.store_key,
        )
        envs = {rank: for_rank(job, rank, site) for rank in hosts.placement.ranks}
        signals = stack.enter_context(Signals())
        warm = fork_server is not None
        if fork_server is None:
            is_single = hosts.placement.size == 1
            common = common_variables([*envs.values()])
            fork_server = stack.enter_context(ForkServer(common, stdin=is_single, files=files))
        spawns = [messages.Spawn(rank, to_json(job.target), cwd, env) for rank, env in envs.items()]
        loop = stack.enter_context(_EventLoop(job, console, hosts, cwd=cwd, spawns=spawns, show=show))
        loop.attach(control_socket, fork_server, signals)
        if warm or not job.zygote or isinstance(job.target, Command):
            loop.spawn()
        else:
            fork_server.preload(job.target, cwd=cwd)
        return loop.run()


class _EventLoop:
    """The event loop of one job. It passes events from their sources to the supervisor."""

    def __init__(
        self,
        job: Job,
        console: Console,
        hosts: JobHosts,
        *,
        cwd: str,
        spawns: Sequence[messages.Spawn],
        show: RankLocator | None,
    ) -> None:
        self._job = job
        self._spawns = spawns
        self._console = console
        self._hosts = hosts
        self._start = time.monotonic()
        hang_after = 0.0 if show is None else seconds_until_report(job.hang_after, spawns[0].env)
        end = spawns[0].env.get("ALLRANKS_ON_HANG") == "end"
        limits = Limits(grace=job.grace, timeout=job.timeout, hang_after=hang_after, end_hangs=end)
        self._show = show
        self._shown: list[Event] = []
        saves = Saves(functools.cache(lambda: forked_rank.plan_for(job.target, cwd=cwd).makes_saver))
        self._decider = hosts.decide(Start(hosts.placement, self._start, limits, cwd, saves))
        self._ranks = RankProcesses(hosts.placement.ranks, hang_after)
        self._selector = selectors.DefaultSelector()
        self._pipes = RankPipes(self._selector, console)
        self._waiting: deque[messages.Spawn] = deque()  # the ranks that are still to be started
        self._starting: set[int] = set()
        self._is_sending = False
        self._full: frozenset[int] = frozenset()  # the descriptors that the console waits for
        self._exit_code: int | None = None
        self._has_ranks = self._swept = False

    def attach(self, control_socket: ControlSocket, fork_server: ForkServer, signals: Signals) -> None:
        self._control_socket, self._fork_server, self._signals = control_socket, fork_server, signals
        for source in (control_socket, fork_server, signals):
            self._selector.register(source, selectors.EVENT_READ)
        if self._hosts.links is not None:
            self._selector.register(self._hosts.links, selectors.EVENT_READ)

    def __enter__(self) -> _EventLoop:
        return self

    def __exit__(self, *_: object) -> None:
        self._selector.close()
        self._pipes.close()

    def spawn(self) -> None:
        """Start all ranks, from now on."""
        self._has_ranks = True
        self._waiting.extend(self._spawns)

    def _start_ranks(self) -> None:
        """Start the next ranks, unless the job is being stopped."""
        if self._decider.phase not in (Phase.RUNNING, Phase.SETTLING):
            self._waiting.clear()
        while self._waiting and len(self._starting) < MOST_STARTING and not self._fork_server.is_sending:
            spawn = self._waiting.popleft()
            self._starting.add(spawn.rank)
            out, err = self._pipes.open(spawn.rank)
            self._send_to_fork_server(functools.partial(self._fork_server.spawn, spawn, out=out, err=err))

    def run(self) -> JobResult:
        """Handle events until the job has ended and none of its processes lives. Return the job's result."""
        while self._exit_code is None:
            self._handle_events(self._seconds_until_due())
        if self._has_ranks:  # else the fork server may be deep in an import, and has nothing to sweep
            self._order(messages.Sweep())
            self._turn_until(lambda: self._swept, SWEEP_PATIENCE)
            self._turn_until(lambda: not self._pipes.has_open, DRAIN_PATIENCE)
        self._console.report_hidden_lines()
        return self._job_result(self._exit_code)

    def _turn_until(self, true: Callable[[], bool], patience: float) -> None:
        deadline = time.monotonic() + patience
        while not true() and (left := deadline - time.monotonic()) > 0:
            self._handle_events(left)

    def _seconds_until_due(self) -> float | None:
        """Return the seconds until the supervisor or the console is due, or None if neither is."""
        now = time.monotonic()
        due = [self._console.flush_due(now), self._decider.deadline, now if self._shown else None]
        due.append(self._ranks.suspensions_due(now))
        moments = [moment for moment in due if moment is not None]
        return max(0.0, min(moments) - now) if moments else None

    def _handle_events(self, timeout: float | None) -> None:
        """Wait for events and handle them. Reports of agents are first: reports of the fork server happened later."""
        self._pipes.read_or_pause(not self._console.is_full)
        self._watch_output()
        self._start_ranks()
        self._watch_sending()
        ready = [(key.fileobj, key.data) for key, _ in self._selector.select(timeout)]
        sources = [source for source, _ in ready]
        if not self._full.isdisjoint(sources):
            self._console.flush_due(time.monotonic())
        for source, data in ready:
            if data is not None:
                self._pipes.read(source, *data)
        events: list[Event] = []
        if self._signals in sources:
            events += self._signals.events()
            self._pass_on_signals()
            if any(isinstance(event, Interrupted) for event in events):
                self._console.show_once()
        if self._fork_server in sources:
            self._send_to_fork_server(self._fork_server.flush)
            seen = self._fork_server.reports()
            events += self._agent_events()
            events += self._fork_server_events(seen)
        elif self._control_socket in sources:
            events += self._agent_events()
        links, now = self._hosts.links, time.monotonic()
        actions = [] if links is None else links.receive(self._decider, now)
        suspensions = self._ranks.suspensions(self._control_socket.agents, self._fork_server.pid, now)
        for event in [*events, *self._take_located(), *suspensions, Tick(self._exiting_ranks())]:
            actions += self._decider.on(event, time.monotonic())
        if links is not None:
            links.flush(self._decider)
        for action in actions:
            self._perform_action(action)
        if (failed := self._decider.failed_rank) is not None:
            self._console.limit_peers(failed)

    def _agent_events(self) -> Iterator[Event]:
        for report in self._control_socket.reports():
            if isinstance(report, RankFailing | RankFailed | RankLeft):
                rank = report.rank if isinstance(report, RankLeft) else report.failure.rank
                # A rank of this host may report the failure of one elsewhere.
                yield replace(report, lines=self._pipes.last_lines(rank) if rank in self._ranks else ())
            else:
                yield report
        if note := self._control_socket.refusal_note():
            self._print_line(note)

    def _exiting_ranks(self) -> frozenset[int]:
        """Return the ranks whose processes are exiting. Other ranks may notice the exit before the fork server does."""
        if self._decider.phase is not Phase.SETTLING:
            return frozenset()
        return self._ranks.exiting()

    def _fork_server_events(self, reports: list[messages.Message | None]) -> Iterator[Event]:
        """Process reports of the fork server; yield the events for the supervisor."""
        for report in reports:
            if isinstance(report, messages.Started):
                rank = self._ranks[report.rank]
                rank.started, rank.pid = report.when, report.pid
                self._starting.discard(report.rank)
                yield RankStarted(report.rank)
            elif isinstance(report, messages.Exited):
                self._ranks[report.rank].ended = report
                self._starting.discard(report.rank)
                lines = self._pipes.last_lines(report.rank)
                yield RankExited(report.rank, report.wait_code, report.when, lines)
            elif isinstance(report, messages.Ready):
                if report.obstacle:
                    self._console.note(f"allranks: no fast start, each rank imports by itself: {report.obstacle}")
                if self._exit_code is None:
                    self.spawn()
            elif isinstance(report, messages.Swept):
                self._swept = True
                if report.stuck:
                    self._print_line(f"processes {', '.join(map(str, report.stuck))} could not be killed")
            elif report is None:
                self._swept = True
                self._selector.unregister(self._fork_server)
                self._ranks.kill_groups()
                yield ForkServerLost()

    def _perform_action(self, action: Action) -> None:
        if isinstance(action, Signal):
            agents = tuple(self._control_socket.agents.get(rank, 0) for rank in action.ranks)
            self._order(messages.Kill(action.ranks, action.signum, agents))
        elif isinstance(action, Print):
            self._print_line(action.text, notice=action.notice)
        elif isinstance(action, NotifyPeers):
            for rank in action.ranks:
                self._control_socket.notify(rank)
        elif isinstance(action, MarkFailed):
            self._control_socket.mark_failed()
        elif isinstance(action, ShareSuspended):
            self._control_socket.share_suspended(action.ranks)
        elif isinstance(action, LocateRanks):
            self._locate_ranks(action)
        elif self._exit_code is None:
            self._exit_code = action.exit_code

    def _pass_on_signals(self) -> None:
        """Send SIGUSR1 and SIGUSR2 to the ranks of this host. Under Slurm, the launcher of each host gets them."""
        for signum in self._signals.take_for_ranks():
            ranks = tuple(self._ranks.pids) if self._decider.phase is Phase.RUNNING else ()
            if ranks:
                self._perform_action(Signal(ranks, signum))
            what = f"sent on to {name_ranks(ranks)}" if ranks else "ignored, because no rank runs"
            self._print_line(f"{signum.name} received: {what}", notice=True)

    def _locate_ranks(self, action: LocateRanks) -> None:
        if self._show is None:
            return
        shown = self._show(action, self._ranks.pids)
        for line in filter(str.strip, shown.lines):
            self._print_line(line)
        policy = self._spawns[0].env.get("ALLRANKS_ON_HANG")
        if shown.failure is not None and policy == "end" and action.reason != "time":
            self._shown.append(RankFailed(shown.failure, waits=False))

    def _take_located(self) -> list[Event]:
        shown, self._shown = self._shown, []
        return shown

    def _order(self, message: messages.Kill | messages.Sweep) -> None:
        self._send_to_fork_server(functools.partial(self._fork_server.order, message))

    def _send_to_fork_server(self, send: Callable[[], None]) -> None:
        with contextlib.suppress(BrokenPipeError):  # its end is in the socket too, and is read as ForkServerLost
            send()

    def _watch_sending(self) -> None:
        """Wait until the fork server reads, while messages to it wait."""
        if self._swept or self._fork_server.is_sending is self._is_sending:
            return
        self._is_sending = not self._is_sending
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._is_sending else 0)
        self._selector.modify(self._fork_server, events)

    def _print_line(self, text: str, *, notice: bool = False) -> None:
        """Print a text, which a rank or another host may have sent, as one line."""
        show = self._console.note if notice else self._console.print_line
        show(f"allranks: {text}".rstrip().replace("\n", "\\n"))

    def _watch_output(self) -> None:
        """Register full outputs with the selector until they accept bytes again.

        Other outputs are nearly always writable.
        """
        full = self._console.full_descriptors
        for fd in self._full - full:
            self._selector.unregister(fd)
        for fd in full - self._full:
            self._selector.register(fd, selectors.EVENT_WRITE)
        self._full = full

    def _job_result(self, exit_code: int) -> JobResult:
        end = self._decider.ending()
        ranks = tuple(
            RankResult(
                number,
                self._hosts.placement.name,
                self._job.devices,
                rank.ended.wait_code if rank.ended else None,
                stopped=number in end.stopped,
                reported=end.reported.get(number),
                seconds=rank.seconds,
                peak_bytes=rank.ended.peak_bytes if rank.ended else 0,
                tail=self._console.tail(number),
            )
            for number, rank in self._ranks.items()
        )
        seconds = time.monotonic() - self._start
        return JobResult(exit_code, ranks, end.first_failure, end.cause, seconds, (), end.unjoined, end.saved, end.slow)
