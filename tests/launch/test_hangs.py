"""Hangs of a job are reported once, on every host: what a rank's watch finds, and stopped ranks that none finds."""

from __future__ import annotations

from typing import Any

import pytest
from simulated_hosts import LIMITS, Rank, Simulation

from allranks import agent
from allranks.failure import Failure
from allranks.launch.control_socket import ControlSocket
from allranks.launch.events import Finish, HangReport, LocateRanks, RankFailed
from allranks.launch.hangs import PATIENCE
from allranks.launch.limits import Limits, Phase

CONTROL: Any = agent.load("allranks_agent_control")
REPORT = ("HANG: ranks 0-1 wait for rank 2 (host h2)", "  rank 2 (host h2) is stopped")
STOPPED = "HANG: rank 0 (host h0) is stopped: its process gets no time (SIGSTOP, a debugger, Ctrl-Z)"


def hosts(**limits: Any) -> Simulation:
    job = Simulation(3, 1, limits=Limits(hang_after=10.0, **limits))
    job.run(until=2.0)
    return job


def hangs(job: Simulation) -> list[list[str]]:
    """Return what each host has printed about hangs."""
    return [[line for line in host.printed if line.startswith(("HANG", "  "))] for host in job.hosts]


def test_a_stopped_rank_that_nobody_reports_is_reported_on_every_host_and_taken_back() -> None:
    job = hosts()
    job.suspend(0)
    job.run(until=3.0)
    assert [host.suspended for host in job.hosts] == [(0,)] * 3
    job.run(until=2.0 + 10.0 + PATIENCE - 0.1)
    assert hangs(job) == [[], [], []]
    job.run(until=60.0)
    lines = hangs(job)
    assert all(found[0] == f"{STOPPED}, since 15 s" for found in lines)
    assert [len(found) for found in lines] == [2, 1, 1]
    job.resume(0)
    job.run(until=62.0)
    over = "HANG: the hang is over: rank 0 (host h0) is not stopped any more"
    assert [found[-1] for found in hangs(job)] == [over] * 3
    assert [host.suspended for host in job.hosts] == [()] * 3


def test_a_rank_that_is_stopped_for_a_moment_is_not_reported() -> None:
    job = hosts()
    job.suspend(1)
    job.at(9.0, lambda: job.resume(1))
    job.run(until=60.0)
    assert hangs(job) == [[], [], []]


def test_the_report_of_a_watch_is_complete_on_host_0_and_one_line_elsewhere() -> None:
    """Two watches that report the same are one report, and so are their ends."""
    job = hosts()
    job.suspend(2)
    for rank in (1, 0):
        job.event(job.hosts[rank], HangReport(rank, (2,), REPORT))
    job.run(until=60.0)
    assert hangs(job) == [[*REPORT], [REPORT[0]], [REPORT[0]]]
    job.event(job.hosts[1], HangReport(1, is_over=True))  # sees it before the launcher does
    job.resume(2)
    job.run(until=80.0)
    job.event(job.hosts[1], HangReport(1, is_over=True))
    job.run(until=90.0)
    over = "HANG: the hang is over: rank 2 (host h2) is not stopped any more"
    assert hangs(job) == [[*REPORT, over], [REPORT[0], over], [REPORT[0], over]]


def test_a_hang_that_ends_by_itself_is_taken_back_everywhere() -> None:
    job = hosts()
    job.event(job.hosts[1], HangReport(1, (2,), REPORT))
    for rank in (1, 0):
        job.event(job.hosts[rank], HangReport(rank, is_over=True))
    job.run(until=5.0)
    over = "HANG: the hang is over: rank 1 makes progress again"
    assert hangs(job) == [[*REPORT, over], [REPORT[0], over], [REPORT[0], over]]


def test_a_report_that_the_rank_has_printed_itself_is_not_printed_again() -> None:
    job = Simulation(1, 2, limits=Limits(hang_after=1.0))
    job.run(until=1.0)
    job.suspend(0)
    job.event(job.hosts[0], HangReport(1, (0,)))
    job.run(until=30.0)
    job.event(job.hosts[0], HangReport(1, is_over=True))
    job.resume(0)
    assert hangs(job) == [[]]


def test_a_job_that_is_to_end_with_a_hang_ends_with_75_on_every_host() -> None:
    job = hosts(end_hangs=True)
    job.hosts[0].ranks[0] = Rank(0, obeys=False, alive=True)
    job.suspend(0)
    job.run(until=60.0)
    assert [host.ended for host in job.hosts] == [Finish(75)] * 3
    for host in job.hosts:
        first = host.decider.ending().first_failure
        assert first is not None
        assert first.headline() == f"rank 0 (host h0) failed: {STOPPED}, since 15 s"


@pytest.mark.parametrize(
    ("what", "culprit"),
    [("RuntimeError: [gloo] Timed out waiting 1800000ms for recv operation to complete", 0), ("ValueError: bad", 1)],
)
def test_a_rank_that_has_been_stopped_for_long_is_why_a_framework_gives_up(what: str, culprit: int) -> None:
    """Also without a limit for hangs. An error of a program is its own cause."""
    job = Simulation(3, 1, limits=LIMITS)
    job.run(until=1.0)
    job.suspend(0)
    job.run(until=50.0)
    job.event(job.hosts[1], RankFailed(Failure(1, "", what, job.wall(job.hosts[1]) - job.hosts[1].offset)))
    job.run(until=80.0)
    first = job.hosts[2].decider.ending().first_failure
    assert first is not None
    assert first.rank == culprit
    assert first.exit_code == (75 if culprit == 0 else 1)
    assert job.hosts[0].decider.phase is Phase.ENDED


def test_the_time_limit_names_the_hang_that_was_reported() -> None:
    job = hosts(timeout=30.0)
    job.event(job.hosts[1], HangReport(1, (2,), REPORT))
    located: list[LocateRanks] = []
    perform = job.perform
    job.perform = lambda host, actions: (  # type: ignore[method-assign]
        located.extend(one for one in actions if isinstance(one, LocateRanks)),
        perform(host, actions),
    )[-1]
    job.run(until=60.0)
    assert [(one.reason, one.culprits) for one in located] == [("time", (2,))] * 3
    for host in job.hosts:
        end = host.decider.ending()
        assert (end.exit_code, end.cause) == (124, f"stopped at the time limit of 30 s; reported before: {REPORT[0]}")


def test_a_watch_reports_to_the_launcher_and_learns_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert CONTROL.suspended_ranks() == ()
    assert not CONTROL.report_hang("HANG: rank 0", (0,), prints=True)
    with ControlSocket() as control:
        monkeypatch.setenv("ALLRANKS_CONTROL", control.path)
        monkeypatch.setenv("ALLRANKS_RANK", "1")
        assert CONTROL.suspended_ranks() == ()
        control.share_suspended((0, 3))
        assert CONTROL.suspended_ranks() == (0, 3)
        assert CONTROL.report_hang("HANG: rank 0\n\n  here", (0,), prints=True)
        assert not CONTROL.report_hang("HANG: rank 0", (0,), prints=False)
        assert control.reports() == [HangReport(1, (0,), ("HANG: rank 0", "  here")), HangReport(1, (0,))]


def test_a_report_that_is_too_long_for_the_launcher_is_not_taken(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The watch then prints it itself."""
    with ControlSocket() as control:
        monkeypatch.setenv("ALLRANKS_CONTROL", control.path)
        monkeypatch.setenv("ALLRANKS_RANK", "1")
        assert not CONTROL.report_hang("HANG: " + "x" * (1 << 22), (0,), prints=True)
    assert "cannot send 'hang' to the launcher: " in capfd.readouterr().err
