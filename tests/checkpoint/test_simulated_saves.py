"""Whole saves of eight simulated ranks into one storage: no two living ranks disagree, and what they say is true."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import random
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from proving import blank, damaged, newest, same, state

from allranks import SimulatedWorld, World
from allranks.checkpoint import fence, inventory, keep_every, paths
from allranks.checkpoint.checkpointer import Checkpointer
from allranks.checkpoint.commit_events import SaveVerdict
from allranks.checkpoint.commit_protocol import _CommitRun
from allranks.checkpoint.save_operation import SaveOperation
from allranks.errors import AllranksError, Damaged, Fenced, KeyTimeout, RankDied, SaveFailed, StorageError, Truncated
from allranks.storage import MemoryStorage
from allranks.world.faults import Crash, Delay, Drop, Fault, Pause

RANKS = 8
STEPS = (10, 20, 30)
LEAVES = 12
# Seconds on the simulated clock: of an exchange, of a save, and until everybody must have come to an end.
PATIENCE, TIMEOUT, END = 20.0, 5.0, 400.0


@dataclass(frozen=True)
class Plan:
    """What befalls one job: ``full`` are ranks whose next block finds the disk full; the longest ``nap`` of an
    operation of the storage is in seconds."""

    seed: int
    faults: tuple[Fault, ...] = ()
    nap: float = 0.0
    full: tuple[int, ...] = ()
    no_manifest: bool = False


@dataclass
class Seen:
    """What became of a job: ``ends[step][rank]`` is how the save ended there, with the error's words."""

    disk: MemoryStorage
    ends: dict[int, dict[int, tuple[str, str]]] = field(default_factory=dict)


def sleep(world: World, seconds: float) -> None:
    with contextlib.suppress(KeyTimeout):
        world.store.wait("never", seconds)


def process_of(world: World, disk: MemoryStorage, plan: Plan) -> MemoryStorage:
    """Return one rank's storage, slow at random: its operations take time on the simulated clock."""
    draw, thread = random.Random(f"{plan.seed} {world.rank}"), threading.get_ident()

    def before(operation: str, path: str) -> None:
        del operation, path
        if plan.nap and threading.get_ident() == thread:  # reads have threads of their own
            try:
                sleep(world, draw.uniform(0, plan.nap))
            except BaseException:
                process.crashed = True  # the dead do not tidy up
                raise

    process = disk.new_process(before=before)
    if world.rank in plan.full:
        process.fail_operation("block", error=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    if plan.no_manifest and world.is_main:
        process.fail_operation("put", "*manifest.json")
    return process


def job(plan: Plan, seen: Seen) -> Callable[[World], None]:
    """Three saves in a row, whatever becomes of them."""

    def run(world: World) -> None:
        def said(step: int, how: str, error: AllranksError | str = "") -> None:
            seen.ends.setdefault(step, {})[world.rank] = how, str(error).partition(": ")[2]

        try:
            storage = process_of(world, seen.disk, plan)
            items = {"layer0": keep_every(1)} if plan.seed % 2 else None  # older steps are reduced, and not removed
            ckpt = Checkpointer(storage, world, keep_last=2, items=items, timeout=TIMEOUT, on_sigterm=False)
        except AllranksError as error:
            said(0, type(error).__name__, error)
            return
        for step in STEPS:
            try:
                ckpt.save(step, state(step, leaves=LEAVES), block=True)
                said(step, "committed")
            except SaveFailed as error:
                said(step, "unknown" if error.unknown else "aborted", error)
            except AllranksError as error:
                said(step, type(error).__name__, error)
                if isinstance(error, RankDied):
                    return

    return run


def watch(plan: Plan) -> Seen:
    seen = Seen(MemoryStorage())
    world = SimulatedWorld(RANKS, seed=plan.seed, faults=plan.faults, timeout=PATIENCE)
    outcome = world.run(job(plan, seen))
    assert outcome.errors == {}, (plan, outcome.errors)
    ended = {*outcome.results, *outcome.crashed}
    assert ended == set(range(RANKS)), (plan, "hang: ", set(range(RANKS)) - ended)
    assert outcome.seconds < END, (plan, outcome.seconds)
    return seen


def check(plan: Plan, seen: Seen) -> Counter[str]:
    """The invariants; returns how the saves ended."""
    ends = Counter[str]()
    there = inventory.complete_steps(seen.disk)
    for step, told in seen.ends.items():
        assert len(set(told.values())) == 1, (plan, step, told)
        how = next(iter(told.values()))[0]
        ends[how] += 1
        if how == "aborted":
            assert step not in there, (plan, step)
    assert damaged(seen.disk) == [], plan
    committed = [step for step in seen.ends if next(iter(seen.ends[step].values()))[0] == "committed"]
    found = newest(seen.disk, leaves=LEAVES)
    assert (found or (0, 0))[0] >= max(committed, default=0), (plan, found, committed)
    return ends


def drawn(seed: int) -> Plan:
    draw = random.Random(seed)

    def fault() -> Fault:
        rank = draw.choice([0, draw.randrange(RANKS)])
        at = draw.randrange(90)
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
    full = tuple(draw.sample(range(RANKS), draw.choice([0, 0, 0, 1, 2])))
    return Plan(seed, faults, draw.choice([0.0, 0.01, 0.3, 2.0]), full, draw.random() < 0.1)


def sweep(seeds: range) -> Counter[str]:
    ends = Counter[str]()
    for seed in seeds:
        plan = drawn(seed)
        seen = watch(plan)
        ends += check(plan, seen)
        if seed % 10 == 0:
            go_on(seen, size=draw_size(seed))
    return ends


def draw_size(seed: int) -> int:
    return random.Random(seed).choice([1, 3, 5, 8, 11])


def go_on(seen: Seen, *, size: int) -> None:
    """A job of another size restores the newest step, each rank all of it, and saves the next."""
    there = inventory.complete_steps(seen.disk)

    def run(world: World) -> int:
        ckpt = Checkpointer(seen.disk.new_process(), world, on_sigterm=False)
        found, step = ckpt.restore(blank(leaves=LEAVES)) or (state(0, leaves=LEAVES), 0)
        assert same(found, state(step, leaves=LEAVES))
        ckpt.save(99, state(99, leaves=LEAVES), block=True)
        ckpt.close()
        return step

    assert set(SimulatedWorld(size).run(run).values()) == {max(there, default=0)}
    assert newest(seen.disk, leaves=LEAVES) == (99, 0)


def test_no_two_living_ranks_disagree_about_a_save() -> None:
    """And what they say is so: crashes, delays, pauses, lost writes, full disks, from seeds."""
    ends = sweep(range(80))
    print(ends)
    assert min(ends[how] for how in ("committed", "aborted")) > 20


@pytest.mark.soak
def test_no_two_living_ranks_disagree_about_any_of_60_000_saves() -> None:
    print(sweep(range(1_000, 21_000)))


def test_a_coordinator_that_stands_still_while_it_publishes_leaves_a_whole_checkpoint() -> None:
    """The others have given up by then, and do not know how it ended: so they must leave their files alone."""
    assert published_late() > 0


def test_files_discarded_too_early_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the test above, and the sweeps, can fail."""
    monkeypatch.setattr(_CommitRun, "is_final", property(lambda run: run._side.verdict is not SaveVerdict.COMMITTED))
    with pytest.raises(AssertionError, match="the file does not exist"):
        published_late()


def published_late() -> int:
    """Let rank 0 stand still at any of the operations around its put; count the steps that came all the same."""
    late = 0
    for at in range(30, 110, 3):
        plan = Plan(1, (Pause(0, 25.0, at),), nap=0.01)
        seen = watch(plan)
        check(plan, seen)
        unknown = [step for step, told in seen.ends.items() if told[1][0] == "unknown"]
        late += len(set(unknown) & set(inventory.complete_steps(seen.disk)))
    return late


def test_a_put_without_all_files_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the sweeps can fail: a rank says that it has written before it has."""
    write = SaveOperation.write_files

    def hasty(job: SaveOperation) -> object:
        if job.rank == 3:
            said = {}
            for file, plan in zip(job.files, job.prepared.files, strict=True):
                for number in range(len(plan.file_layout.blocks)):
                    file.block(number)
                name = paths.shard_file_name(job.rank, job.size, job.identity.nonce, plan.item)
                ends, digests = plan.file_layout.ends, file.chunk_digests
                said[plan.item] = {"name": name, "bytes": file.size, "ends": ends, "digests": digests, "stored": []}
            return {"files": said, "values": {}}
        return write(job)

    monkeypatch.setattr(SaveOperation, "write_files", hasty)
    with pytest.raises((AssertionError, Damaged), match="does not exist"):
        sweep(range(5))


def test_a_job_that_is_fenced_off_between_commit_and_retention_has_saved() -> None:
    """All its ranks hear so, nothing that it saved is touched; only its next save is refused."""
    disk = MemoryStorage()
    ends: dict[int, list[str]] = {}

    def run(world: World) -> None:
        def before(operation: str, path: str) -> None:
            if (
                operation == "list"
                and path == "fence"
                and disk.file_contents().keys() >= {"checkpoint-20/manifest.json"}
            ):
                fence.acquire_fence(disk.new_process(), fence.this_process(), take_over=True)

        storage = disk.new_process(before=before if world.is_main else None)
        ckpt = Checkpointer(storage, world, keep_last=1, on_sigterm=False)
        for step in STEPS:
            try:
                ckpt.save(step, state(step, leaves=LEAVES), block=True)
                ends.setdefault(world.rank, []).append("committed")
            except Fenced as error:
                ends[world.rank].append(str(error).partition(": ")[2])

    assert SimulatedWorld(4).run(run).errors == {}
    first, second, third = ends[0]
    assert (first, second) == ("committed", "committed")
    assert "took over the run from this job" in third
    assert all(told == ends[0] for told in ends.values())
    assert damaged(disk) == []
    assert newest(disk, leaves=LEAVES) == (20, 0)


@pytest.mark.parametrize("bad", [{1: "cut"}, {1: "cut", 2: "fail"}, {1: "fail", 2: "cut"}], ids=str)
def test_ranks_that_find_different_faults_do_the_same(bad: dict[int, str]) -> None:
    """One finds bytes damaged, another cannot read at all: all take the older step, or all raise."""
    disk = MemoryStorage()
    saved = state(10, leaves=LEAVES, items=1 << 16), state(20, leaves=LEAVES, items=1 << 16)
    SimulatedWorld(4).run(lambda world: save_both(disk, world, saved))

    def run(world: World) -> tuple[int, str]:
        storage = disk.new_process()
        if bad.get(world.rank) == "fail":
            storage.fail_operation("read", "checkpoint-20/*")
        if bad.get(world.rank) == "cut":
            storage.fail_operation("read", "checkpoint-20/*", error=Truncated("it ends early"))
        ckpt = Checkpointer(storage, world, on_sigterm=False)
        try:
            restored = ckpt.restore(blank(leaves=LEAVES, items=1 << 16), fallback=True)
        except AllranksError as error:
            return 0, "read" if isinstance(error, StorageError) else type(error).__name__
        assert restored is not None
        return restored[1], ""

    ends = SimulatedWorld(4, timeout=PATIENCE).run(run).values()
    assert len(set(ends)) == 1, ends
    assert ends[0] in ((10, ""), (0, "read"))


def save_both(disk: MemoryStorage, world: World, states: Sequence[dict[str, Any]]) -> None:
    ckpt = Checkpointer(disk.new_process(), world, on_sigterm=False)
    for step, one in zip((10, 20), states, strict=True):
        ckpt.save(step, one, block=True)
    ckpt.close()


def test_a_world_that_nobody_needs_any_more_takes_its_checkpointers_along() -> None:
    """Also those that were never closed: a process may make thousands of simulated worlds."""
    made: list[weakref.ref[Checkpointer]] = []
    disk = MemoryStorage()

    def run(world: World) -> None:
        made.append(weakref.ref(Checkpointer(disk, world, on_sigterm=False)))

    SimulatedWorld(2).run(run).values()
    gc.collect()
    assert [one() for one in made] == [None, None]
