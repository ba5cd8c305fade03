"""The launchers of a job's hosts end together, and name the same first failure, whatever happens to them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_hosts import Simulation

from allranks.failure import Failure
from allranks.launch.events import Finish, RankExited, RankFailed
from allranks.launch.hosts.coordinator import Coordinator
from allranks.launch.hosts.messages import Ping
from allranks.launch.limits import Phase

FAULTS = {
    "an exception": lambda job, host: job.fail(2 * host + 1),
    "a killed rank": lambda job, host: job.kill(2 * host),
    "a killed launcher": lambda job, host: job.kill_launcher(host),
    "a power cut": lambda job, host: job.power_off(host),
    "a cut cable": lambda job, host: job.cut(host),
    "stopped processes": lambda job, host: job.stop(host),
}
SILENT = ("a power cut", "a cut cable", "stopped processes")


def ends(job: Simulation) -> set[tuple[int, str]]:
    """Return the exit codes and first failures of all hosts that could learn of the end."""
    found = set()
    for host in job.living:
        assert isinstance(host.ended, Finish), f"h{host.number} lives on"
        if not host.is_cut:
            first = host.decider.ending().first_failure
            found.add((host.ended.exit_code, first.headline() if first else ""))
    return found


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("host", [0, 2])
def test_one_fault_ends_all_hosts_with_the_same_first_failure(fault: str, host: int) -> None:
    job = Simulation(4, 2, seed=7)
    job.at(3.0, lambda: FAULTS[fault](job, host))
    job.run(until=60)
    [(code, headline)] = ends(job)
    assert code != 0
    assert f"(host h{host})" in headline
    assert job.now < 3 + 5 + (15 if fault in SILENT else 0)
    assert not [rank.number for one in job.living for rank in one.ranks.values() if rank.alive]


def test_a_host_that_was_only_stopped_learns_that_it_was_lost() -> None:
    job = Simulation(4, 2)
    job.at(3.0, lambda: job.stop(2))
    job.run(until=60)
    assert job.hosts[0].sent["Finished"] == 3


@pytest.mark.parametrize(
    ("resumed", "lost", "says"),
    [
        (3.9, 1, "host h1 is lost: its launcher has ended"),
        (11.0, 1, "host h1 is lost: its launcher has ended, after the launcher of host h0 was stopped for 8 s"),
        (40.0, 0, "host h0 is lost: its launcher was stopped for 37 s"),
    ],
)
def test_a_launcher_of_host_0_that_was_stopped_itself_says_so(resumed: float, lost: int, says: str) -> None:
    """If it was stopped for so long that the others have given it up, it names the culprit that they name."""
    job = Simulation(3, 1)
    job.run(until=3.0)
    first = job.hosts[0].decider
    assert isinstance(first, Coordinator)
    first.receive(1, Ping(0.0), resumed)  # what it has sent meanwhile
    first.lose(1, "its launcher has ended", resumed)
    failure = first.ending().first_failure
    assert failure is not None
    assert (failure.rank, failure.what) == (lost, says)


def test_a_pause_of_long_ago_is_not_the_reason() -> None:
    job = Simulation(2, 1)
    job.run(until=3.0)
    first = job.hosts[0].decider
    assert isinstance(first, Coordinator)
    for now in range(40, 60):
        first.receive(1, Ping(0.0), float(now))
    first.lose(1, "its launcher has ended", 60.0)
    failure = first.ending().first_failure
    assert failure is not None
    assert failure.what == "host h1 is lost: its launcher has ended"


@pytest.mark.parametrize(
    ("hosts", "cut", "sees_cut", "says"),
    [
        (4, 0, True, "it is cut off: all other hosts are silent for 15 s"),
        (4, 0, False, "it is cut off: all other hosts are silent for 15 s"),
        (2, 0, True, "it is cut off: the other host is silent for 15 s"),
        (4, 2, True, "it is cut off: it has no network"),
    ],
)
def test_the_host_that_is_cut_off_names_itself(hosts: int, cut: int, sees_cut: bool, says: str) -> None:
    """All hosts name the same culprit, with the same exit code; only that host knows that it is cut off."""
    job = Simulation(hosts, 2)
    job.sees_cut = sees_cut
    job.at(3.0, lambda: job.cut(cut))
    job.run(until=60)
    for host in job.hosts:
        assert host.ended == Finish(137)
        first = host.decider.ending().first_failure
        assert first is not None
        assert (first.rank, first.host) == (2 * cut, f"h{cut}")
        why = says if host.number == cut else "its launcher is silent for 15 s"
        assert first.what.startswith(f"host h{cut} is lost: {why}")
    assert not [rank.number for host in job.hosts for rank in host.ranks.values() if rank.alive]


def test_of_two_hosts_the_silent_one_is_lost() -> None:
    job = Simulation(2, 1)
    job.at(3.0, lambda: job.power_off(1))
    job.run(until=60)
    [(code, headline)] = ends(job)
    assert code == 137
    assert "rank 1 (host h1) failed: host h1 is lost: its launcher is silent for 15 s" in headline


def test_ranks_that_do_not_obey_are_killed_on_every_host() -> None:
    job = Simulation(3, 2)
    job.hosts[2].ranks[4].obeys = job.hosts[0].ranks[1].obeys = False
    job.at(1.0, lambda: job.fail(3))
    job.run(until=60)
    assert ends(job) == {(1, "rank 3 (host h1) failed: ValueError: bad row")}
    assert not any(rank.alive for host in job.hosts for rank in host.ranks.values())


def test_a_signal_to_every_launcher_is_one_signal() -> None:
    """Schedulers signal all of them, some later than others: nobody is killed before the grace is over."""
    job = Simulation(4, 1)
    for number in range(4):
        job.at(1.0 + 3 * number, lambda number=number: job.terminate(number))
    for host in job.hosts:
        for rank in host.ranks.values():
            rank.obeys = False
            job.at(14.0, lambda host=host, rank=rank: job.end_rank(host, rank.number, 0))
    job.run(until=60)
    assert {host.ended for host in job.hosts} == {Finish(143)}


def test_a_second_signal_to_one_launcher_is_urgent() -> None:
    job = Simulation(2, 1)
    for host in job.hosts:
        host.ranks[host.number].obeys = False
    job.at(1.0, lambda: job.terminate(1))
    job.at(4.0, lambda: job.terminate(1))
    job.run(until=60)
    assert job.now < 6
    assert {host.ended for host in job.hosts} == {Finish(137)}


def test_the_cause_is_waited_for_where_a_host_is_silent() -> None:
    """Other ranks see broken connections first; the host that was cut off is the cause."""
    job = Simulation(4, 1, seed=3)
    job.at(2.0, lambda: job.cut(2))
    job.at(7.0, lambda: job.break_sockets(2))
    job.run(until=60)
    [(code, headline)] = ends(job)
    assert code == 137
    assert "rank 2 (host h2) failed: host h2 is lost: its launcher is silent for 15 s" in headline


def test_clocks_that_differ_do_not_change_which_failure_is_first() -> None:
    """Rank 3's clock is 5 s behind; it fails after rank 1."""
    job = Simulation(4, 1, seed=1, delay=0.001)
    job.hosts[1].offset, job.hosts[3].offset = 4.0, -5.0
    for host in (1, 3):
        job.hosts[host].decider._wall = lambda host=host: job.wall(job.hosts[host])
    job.at(3.0, lambda: job.fail(1))
    job.at(3.1, lambda: job.fail(3))
    job.run(until=60)
    assert ends(job) == {(1, "rank 1 (host h1) failed: ValueError: bad row")}


def test_a_clock_that_is_wrong_is_named_once_for_every_host() -> None:
    job = Simulation(4, 1, delay=0.001)
    job.hosts[1].offset, job.hosts[2].offset, job.hosts[3].offset = 4.0, 0.5, -5.0
    for host in job.hosts:
        host.decider._wall = lambda host=host: job.wall(host)
    job.run(until=5.0)
    assert [line.partition(":")[0] for line in sorted(job.hosts[0].printed)] == [
        "the clock of host h1 is 4.0 s ahead of that of host h0",
        "the clock of host h3 is 5.0 s behind that of host h0",
    ]


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    faults=st.lists(
        st.tuples(st.sampled_from(sorted(FAULTS)), st.integers(0, 4), st.floats(1.0, 20.0)), min_size=1, max_size=4
    ),
)
def test_whatever_happens_every_host_ends_and_none_says_something_else(
    seed: int, faults: list[tuple[str, int, float]]
) -> None:
    job = Simulation(5, 2, seed=seed, delay=0.2)
    for fault, host, when in faults:
        job.at(when, lambda fault=fault, host=host: FAULTS[fault](job, host))
    job.run(until=200)
    found = ends(job)
    # Only a host that lost host 0 by itself may have another reason.
    assert len(found) <= 1 or not job.hosts[0].has_power or job.hosts[0].is_cut or job.hosts[0].is_stopped
    assert not [rank.number for host in job.living for rank in host.ranks.values() if rank.alive]


def many(hosts: int) -> Simulation:
    job = Simulation(hosts, 8, seed=11, delay=0.05)
    job.at(5.0, lambda: job.fail(8 * (hosts // 3) + 2))
    for number in (1, hosts // 2, hosts - 1):
        job.at(5.2, lambda number=number: job.cut(number))
    job.at(5.3, lambda: job.kill_launcher(hosts // 5))
    job.run(until=60)
    return job


@pytest.mark.parametrize("hosts", [64, pytest.param(4096, marks=pytest.mark.soak)])
def test_many_hosts_end_together_and_each_sends_little(hosts: int) -> None:
    """Three cables are cut and a launcher is killed while a failure ends the job."""
    job = many(hosts)
    victim = 8 * (hosts // 3) + 2
    assert ends(job) == {(1, f"rank {victim} (host h{hosts // 3}) failed: ValueError: bad row")}
    assert job.now < 5 + 15 + 5
    sent = [host.sent.total() for host in job.hosts[1:]]
    assert max(sent) < 8 * 4 + 60


def test_a_rank_may_report_the_failure_of_a_rank_elsewhere_but_only_its_own_end() -> None:
    """The hang watch of one rank names another one. A launcher that speaks of others' processes is not believed."""
    job = Simulation(3, 1)
    job.run(until=1.0)
    hang = Failure(2, "h2", "HANG: ranks 0-1 wait for rank 2", job.wall(job.hosts[0]), exit_code=75)
    job.event(job.hosts[1], RankExited(2, 9, 0.0))
    job.event(job.hosts[1], RankFailed(replace(hang, rank=99), waits=False))
    assert job.hosts[0].decider.phase is Phase.RUNNING
    job.event(job.hosts[1], RankFailed(hang, waits=False))
    job.run(until=20.0)
    assert ends(job) == {(75, "rank 2 (host h2) failed: HANG: ranks 0-1 wait for rank 2")}
