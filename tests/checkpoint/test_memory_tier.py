"""The in-memory tier in simulated worlds: hosts are lost, bytes flip, ranks die, branches are given up."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from proving import blank, newest, same, state

from allranks import SimulatedWorld, World
from allranks.checkpoint import inventory, paths
from allranks.checkpoint.checkpointer import Checkpointer
from allranks.checkpoint.memory import placement, tier
from allranks.checkpoint.memory.peers import HostMemory
from allranks.errors import AllranksError
from allranks.storage import MemoryStorage
from allranks.storage.base import Storage
from allranks.world.faults import Crash, Fault

T = TypeVar("T")
RANKS, PER_HOST = 6, 2
PROGRAM = Path(__file__).parent / "programs" / "memory_tier.py"
HOSTS = ("host-0", "host-1", "host-2")
BIG = {"leaves": 12, "items": 512}  # so that every rank has a part


class Machines:
    """Hosts with a memory each, and a disk that they share. ``processes`` are what ranks do to a host's memory."""

    def __init__(self, capacity: int | None = None) -> None:
        self.disk = MemoryStorage()
        self.capacity = capacity
        self.broken = ""
        self.memory: dict[str, MemoryStorage] = {}

    def of(self, host: str) -> MemoryStorage:
        return self.memory.setdefault(host, MemoryStorage(capacity=self.capacity))

    def lose(self, *hosts: str) -> None:
        for host in hosts:
            self.memory[host] = MemoryStorage(capacity=self.capacity)

    def files(self, host: str) -> list[str]:
        return list(self.of(host).file_contents())


class View:
    """One rank's view of the machines: `HostMemories`."""

    def __init__(self, machines: Machines, world: World) -> None:
        self._machines = machines
        mine = machines.of(world.host).new_process()
        if world.host == machines.broken:
            mine.fail_operation("*", times=1000)
        self.mine: Storage = mine

    def memory_of_host(self, host: str) -> HostMemory:
        return self._machines.of(host).new_process()

    def close(self) -> None:
        """Nothing is served."""


@pytest.fixture
def machines(monkeypatch: pytest.MonkeyPatch) -> Machines:
    made = Machines()
    use(made, monkeypatch)
    return made


def use(made: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tier, "ServedHostMemories", lambda world, _: View(made, world))


def opened(machines: Machines, world: World, **options: Any) -> Checkpointer:
    options = {"memory_every": 1, **options}
    return Checkpointer(machines.disk.new_process(), world, on_sigterm=False, **options)


def remember(ckpt: Checkpointer, step: int, branch: int = 0) -> None:
    """What maybe_save does where a step is to be saved into memory, waiting for the end: simulated ranks have no thread
    of their own for it."""
    ckpt._advance_to(step)
    ckpt._memory.save_to_memory(
        ckpt._save_order(step, None, {"branch": branch}, block=True, in_memory=True), state(step, branch, **BIG)
    )


def job(
    program: Callable[[World], T], *, size: int = RANKS, faults: tuple[Fault, ...] = (), seed: int = 0
) -> tuple[T, ...]:
    return SimulatedWorld(size, ranks_per_host=PER_HOST, faults=faults, seed=seed, timeout=20.0).run(program).values()


def training(machines: Machines, disk: int, *memory: int) -> Callable[[World], None]:
    """Save one step to disk and others into memory, and be killed."""

    def run(world: World) -> None:
        ckpt = opened(machines, world)
        ckpt.save(disk, state(disk, **BIG), block=True)
        for step in memory:
            remember(ckpt, step)

    return run


def resumed(machines: Machines, *, size: int = RANKS, step: int | None = None) -> tuple[int, int, str, str]:
    """Start the job again; return the step and the branch that all ranks go on from, from where, and the notes."""

    def run(world: World) -> tuple[int, int, str, str]:
        found = opened(machines, world).restore(blank(**BIG), step=step)
        if found is None:
            return 0, 0, "", ""
        branch = int(found.state["count"]) - 1000 * found.step
        assert same(found.state, state(found.step, branch, **BIG)), "a mix"
        return found.step, branch, found.source, "; ".join(found.notes)

    (one,) = {*job(run, size=size)}
    return one


def test_each_rank_s_part_is_kept_by_its_host_and_by_the_next_one(machines: Machines) -> None:
    job(training(machines, 10, 12, 13))
    folder = paths.step_folder(13)
    for number, host in enumerate(HOSTS):
        before = (number - 1) % len(HOSTS)
        kept = sorted(
            said.rank for path in machines.files(host) if (said := paths.parse_shard_file(path.partition("/")[2]))
        )
        assert kept == sorted([2 * number, 2 * number + 1, 2 * before, 2 * before + 1])
        assert {path.partition("/")[0] for path in machines.files(host)} == {folder}, "the step before is gone"
    assert inventory.complete_steps(machines.disk) == (10,)


@pytest.mark.parametrize("lost", ["", *HOSTS])
def test_any_one_host_may_be_lost(machines: Machines, lost: str) -> None:
    job(training(machines, 10, 13))
    machines.lose(*filter(None, [lost]))
    notes = f"host {lost} has no file of the step" if lost else ""
    assert resumed(machines) == (13, 0, "memory", notes)


def test_a_host_whose_memory_cannot_be_read_is_one_that_holds_nothing(machines: Machines) -> None:
    job(training(machines, 10, 13))
    machines.broken = "host-2"
    assert resumed(machines) == (13, 0, "memory", "host host-2 has no file of the step")


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 11])
def test_a_step_in_memory_is_restored_by_any_number_of_ranks(machines: Machines, size: int) -> None:
    """As long as their hosts hold it: one host of three has two thirds."""
    job(training(machines, 10, 13))
    step, _, source, notes = resumed(machines, size=size)
    if size <= PER_HOST:
        assert (step, source) == (10, "storage")
        assert "no host (host-0) has an intact copy of the part of rank 2, rank 3" in notes
    else:
        assert (step, source) == (13, "memory")


def test_two_neighbours_lost_are_reported_and_the_disk_has_the_rest(
    machines: Machines, caplog: pytest.LogCaptureFixture
) -> None:
    job(training(machines, 10, 13))
    machines.lose("host-1", "host-2")
    step, _, source, notes = resumed(machines)
    assert (step, source) == (10, "storage")
    assert "step 10 of the storage is restored instead" in caplog.text
    assert notes.startswith(
        "step 13 in memory is lost: no host (host-0, host-1, host-2) has an intact copy of the part of rank 2, rank 3"
    )


@pytest.mark.parametrize("both", [False, True])
def test_a_flipped_byte_is_found_and_the_copy_is_read(machines: Machines, both: bool) -> None:
    job(training(machines, 10, 13))
    (name,) = [path for path in machines.files("host-1") if "rank-00003" in path]
    machines.of("host-1").flip_bit(name, -5)
    if both:
        machines.of("host-2").flip_bit(name, -70)
    step, _, source, notes = resumed(machines)
    assert (step, source) == ((10, "storage") if both else (13, "memory"))
    assert "the part of rank 3 in the memory of host host-1 is damaged" in notes


def test_the_newest_step_wins_wherever_it_is(machines: Machines) -> None:
    def run(world: World) -> None:
        ckpt = opened(machines, world)
        remember(ckpt, 13)
        ckpt.save(20, state(20, **BIG), block=True)

    job(run)
    assert resumed(machines)[:3] == (20, 0, "storage")
    assert resumed(machines, step=13)[:3] == (13, 0, "memory")


def test_a_training_goes_on_from_memory_and_saves_as_ever(machines: Machines) -> None:
    job(training(machines, 10, 13))
    machines.lose("host-2")

    def go_on(world: World) -> tuple[int, ...]:
        with opened(machines, world) as ckpt:
            found = ckpt.restore(blank(**BIG))
            assert found is not None
            ckpt._seen = 14, state(14, **BIG), None, {}
            remember(ckpt, 14)
        return ckpt.steps()

    assert {*job(go_on)} == {(10, 14)}
    assert [machines.files(host) for host in HOSTS] == [[], [], []], "the job has ended in order"
    assert machines.disk.size(paths.MEMORY) is None


def test_a_step_restored_from_memory_alone_is_saved_at_the_end(machines: Machines) -> None:
    """It is in no storage yet, also where the training comes to no other step."""
    job(training(machines, 10, 13))

    def leave(world: World) -> tuple[int, ...]:
        with opened(machines, world, every=1000, memory_every=1000) as ckpt:
            found = ckpt.restore(blank(**BIG))
            assert found is not None
            ckpt.maybe_save(13, found.state)
        return ckpt.steps()

    assert {*job(leave)} == {(10, 13)}


def test_a_branch_that_was_given_up_does_not_come_back(machines: Machines) -> None:
    """Not from a host that was away meanwhile, either."""
    job(training(machines, 10, 13))
    away = {host: machines.memory[host] for host in HOSTS}
    machines.lose(*HOSTS)

    def back(world: World) -> None:
        ckpt = opened(machines, world)
        assert ckpt.restore(blank(**BIG), step=10) is not None
        ckpt._advance_to(11)
        ckpt.save(11, state(11, 1, **BIG), block=True)

    job(back)
    machines.memory = away
    assert resumed(machines)[:3] == (11, 1, "storage")


def test_a_save_into_memory_gives_up_a_later_step_on_disk(machines: Machines) -> None:
    def run(world: World) -> None:
        ckpt = opened(machines, world)
        for step in (10, 20):
            ckpt.save(step, state(step, **BIG), block=True)
        assert ckpt.restore(blank(**BIG), step=10) is not None
        remember(ckpt, 12, 1)

    job(run)
    assert resumed(machines)[:3] == (12, 1, "memory")


def test_the_memory_of_a_run_that_was_removed_is_of_no_other(machines: Machines) -> None:
    job(training(machines, 10, 13))
    machines.disk = MemoryStorage()
    assert resumed(machines) == (0, 0, "", "")
    assert [machines.files(host) for host in HOSTS] == [[], [], []]


def test_memory_that_is_too_small_is_reported_once_and_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    machines = Machines(capacity=200)
    use(machines, monkeypatch)
    with caplog.at_level(logging.WARNING):
        job(training(machines, 10, 12, 13, 14))
    told = [record.message for record in caplog.records if "not in memory" in record.message]
    assert len(told) == RANKS, "one line a rank, of which the log shows that of rank 0; none for the later steps"
    assert "the file system is full" in told[0]
    assert resumed(machines)[:3] == (10, 0, "storage")


def test_a_job_without_the_tier_reports_the_step_that_it_does_not_take(
    machines: Machines, caplog: pytest.LogCaptureFixture
) -> None:
    job(training(machines, 10, 13))
    with caplog.at_level(logging.WARNING):
        assert newest(machines.disk.new_process(), **BIG) == (10, 0)
    assert "step 13 is in the memory of the hosts" in caplog.text


def killed(monkeypatch: pytest.MonkeyPatch, fault: Crash, *, lost: str) -> tuple[int, int]:
    """Save step 10 to disk, 11 and 12 into memory, with this fault, and lose a host; return what was there, and what is
    restored."""
    machines = Machines()
    use(machines, monkeypatch)
    ends: dict[int, int] = {}

    def run(world: World) -> None:
        ckpt = opened(machines, world, timeout=5.0)
        for step in (10, 11, 12):
            if step == 10:
                ckpt.save(step, state(step, **BIG), block=True)
            else:
                remember(ckpt, step)
            if ckpt._memory._saver.committed == step or step == 10:  # type: ignore[attr-defined]
                ends[world.rank] = step

    outcome = SimulatedWorld(RANKS, ranks_per_host=PER_HOST, faults=(fault,), timeout=20.0).run(run)
    assert {*outcome.results, *outcome.errors, *outcome.crashed} == set(range(RANKS))
    assert all(isinstance(error, AllranksError) for error in outcome.errors.values()), outcome.errors
    machines.lose(lost)
    step, branch, _, _ = resumed(machines)
    assert branch == 0
    return max(ends.values(), default=0), step


def deaths(monkeypatch: pytest.MonkeyPatch, ranks: range, moments: range) -> None:
    found = set()
    for rank in ranks:
        for at in moments:
            fault = Crash(rank, at, noticed_after=0.1)
            reported, restored = killed(monkeypatch, fault, lost=f"host-{rank // PER_HOST}")
            assert restored >= reported, (rank, at)
            found.add(restored)
    assert found == {0, 10, 11, 12}


def test_a_rank_may_die_at_any_moment_and_its_host_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """No step that any rank has seen complete is lost, and none is a mix."""
    deaths(monkeypatch, range(0, RANKS, 3), range(0, 135, 15))


@pytest.mark.soak
def test_any_rank_may_die_at_every_moment_and_its_host_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    deaths(monkeypatch, range(RANKS), range(135))


def test_a_step_without_its_copies_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the tests of lost hosts can fail."""
    monkeypatch.setattr(placement, "neighbour_host", lambda *_: None)
    with pytest.raises(AssertionError):
        deaths(monkeypatch, range(0, RANKS, 3), range(0, 135, 15))


@pytest.mark.soak
@pytest.mark.parametrize("framework", [pytest.param(name, marks=pytest.mark.needs(name)) for name in ("torch", "jax")])
def test_a_real_job_that_loses_a_host_goes_on_bit_for_bit(framework: str, tmp_path: Path) -> None:
    """Four ranks on two pretended hosts: at step 8 the memory of one is lost, and its rank is killed."""
    losses, said = {}, {}
    for story in ("unbroken", "lost"):
        run, memory = tmp_path / story, tmp_path / f"memory-{story}"
        run.mkdir()
        memory.mkdir()
        command = [
            sys.executable,
            "-m",
            "allranks",
            "run",
            "-n",
            "4",
            "--restarts",
            "1",
            str(PROGRAM),
            framework,
            str(run),
            story,
        ]
        environ = {**os.environ, "ALLRANKS_MEMORY_FOLDER": str(memory)}
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=240, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        losses[story], said[story] = (run / "losses").read_text(), done.stdout
        assert [path.name for path in memory.rglob("*")] == [f"allranks-{os.getuid()}"], "nothing is left in memory"
    assert losses["lost"] == losses["unbroken"]
    assert losses["lost"].count("\n") == 12, "step 9 is the first after the restart"
    assert "step 8 from memory: host b has no file of the step" in said["lost"]
