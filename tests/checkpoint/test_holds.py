"""Readers beside a job that removes steps: told what happened, and able to hold a step."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from proving import blank, open_run, same, state

from allranks import SimulatedWorld, World
from allranks.checkpoint import fence, holds, paths, removal
from allranks.checkpoint.checkpointer import Checkpointer
from allranks.cli.main import main
from allranks.errors import AllranksError, NotThere, StepRemoved, StorageError
from allranks.storage import MemoryStorage
from allranks.storage.base import Storage
from allranks.storage.local import LocalStorage
from allranks.world.detect import single_world


def reader(storage: Storage) -> Checkpointer:
    return Checkpointer(storage, single_world(), read_only=True)


@pytest.fixture
def disk() -> MemoryStorage:
    """A run with the steps 1 and 2."""
    disk = MemoryStorage()
    with open_run(disk) as ckpt:
        for step in (1, 2):
            ckpt.save(step, state(step), block=True)
    return disk


def while_it_reads(disk: MemoryStorage, act: Callable[[], object], *, times: int = 1) -> MemoryStorage:
    """Return a process that has ``act`` happen before it first reads a file, as often as this."""
    left = [times]

    def before(operation: str, path: str) -> None:
        if operation == "read" and path.endswith(".safetensors") and left[0]:
            left[0] -= 1
            act()

    return disk.new_process(before=before)


def save(disk: MemoryStorage, step: int, **policy: int) -> None:
    with open_run(disk.new_process(), **policy) as writer:
        writer.save(step, state(step), block=True)


def test_a_reader_takes_the_newest_that_there_is_by_now(disk: MemoryStorage) -> None:
    """Also where it is unlucky again and again."""
    steps = iter(range(3, 100))
    restored = reader(while_it_reads(disk, lambda: save(disk, next(steps), keep_last=1), times=1)).restore(blank())
    assert restored is not None
    assert restored[1] == 3
    assert same(restored[0], state(3))
    assert not [path for path in disk.file_contents() if path.startswith("hold/")]


def test_the_second_time_it_holds_what_it_reads(disk: MemoryStorage) -> None:
    """So a fast writer cannot keep it from reading."""
    steps = iter(range(3, 100))
    restored = reader(while_it_reads(disk, lambda: save(disk, next(steps), keep_last=1), times=50)).restore(blank())
    assert restored is not None
    assert restored[1] == 3
    assert not [path for path in disk.file_contents() if path.startswith("hold/")]


def test_a_step_that_was_asked_for_was_removed_meanwhile(disk: MemoryStorage) -> None:
    """That is no damage, and on every rank the same error."""
    process = while_it_reads(disk, lambda: save(disk, 3, keep_last=1))
    said: list[str] = []

    def run(world: World) -> None:
        ckpt = Checkpointer(process if world.is_main else disk.new_process(), world, read_only=True)
        with pytest.raises(
            StepRemoved, match=r"step 2 was removed while it was read, by the job .*Restore another step"
        ) as error:
            ckpt.restore(blank(), step=2, fallback=True)
        said.append(str(error.value))

    SimulatedWorld(3).run(run)
    assert len(said) == 3


def test_a_step_that_was_saved_over_is_read_anew(disk: MemoryStorage) -> None:
    def save_over() -> None:
        with open_run(disk.new_process()) as writer:
            writer.restore(blank(), step=1)
            writer.save(2, state(2, branch=7), block=True)

    restored = reader(while_it_reads(disk, save_over)).restore(blank())
    assert restored is not None
    assert same(restored[0], state(2, branch=7))


def test_a_held_step_stays_for_retention_and_gc_until_it_is_released(tmp_path: Path) -> None:
    run = LocalStorage(tmp_path)
    with open_run(run, keep_last=1) as writer:
        writer.save(1, state(1), block=True)
        with reader(run).hold() as step:
            assert step == 1
            for later in (2, 3):
                writer.save(later, state(later), block=True)
            assert writer.steps() == (1, 3)
            assert main(["ckpt", "gc", str(tmp_path), "--keep-last", "1", "--force"]) == 0
            restored = reader(run).restore(blank(), step=step)
            assert restored is not None
        writer.save(4, state(4), block=True)
        assert writer.steps() == (4,)
    assert not [entry for entry in run.list("hold") if entry.size is not None]


def test_a_training_does_not_wait_for_readers_of_a_branch_that_it_gives_up(disk: MemoryStorage) -> None:
    """It saves the same step anew; the reader hears that its step is no more, and the files go once they are free."""
    with reader(disk).hold(2):
        for step, branch in ((2, 7), (3, 8)):
            with open_run(disk) as writer:
                writer.restore(blank(), step=1)
                writer.save(step, state(step, branch=branch), block=True)
        assert reader(disk).steps() == (1, 3)
        with pytest.raises(NotThere):
            reader(disk).restore(blank(), step=2)
        assert [path for path in disk.file_contents() if path.startswith("checkpoint-2/")]


def test_a_hold_ends_with_its_time_and_with_its_process(disk: MemoryStorage) -> None:
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    me = fence.this_process()
    dead, far = replace(me, pid=ended.pid, started=1), replace(me, machine="another", pid=7)
    past, future = "2000-01-01T00:00:00+00:00", "2999-01-01T00:00:00+00:00"
    cases = [(me, past, False), (me, future, True), (dead, future, False), (far, future, True), (far, past, False)]
    for number, (owner, until, lives) in enumerate(cases):
        path = paths.hold_path(number, "0badcafe")
        owned = {name: getattr(owner, name) for name in ("host", "pid", "machine", "started", "job")}
        document = {"format": holds.FORMAT, "step": number, "owner": {**owned, "more": 1}, "until": until}
        disk.put(path, json.dumps(document).encode())
        assert (number in holds.held_steps(disk)) == lives
        assert (disk.size(path) is not None) == lives
    for content in (b"", b"{}", b"[]", b'{"format": "allranks.hold"}'):
        disk.put(paths.hold_path(9, "0badcafe"), content, replace=True)
        assert 9 not in holds.held_steps(disk)


def test_what_cannot_be_held(disk: MemoryStorage) -> None:
    for step, error in ((7, StepRemoved), (None, NotThere)):
        where = MemoryStorage() if step is None else disk
        with pytest.raises(error), reader(where).hold(step):
            raise AssertionError
        assert not [path for path in where.file_contents() if path.startswith("hold/")]
    refused = disk.new_process()
    refused.fail_operation("put", "hold/*")
    with pytest.raises(StorageError), reader(refused).hold():
        raise AssertionError
    # Who may not write into a run reads it all the same.
    process = while_it_reads(disk, lambda: save(disk, 3, keep_last=1))
    process.fail_operation("put", "hold/*", times=99)
    restored = reader(process).restore(blank())
    assert restored is not None
    assert restored[1] == 3


@pytest.mark.parametrize("operation", range(40))
def test_whenever_a_hold_is_taken_the_step_is_whole_or_it_is_said(operation: int) -> None:
    """Before each operation of a removal: who has got the hold can read every byte, until he releases it."""
    disk = MemoryStorage()
    with open_run(disk) as ckpt:
        for step in (1, 2):
            ckpt.save(step, state(step), block=True)
    taken: list[Any] = []
    count = [0]

    def before(_: str, __: str) -> None:
        if count[0] == operation:
            try:
                taken.append(holds.take_hold(disk.new_process(), 1, minutes=1))
            except StepRemoved as error:
                taken.append(error)
        count[0] += 1

    removal.remove_step(disk.new_process(before=before), 1)
    if not taken:
        assert count[0] <= operation
        return
    if isinstance(taken[0], AllranksError):
        assert 1 not in reader(disk).steps()
        return
    restored = reader(disk).restore(blank(), step=1)
    assert restored is not None
    assert same(restored[0], state(1))


def test_a_reader_that_polls_never_hears_of_damage(tmp_path: Path) -> None:
    """Threads: a writer that keeps one step, a reader that restores the newest as fast as it can."""
    run, done = LocalStorage(tmp_path), threading.Event()
    save_first = open_run(run, keep_last=1)
    save_first.save(1, state(1, items=20_000), block=True)

    def write() -> None:
        with save_first:
            for step in range(2, 25):
                save_first.save(step, state(step, items=20_000), block=True)
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    polling, read = reader(run), 0
    try:
        while not done.is_set() or not read:
            restored = polling.restore(blank(items=20_000))
            assert restored is not None
            assert same(restored[0], state(restored[1], items=20_000))
            read += 1
    finally:
        writer.join()
    assert read
