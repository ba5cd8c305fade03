"""The supervisor: every phase answers every event, and a job that is stopped ends, whatever its ranks do."""

from __future__ import annotations

import itertools
import signal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
from allranks.launch.limits import Limits, Phase
from allranks.launch.saves import Saves
from allranks.launch.supervise import TABLE, Supervisor

LIMITS = Limits(grace=5.0, crash_grace=0.75, settle=0.25, join_patience=1.0, kill_patience=5.0, timeout=60.0)


def failure(rank: int, what: str = "ValueError: bad row", when: float = 0.0, exit_code: int = 1) -> Failure:
    return Failure(rank, "a", what, when, exit_code=exit_code)


class Job:
    """A supervisor on a manual clock, with all ranks started."""

    def __init__(self, size: int = 4, *, makes_saver: bool = False) -> None:
        self.now = 0.0
        self.supervisor = Supervisor(size, now=0.0, limits=LIMITS, host="a", saves=Saves(lambda: makes_saver))
        self.actions: list[Action] = []
        for rank in range(size):
            self.on(RankStarted(rank))

    def on(self, *events: Event) -> Job:
        for event in events:
            self.actions += self.supervisor.on(event, self.now)
        return self

    def after(self, seconds: float) -> Job:
        self.now += seconds
        return self.on(Tick())

    def exits(self, ranks: range | list[int], code: int = 0) -> Job:
        return self.on(*(RankExited(rank, code, self.now) for rank in ranks))

    @property
    def signals(self) -> list[tuple[tuple[int, ...], int]]:
        return [(action.ranks, action.signum) for action in self.actions if isinstance(action, Signal)]

    @property
    def exit_code(self) -> int | None:
        codes = [action.exit_code for action in self.actions if isinstance(action, Finish)]
        assert len(codes) <= 1, "a job ends once"
        return codes[0] if codes else None

    @property
    def first(self) -> tuple[int, str] | None:
        found = self.supervisor.first_failure
        return None if found is None else (found.rank, found.what)


def test_every_phase_answers_every_event() -> None:
    """The table has no hole, and names no event that does not exist."""
    assert set(TABLE) == set(itertools.product(Phase, EVENTS))


def test_a_job_whose_ranks_all_exit_with_0_ends_with_0() -> None:
    job = Job().on(RankLeft(2, 1.0)).exits(range(4))
    assert (job.exit_code, job.first, job.signals) == (0, None, [])


def test_a_failure_stops_the_others_and_decides_the_exit_code() -> None:
    """It settles, asks the living ranks by SIGTERM, then kills them; the code is that of the rank that failed."""
    job = Job().on(RankFailed(failure(2, exit_code=3))).exits([2], 3).after(0.2)
    assert job.signals == []
    assert job.after(0.05).signals == [((0, 1, 3), signal.SIGTERM)]
    assert job.after(0.74).exits([0], -15).exit_code is None
    assert job.after(0.01).signals[1:] == [((1, 3), signal.SIGKILL)]
    assert job.exits([1, 3], -9).exit_code == 3
    assert job.first == (2, "ValueError: bad row")


def test_a_failed_rank_keeps_its_sockets_open_until_the_others_have_ended() -> None:
    """Or these would report broken connections. What it said itself is its exit code, though it ends when we say."""
    job = Job().on(RankFailed(failure(2, exit_code=3))).after(0.25)
    assert job.signals == [((0, 1, 3), signal.SIGTERM)]
    assert job.exits([0, 3], -15).signals[1:] == []
    assert job.exits([1], -15).signals[1:] == [((2,), signal.SIGTERM)]
    assert job.exits([2], 3).exit_code == 3


def test_ranks_that_all_fail_are_released_at_once_and_the_lowest_last() -> None:
    """Nobody is left to be stopped; rank 0 serves the store of the others."""
    job = Job().on(*(RankFailed(failure(rank)) for rank in range(4)))
    assert job.signals == [((3, 2, 1), signal.SIGTERM)]
    assert job.exits([3, 1, 2], 1).signals[1:] == [((0,), signal.SIGTERM)]
    assert job.exits([0], 1).exit_code == 1


def test_ranks_that_ctrl_c_has_ended_are_released_at_once() -> None:
    """Each tells a KeyboardInterrupt and waits; nobody is left for whom, and the grace is not paid."""
    job = Job(2).on(Interrupted())
    assert job.signals == [((0, 1), signal.SIGINT)]
    job.on(*(RankFailed(failure(rank, "KeyboardInterrupt", exit_code=130)) for rank in (0, 1)))
    assert job.signals[1:] == [((1,), signal.SIGTERM)]
    assert job.exits([1], 130).signals[2:] == [((0,), signal.SIGTERM)]
    assert job.exits([0], 130).exit_code == 130
    assert job.first is None


def test_a_rank_that_fails_when_it_is_stopped_is_released_by_a_signal_of_its_own() -> None:
    """The SIGTERM that stopped it made it raise, and it waits for the next."""
    job = Job(2).on(RankFailed(failure(0))).after(0.25)
    assert job.signals == [((1,), signal.SIGTERM)]
    job.on(RankFailed(failure(1, "RuntimeError: stopped")))
    assert job.signals[1:] == [((1,), signal.SIGTERM)]
    assert job.exits([1], 1).signals[2:] == [((0,), signal.SIGTERM)]
    assert job.exits([0], 1).first == (0, "ValueError: bad row")


def test_the_failure_with_the_earliest_time_is_first_in_whatever_order_they_come() -> None:
    job = Job().on(RankFailed(failure(1, "KeyError: 'b'", 2.0)), RankFailed(failure(3, "KeyError: 'a'", 1.0)))
    assert job.first == (3, "KeyError: 'a'")


def test_a_killed_rank_comes_before_the_connection_errors_that_it_causes() -> None:
    """Its peers' exceptions are known some milliseconds before its own end is."""
    job = Job().on(RankFailed(failure(0, "JaxRuntimeError: Gloo: Connection closed by peer", 9.99)))
    job.now = 10.0
    job.exits([2], -signal.SIGKILL).exits([0], 1).exits([1, 3], -signal.SIGABRT)
    assert job.exit_code == 128 + signal.SIGKILL
    assert job.first == (2, "ended without a Python error: killed by SIGKILL")


def test_a_killed_rank_comes_before_an_exception_in_which_its_peer_wraps_the_connection_error() -> None:
    job = Job().on(RankFailed(failure(0, "RuntimeError: step failed", 9.99)))
    job.now = 10.0
    job.exits([2], -signal.SIGKILL).exits([0], 1)
    job.now = 10.1
    job.exits([1, 3], -signal.SIGABRT)
    assert job.first == (2, "ended without a Python error: killed by SIGKILL")


def test_an_abort_by_the_runtime_is_a_consequence_of_the_exception_before_it() -> None:
    """XLA ends the peers of a dead rank by SIGABRT."""
    job = Job().on(RankFailed(failure(0, when=9.99))).exits([0], 1)
    job.now = 10.0
    assert job.exits([1, 2, 3], -signal.SIGABRT).first == (0, "ValueError: bad row")


def test_a_rank_killed_from_outside_is_first_even_where_it_is_seen_after_we_stopped_the_job() -> None:
    job = Job().on(RankFailed(failure(0, "Connection reset by peer", 0.0))).exits([0], 1).after(0.25)
    assert job.exits([2], -signal.SIGKILL).exits([1, 3], -signal.SIGTERM).first is not None
    assert job.exit_code == 137


CLOSED = "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:42638"


def test_a_consequence_waits_for_its_cause() -> None:
    """On a busy machine the end of a process is seen seconds after the error that it caused in a peer."""
    job = Job().on(RankFailed(failure(0, CLOSED))).after(0.25).after(2.0)
    assert job.signals == []
    assert job.exits([2], -signal.SIGKILL).after(0.25).signals == [((1, 3), signal.SIGTERM)]
    assert job.first == (2, "ended without a Python error: killed by SIGKILL")


def test_the_wait_for_a_cause_ends() -> None:
    """After 5 s where there must be one, and after 1 s where there may be."""
    job = Job().on(RankFailed(failure(0, CLOSED))).after(0.25).after(4.7)
    assert job.signals == []
    assert job.after(0.1).signals == [((1, 2, 3), signal.SIGTERM)]
    unclear = Job().on(RankFailed(failure(0, "ConnectionRefusedError: [Errno 111] Connection refused"))).after(0.25)
    assert unclear.signals == []
    assert unclear.after(0.75).signals == [((1, 2, 3), signal.SIGTERM)]


def test_a_process_that_is_ending_is_waited_for_though_a_cause_is_known() -> None:
    """The kernel says so before the fork server has collected it; it may have been first."""
    job = Job().on(RankFailed(failure(0, "StepFailed: step 3", 10.0)))
    job.now = 0.3
    assert job.on(Tick(frozenset({2}))).signals == []
    assert job.on(RankExited(2, -signal.SIGKILL, 10.1)).after(0.3).signals == [((1, 3), signal.SIGTERM)]
    assert job.first == (2, "ended without a Python error: killed by SIGKILL")


def test_what_a_rank_tells_before_it_ends_counts_though_its_peers_are_heard_first() -> None:
    """An excepthook of the program ends the process: only `failing` and the exit are seen."""
    job = Job(2).on(RankFailing(failure(1, when=1.0)), RankFailed(failure(0, CLOSED, 1.1)))
    assert job.signals == []
    assert job.exits([1], 4).first == (1, "ValueError: bad row")
    assert job.exits([0], 1).exit_code == 4


def test_a_rank_that_leaves_early_is_first_where_its_peers_lose_their_connection() -> None:
    """Neither the peers' errors nor its own abort, when they are gone, hide it."""
    job = Job(3).on(RankLeft(1, 1.0), RankFailed(failure(0, "UNKNOWN: Gloo all-reduce failed: Connection closed", 1.1)))
    job.now = 1.2
    job.exits([0], 1).exits([1], -signal.SIGABRT).exits([2], -signal.SIGABRT)
    assert job.first == (1, "left early (exit code 0) while ranks 0, 2 still needed it")
    assert job.exit_code == 1


def test_ranks_that_are_stopped_before_they_notice_needed_the_one_that_left_as_well() -> None:
    """One peer says so within the time to settle, the other one does not."""
    job = Job(3).on(RankLeft(1, 1.0), RankFailed(failure(2, "Gloo all-reduce failed: Connection closed by peer", 1.1)))
    job.after(0.25).exits([0, 1], -signal.SIGTERM).exits([2], 1)
    assert job.first == (1, "left early (exit code 0) while ranks 0, 2 still needed it")


def test_the_exception_on_whose_way_up_a_rank_left_the_world_is_first() -> None:
    job = Job(2).on(RankLeft(1, 1.0, failure(1)), RankFailed(failure(0, "Connection closed by peer", 1.1)))
    assert job.first == (1, "ValueError: bad row")


def test_the_peers_of_a_rank_that_left_are_told() -> None:
    """Those in the same world and those that join it later, each once, and no one who has left or ended."""
    job = Job(4).on(Joined(0), Joined(1), Joined(2)).exits([0]).on(RankLeft(1, 1.0), Joined(3))
    told = [action.ranks for action in job.actions if isinstance(action, NotifyPeers)]
    assert told == [(1, 2), (3,)]


def test_an_own_exception_after_others_have_left_is_its_own_fault() -> None:
    job = Job(2).on(RankLeft(1, 1.0), RankFailed(failure(0, "ValueError: bad row", 2.0)))
    assert job.first == (0, "ValueError: bad row")


def test_an_abort_after_all_have_left_is_its_own_fault() -> None:
    job = Job(2).on(RankLeft(0, 1.0), RankLeft(1, 1.0)).exits([0]).exits([1], -signal.SIGABRT)
    assert (job.first, job.exit_code) == ((1, "ended without a Python error: killed by SIGABRT"), 134)


def test_a_rank_that_exits_without_joining_while_another_waits_to_join_left_early() -> None:
    job = Job(3).on(Joining(0), Joining(2)).exits([1]).after(0.9)
    assert job.first is None
    assert job.after(0.1).first == (1, "left early (exit code 0) while ranks 0, 2 wait for it to join the world")
    assert job.after(0.25).signals == [((0, 2), signal.SIGTERM)]
    assert job.exits([0, 2], -15).exit_code == 1


def test_a_rank_that_has_joined_may_exit_before_another_joins_a_second_world() -> None:
    job = Job(2).on(Joining(0), Joining(1), Joined(0), Joined(1)).exits([1]).on(Joining(0)).after(30.0)
    assert (job.first, job.signals) == (None, [])


def parts(rank: int) -> RankLeft:
    return RankLeft(rank, 1.0, None, 143, "saved step 7 and left", "SIGTERM on rank 2")


def test_ranks_that_all_leave_in_order_have_not_failed_whatever_their_code() -> None:
    """They said so before; the job ends with their code, and with their reason. Who did not say so has failed."""
    job = Job().on(*map(parts, range(4))).exits(range(4), 143)
    assert (job.exit_code, job.first, job.signals) == (143, None, [])
    assert job.supervisor.cause == "saved step 7 and left (SIGTERM on rank 2)"
    job = Job().on(parts(0)).exits([0], 143).exits([1], 143).after(0.25).exits([2, 3], -15)
    assert job.first == (1, "ended without a Python error: exit code 143")


def test_ranks_that_leave_in_order_after_sigterm_say_why() -> None:
    job = Job().on(Terminated())
    job.on(*map(parts, range(4))).exits(range(4), 143)
    assert job.exit_code == 143
    assert job.supervisor.cause == "stopped by SIGTERM; saved step 7 and left"


def test_ranks_are_told_whether_sigterm_comes_because_one_has_failed() -> None:
    """Then they need not try to save together; after a signal to the launcher they may."""
    assert MarkFailed() not in Job().on(Terminated()).actions
    told = Job().on(RankFailed(failure(2))).after(0.25).actions
    assert told.index(MarkFailed()) < next(i for i, action in enumerate(told) if isinstance(action, Signal))


def test_ctrl_c_gives_the_ranks_their_grace_and_a_second_one_does_not() -> None:
    job = Job().on(Interrupted())
    assert job.signals == [((0, 1, 2, 3), signal.SIGINT)]
    assert any(isinstance(action, Print) and "Ctrl-C again to kill" in action.text for action in job.actions)
    job.on(RankFailed(failure(0, "KeyboardInterrupt"))).exits([0], 130).after(4.9)
    assert job.on(Interrupted()).signals[1:] == [((1, 2, 3), signal.SIGKILL)]
    assert job.exits([1, 2, 3], -9).exit_code == 130
    assert (job.first, job.supervisor.cause) == (None, "interrupted by Ctrl-C")


def test_sigterm_ends_the_job_after_the_grace() -> None:
    job = Job(1).on(Terminated()).after(5.0)
    assert [signum for _, signum in job.signals] == [signal.SIGTERM, signal.SIGKILL]
    assert job.exits([0], -9).exit_code == 137
    assert job.supervisor.cause == "stopped by SIGTERM; rank 0 was killed when the grace of 5 s was over"


def test_the_job_ends_with_143_only_where_nothing_is_lost() -> None:
    """Ranks that answer SIGTERM and were killed, or failed, have saved nothing: the code and the cause say so."""
    saving_ranks = [SaveReport(0, saves_on_sigterm=True), SaveReport(1, saves_on_sigterm=True), SaveReport(0, step=20)]
    killed = Job(2).on(*saving_ranks, Terminated()).after(5.0).exits([0, 1], -9)
    lost = "stopped by SIGTERM; nothing was saved since step 20"
    assert (killed.exit_code, killed.supervisor.cause) == (
        137,
        f"{lost}: ranks 0-1 were killed when the grace of 5 s was over",
    )
    assert Print("SIGTERM received: ranks 0-1 are to save and leave within 5 s", notice=True) in killed.actions
    assert Print("the grace of 5 s is over: killing ranks 0-1") in killed.actions
    failed = Job(2).on(*saving_ranks, Terminated(), RankFailed(failure(1, exit_code=3))).exits([1], 3).exits([0], 143)
    assert (failed.exit_code, failed.supervisor.cause) == (3, f"{lost}: {failure(1).headline()}")
    done = Job(2).on(*saving_ranks, Terminated()).exits([0, 1])
    assert (done.exit_code, done.supervisor.cause) == (143, "stopped by SIGTERM")
    closed = (
        Job(2)
        .on(*saving_ranks, SaveReport(0, saves_on_sigterm=False), SaveReport(1, saves_on_sigterm=False), Terminated())
        .exits([0, 1], -15)
    )
    assert (closed.exit_code, closed.supervisor.cause) == (143, "stopped by SIGTERM")


@pytest.mark.parametrize(
    ("makes_saver", "reports", "code"),
    [(True, [], 1), (False, [], 143), (True, [SaveReport(0, saves_on_sigterm=False)], 143)],
    ids=["to come", "none", "read-only"],
)
def test_a_sigterm_before_the_checkpointer_is_made_says_so(
    makes_saver: bool, reports: list[SaveReport], code: int
) -> None:
    """Whether the launcher gets it or a rank."""
    to_all = Job(2, makes_saver=makes_saver).on(*reports, Terminated()).exits([0, 1], -15)
    to_one = Job(2, makes_saver=makes_saver).on(*reports).exits([1], -15).after(0.3).exits([0], -15)
    assert (to_all.exit_code, to_one.exit_code) == (code, code)
    early = "nothing was saved: no Checkpointer was made yet"
    assert (early in to_all.supervisor.cause, early in to_one.first[1]) == (code == 1, code == 1)


def test_a_sigterm_that_is_repeated_at_once_is_the_same_one() -> None:
    """``timeout`` signals its child, then the whole group; a later one kills."""
    job = Job(1).on(Terminated()).on(Terminated(signal.SIGHUP))
    assert [signum for _, signum in job.signals] == [signal.SIGTERM]
    job.now += 1.0
    assert [signum for _, signum in job.on(Terminated()).signals] == [signal.SIGTERM, signal.SIGKILL]


def test_a_sigterm_to_all_may_reach_a_rank_before_the_launcher() -> None:
    job = Job(2).exits([1], -15).on(Terminated())
    assert job.signals == [((0,), signal.SIGTERM)]
    assert job.exits([0], -15).exit_code == 143


def test_the_time_limit_ends_the_job_with_124() -> None:
    job = Job(1).after(60.0).after(0.75).exits([0], -9)
    assert (job.exit_code, job.supervisor.cause) == (124, "stopped at the time limit of 60 s")


def test_a_job_ends_where_a_process_cannot_be_killed() -> None:
    job = Job(2).on(Interrupted()).exits([0], -2).after(5.0).after(5.0)
    assert job.exit_code == 130
    assert Print("rank 1 could not be killed; giving up on it") in job.actions


def test_a_rank_that_starts_while_the_job_stops_is_killed() -> None:
    job = Job(1)
    job.supervisor = Supervisor(2, now=0.0, limits=LIMITS, host="a")
    job.on(RankStarted(0), Interrupted(), RankStarted(1))
    assert job.signals == [((0,), signal.SIGINT), ((1,), signal.SIGKILL)]


@pytest.mark.parametrize("before", [[], [RankFailed(failure(0))], [Interrupted()], [Interrupted(), Interrupted()]])
def test_the_end_of_the_fork_server_is_the_end_of_the_job(before: list[Event]) -> None:
    assert Job().on(*before, ForkServerLost()).exit_code == 137


EVENT = st.one_of(
    st.builds(Joining, st.integers(0, 2)),
    st.builds(Joined, st.integers(0, 2)),
    st.builds(RankLeft, st.integers(0, 2), st.floats(0, 100)),
    st.builds(
        lambda r, w, t: RankFailed(failure(r, w, t)),
        st.integers(0, 2),
        st.sampled_from(["E", "gloo"]),
        st.floats(0, 100),
    ),
    st.builds(SaveReport, st.integers(0, 2), st.booleans()),
    st.builds(RankExited, st.integers(0, 2), st.sampled_from([0, 1, -9, -6, -15]), st.floats(0, 100)),
    st.builds(Interrupted),
    st.builds(Terminated),
    st.builds(Tick),
)


@settings(max_examples=300)
@given(st.lists(st.tuples(EVENT, st.floats(0, 3)), max_size=30))
def test_whatever_comes_in_whatever_order_the_job_ends_and_nobody_is_left_alive(
    story: list[tuple[Event, float]],
) -> None:
    """A rank exits once; after the story the ranks stay silent, and die only of SIGKILL."""
    job = Job(3)
    gone: set[int] = set()

    def take(event: Event) -> None:
        job.on(event)
        for ranks, signum in job.signals:
            dying = [rank for rank in ranks if signum == signal.SIGKILL and rank not in gone]
            gone.update(dying)
            job.exits(dying, -9)

    for event, seconds in story:
        job.now += seconds
        if not isinstance(event, RankExited):
            take(event)
        elif event.rank not in gone:
            gone.add(event.rank)
            take(event)
    take(Interrupted())
    while (deadline := job.supervisor.deadline) is not None:
        job.now = max(job.now, deadline)
        take(Tick())
    assert job.exit_code is not None
    assert job.supervisor.alive == set()
    assert gone == {0, 1, 2}
