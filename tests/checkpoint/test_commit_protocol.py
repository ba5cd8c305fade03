"""Saves of simulated ranks that are delayed, paused, lose writes, fail and crash: one outcome, and it is true."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from allranks import SimulatedWorld, World
from allranks.checkpoint.commit_events import OutcomeSet, SaveId, SaveVerdict
from allranks.checkpoint.commit_protocol import CommitProtocol
from allranks.clock import ManualClock
from allranks.errors import Fenced, KeyTimeout, SaveFailed, StorageError
from allranks.world.faults import Crash, Delay, Drop, Fault, Pause
from allranks.world.simulated import Outcome
from allranks.world.store import LocalStore

TIMEOUT = 5.0
SAVES = 3


@dataclass
class Storage:
    """What all ranks share: who has written which save, and the manifests."""

    written: set[tuple[int, int]] = field(default_factory=set)
    manifests: dict[int, list[Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """What befalls one job. ``bad_writes`` are (save, rank); ``bad_puts`` says how a save's put fails."""

    size: int
    seed: int
    faults: tuple[Fault, ...] = ()
    slowness: float = 0.3
    bad_writes: frozenset[tuple[int, int]] = frozenset()
    bad_puts: dict[int, str] = field(default_factory=dict)


@dataclass
class Seen:
    """What became of a job: ``ends[save][rank]`` is "committed", "aborted", "unknown", with the error's words."""

    storage: Storage
    outcome: Outcome[None]
    ends: dict[int, dict[int, tuple[str, str]]]
    moments: dict[tuple[int, int], float]


def nap(world: World, seconds: float) -> None:
    with contextlib.suppress(KeyTimeout):
        world.store.wait("never", seconds)


def program(plan: Plan, seen: Seen) -> Callable[[World], None]:
    """Three saves in a row, each on what ranks last heard; between them the ranks meet nowhere."""
    storage = seen.storage
    slow = random.Random(plan.seed)
    durations = {(k, r): slow.uniform(0, plan.slowness) for k in range(SAVES) for r in range(plan.size)}

    def run(world: World) -> None:
        rank = world.rank
        protocol = CommitProtocol(world.store, world.clock, rank=rank, size=world.size)
        for number in range(SAVES):
            save = SaveId(number, 100 * number, f"nonce{number}")

            def write(number: int = number) -> Any:
                nap(world, durations[number, rank])
                if (number, rank) in plan.bad_writes:
                    raise StorageError("disk full")
                storage.written.add((number, rank))
                return [number, rank]

            def publish(acks: Any, number: int = number) -> None:
                how = plan.bad_puts.get(number)
                if how == "fenced":
                    raise Fenced("host b has taken over")
                if how == "slow":
                    nap(world, 40)
                if how != "lost":
                    storage.manifests[number] = list(acks)
                if how in ("lost", "unsure"):
                    raise StorageError("connection reset")

            def is_published(number: int = number) -> bool:
                return number in storage.manifests

            try:
                protocol.run_save(
                    save, write_part=write, publish_manifest=publish, is_published=is_published, timeout=TIMEOUT
                )
                end = ("committed", "")
            except Fenced as error:
                end = ("aborted", str(error).partition(": ")[2])
            except SaveFailed as error:
                end = ("unknown" if error.unknown else "aborted", str(error).partition(": ")[2])
            seen.ends.setdefault(number, {})[rank] = end
            seen.moments[number, rank] = world.clock.now()

    return run


def watch(plan: Plan) -> Seen:
    seen = Seen(Storage(), None, {}, {})  # type: ignore[arg-type]
    seen.outcome = SimulatedWorld(plan.size, seed=plan.seed, faults=plan.faults).run(program(plan, seen))
    return seen


def check(plan: Plan, seen: Seen) -> Counter[str]:
    """The invariants; returns how the saves ended."""
    assert seen.outcome.errors == {}
    ends = Counter[str]()
    for number in range(SAVES):
        told = set(seen.ends.get(number, {}).values())
        assert len(told) <= 1, (plan, told)
        for how, _ in told:
            ends[how] += 1
            if how == "committed":
                assert seen.storage.manifests[number] == [[number, rank] for rank in range(plan.size)], plan
                assert {rank for k, rank in seen.storage.written if k == number} == set(range(plan.size)), plan
            if how == "aborted":
                assert number not in seen.storage.manifests, plan
    return ends


def drawn(seed: int) -> Plan:
    """What befalls job ``seed``: about a third of the jobs have no fault at all."""
    draw = random.Random(seed)
    size = 8

    def fault() -> Fault:
        rank = draw.choice([0, draw.randrange(size)])
        at = draw.randrange(40)
        match draw.randrange(4):
            case 0:
                return Crash(rank, at, noticed_after=draw.choice([0.01, 1.0, 3.0, None]))
            case 1:
                return Delay(rank, draw.choice([0.01, 0.3, 1.5]), at)
            case 2:
                return Drop(rank, at)
            case _:
                return Pause(rank, draw.choice([0.2, 2.0, 8.0, 40.0]), at)

    faults = tuple(fault() for _ in range(draw.choice([0, 1, 1, 2, 4])))
    some = {(draw.randrange(SAVES), draw.randrange(size)) for _ in range(draw.choice([0, 0, 0, 1, 3]))}
    puts = {draw.randrange(SAVES): draw.choice(["fenced", "lost", "unsure", "slow"])} if draw.random() < 0.3 else {}
    return Plan(size, seed, faults, draw.choice([0.01, 0.3, 4.0]), frozenset(some), puts)


def sweep(seeds: range) -> Counter[str]:
    ends = Counter[str]()
    for seed in seeds:
        plan = drawn(seed)
        ends += check(plan, watch(plan))
    assert min(ends[how] for how in ("committed", "aborted", "unknown")) > len(seeds) // 100, ends
    return ends


def test_every_save_has_one_true_outcome() -> None:
    """Eight ranks, three saves a job, from seeds."""
    print(sweep(range(250)))


@pytest.mark.soak
def test_every_save_of_twenty_thousand_jobs_has_one_true_outcome() -> None:
    print(sweep(range(1_000, 21_000)))


def test_a_sweep_finds_a_coordinator_that_puts_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the sweeps above can fail."""
    monkeypatch.setattr("allranks.checkpoint.commit_protocol._CommitRun._claim_outcome", _claims_nothing)
    with pytest.raises(AssertionError):
        sweep(range(250))


def _claims_nothing(_: object, verdict: SaveVerdict) -> OutcomeSet:
    return OutcomeSet(verdict)


@pytest.mark.parametrize("rank", range(4))
def test_survivors_of_a_crash_know_within_five_seconds(rank: int) -> None:
    """At whichever operation a rank dies, all others hear it soon; a save whose manifest is there is committed."""
    for at in range(10):
        plan = Plan(4, at, (Crash(rank, at, noticed_after=0.5),), slowness=0.01)
        seen = watch(plan)
        check(plan, seen)
        assert seen.outcome.crashed == (rank,)
        for number in range(SAVES):
            moments = [seen.moments[number, one] for one in set(range(4)) - {rank}]
            begun = [seen.moments.get((number - 1, one), 0.0) for one in set(range(4)) - {rank}]
            assert max(moments) - min(begun) < 5, (rank, at, number)
            how, words = seen.ends[number][(rank + 1) % 4]
            assert how == "committed" or f"rank {rank}: dead (crashed)" in words


def test_all_ranks_raise_the_reasons_of_all_that_failed() -> None:
    """The same words, the remote traceback as a note, and long before the deadline."""
    errors: dict[int, SaveFailed] = {}

    def run(world: World) -> None:
        def write() -> None:
            if world.rank in (2, 5):
                raise StorageError("disk full")

        protocol = CommitProtocol(world.store, world.clock, rank=world.rank, size=world.size)
        with pytest.raises(SaveFailed) as caught:
            protocol.run_save(
                SaveId(0, 7, "n"), write_part=write, publish_manifest=pytest.fail, is_published=pytest.fail, timeout=300
            )
        errors[world.rank] = caught.value

    end = SimulatedWorld(6).run(run)
    assert end.errors == {}
    assert end.seconds < 2
    for rank, error in errors.items():
        assert str(error) == (
            f"rank {rank}: save of step 7 stopped: ranks 2, 5: StorageError: disk full."
            " No checkpoint was published; the training can go on."
        )
        assert (error.ranks, error.step) == ((2, 5), 7)
        assert [note.splitlines()[0] for note in error.__notes__] == ["On rank 2:", "On rank 5:"]
        assert 'raise StorageError("disk full")' in error.__notes__[0]
        assert isinstance(error.__cause__, StorageError) == (rank in (2, 5))


def test_missing_ranks_are_named_though_others_were_read_later() -> None:
    """The coordinator waits for one rank after the other, but at the deadline it knows all that have come."""
    plan = Plan(8, 1, (Pause(1, 60), Pause(6, 60)))
    how, words = watch(plan).ends[0][3]
    assert how == "aborted"
    assert "ranks 1, 6: no report within 5 s" in words


def test_a_coordinator_that_stands_still_leaves_the_outcome_unknown_to_all() -> None:
    """To itself, too; and the next save is whole again."""
    seen = next(
        seen
        for at in range(30)
        if (seen := watch(Plan(4, 1, (Pause(0, 25, at),), slowness=0.01))).ends[0][0][0] == "unknown"
    )
    assert {end for end, _ in seen.ends[0].values()} == {"unknown"}
    assert seen.storage.manifests.keys() == {0, 1, 2}
    assert {end for end, _ in seen.ends[2].values()} == {"committed"}


@pytest.mark.parametrize(("how", "end"), [("fenced", "aborted"), ("lost", "aborted"), ("unsure", "committed")])
def test_a_put_that_failed_is_looked_at(how: str, end: str) -> None:
    """It may have worked; one that was refused has not. The others hear why."""
    plan = Plan(3, 1, bad_puts={1: how})
    seen = watch(plan)
    check(plan, seen)
    assert [seen.ends[number][2][0] for number in range(SAVES)] == ["committed", end, "committed"]
    why = {"fenced": "host b has taken over", "lost": "StorageError: connection reset", "unsure": ""}[how]
    assert why in seen.ends[1][2][1]


def test_a_writer_can_ask_whether_its_work_is_in_vain() -> None:
    """A rank that writes long need not finish once another has failed or died."""
    asked: dict[int, int] = {}

    def run(world: World) -> None:
        protocol = CommitProtocol(world.store, world.clock, rank=world.rank, size=world.size)
        save = SaveId(0, 7, "n")

        def write() -> None:
            if world.rank == 1:
                raise StorageError("disk full")
            for second in range(100):
                if protocol.is_hopeless(save):
                    asked[world.rank] = second
                    raise InterruptedError("given up")
                nap(world, 1)

        protocol.run_save(save, write_part=write, publish_manifest=pytest.fail, is_published=pytest.fail, timeout=300)

    for faults in ((), (Crash(1),)):
        asked.clear()
        end = SimulatedWorld(3, faults=faults).run(run)
        assert all(isinstance(error, SaveFailed) for error in end.errors.values())
        assert {rank: seconds < 4 for rank, seconds in asked.items()} == {0: True, 2: True}


def test_a_rank_alone_commits_and_leaves_no_key() -> None:
    """But for those of its last save; also where ``write`` or ``publish`` fails."""
    store, put = LocalStore(), []
    protocol = CommitProtocol(store, ManualClock(), rank=0, size=1)
    for number in range(5):
        protocol.run_save(
            SaveId(number, number, "n"),
            write_part=lambda: "ack",
            publish_manifest=put.append,
            is_published=pytest.fail,
            timeout=1,
        )
    assert put == [["ack"]] * 5
    assert {key.split("/")[1] for key in store.list("ckpt/")} == {"4"}
    with pytest.raises(SaveFailed, match="ZeroDivisionError") as caught:
        protocol.run_save(
            SaveId(5, 5, "n"),
            write_part=lambda: 1 // 0,
            publish_manifest=pytest.fail,
            is_published=pytest.fail,
            timeout=1,
        )
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_keys_of_earlier_saves_are_deleted() -> None:
    def run(world: World) -> dict[str, bytes]:
        protocol = CommitProtocol(world.store, world.clock, rank=world.rank, size=world.size)
        for number in range(6):
            save = SaveId(number, number, "n")
            protocol.run_save(
                save, write_part=lambda: "ack", publish_manifest=lambda _: None, is_published=pytest.fail, timeout=9
            )
        world.barrier()
        return world.store.list("ckpt/")

    for keys in SimulatedWorld(5).run(run).values():
        assert {key.split("/")[1] for key in keys} == {"5"}


def test_ten_thousand_ranks_commit() -> None:
    """A handful of operations each, and rank 0 no more than one for each of the others."""

    def run(world: World) -> None:
        protocol = CommitProtocol(world.store, world.clock, rank=world.rank, size=world.size)
        save = SaveId(0, 0, "n")
        protocol.run_save(
            save, write_part=lambda: [world.rank], publish_manifest=got.append, is_published=pytest.fail, timeout=60
        )

    got: list[Any] = []
    end = SimulatedWorld(10_000).run(run)
    assert end.values() == (None,) * 10_000
    assert got == [[[rank] for rank in range(10_000)]]
    assert end.busiest < 10_100
    assert sum(end.operations.values()) < 7 * 10_000
