"""A run has one owner: the newest. The older one is told, and a live one on this machine is not robbed in silence."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from allranks.checkpoint import fence
from allranks.checkpoint.fence import RunOwner, acquire_fence, check_fence, release_fence, this_process
from allranks.errors import AlreadyThere, Damaged, Fenced
from allranks.process import started as process_started
from allranks.storage.local import LocalStorage
from allranks.storage.memory import MemoryStorage, SimulatedCrash

ELSEWHERE = RunOwner("far", 1, "another machine", 5, "job 9")


@pytest.fixture
def neighbour() -> Iterator[RunOwner]:
    """Another live process of this machine."""
    with subprocess.Popen(["sleep", "1000"]) as process:
        yield replace(this_process(), pid=process.pid, started=process_started(process.pid) or 0)
        process.kill()


def names(storage: MemoryStorage) -> list[str]:
    return [entry.name for entry in storage.list("fence")]


def test_the_newest_owner_may_write_and_the_older_is_told_by_whom() -> None:
    storage = MemoryStorage()
    old = acquire_fence(storage, ELSEWHERE)
    check_fence(storage, old)
    new = acquire_fence(storage.new_process(), this_process())
    check_fence(storage, new)
    with pytest.raises(
        Fenced, match=rf"process {new.owner.pid} on host {new.owner.host}.* took over the run"
    ) as caught:
        check_fence(storage, old)
    assert "process 1 on host far" in str(caught.value)
    assert new.since in str(caught.value)


def test_the_last_two_are_kept_and_a_number_is_given_once() -> None:
    """Also when all owners have left in order: an old one that wakes up must find itself fenced off."""
    storage = MemoryStorage()
    for number in range(1, 6):
        held = acquire_fence(storage, ELSEWHERE)
        assert held.number == number
        release_fence(storage, held)
    assert names(storage) == ["00000004.json", "00000005.json"]
    document = json.loads(storage.get("fence/00000005.json"))
    assert (document["released"], document["owner"]["job"]) == (True, "job 9")


def test_a_live_owner_on_this_machine_is_not_robbed(neighbour: RunOwner) -> None:
    """Unless that is wanted; then the old one is refused when it next saves."""
    storage = MemoryStorage()
    theirs = acquire_fence(storage, neighbour)
    with pytest.raises(Fenced, match=f"process {neighbour.pid} on host .* is alive") as caught:
        acquire_fence(storage, this_process())
    assert "take_over=True" in caught.value.remedy
    check_fence(storage, theirs)
    ours = acquire_fence(storage, this_process(), take_over=True)
    with pytest.raises(Fenced, match="took over the run"):
        check_fence(storage, theirs)
    check_fence(storage, ours)


def test_who_has_closed_the_run_or_ended_is_no_obstacle(neighbour: RunOwner) -> None:
    """Nor a process that only has the pid of an owner that ended, nor ourselves."""
    storage = MemoryStorage()
    release_fence(storage, acquire_fence(storage, neighbour))
    acquire_fence(storage, replace(neighbour, started=neighbour.started - 1))
    acquire_fence(storage, replace(neighbour, machine="another boot"))
    acquire_fence(storage, replace(neighbour, machine=""))
    acquire_fence(storage, this_process())
    assert acquire_fence(storage, this_process()).number == 6


def test_of_many_that_come_at_once_each_gets_its_own_number() -> None:
    storage = MemoryStorage()
    with ThreadPoolExecutor(8) as pool:
        held = list(pool.map(lambda _: acquire_fence(storage.new_process(), ELSEWHERE), range(40)))
    numbers = [one.number for one in held]
    assert len(set(numbers)) == 40
    assert [one.number for one in held if not _is_fenced(storage, one)] == [max(numbers)]
    assert len(names(storage)) <= 2


def _is_fenced(storage: MemoryStorage, one: fence.Fence) -> bool:
    try:
        check_fence(storage, one)
    except Fenced:
        return True
    return False


def test_an_owner_that_was_fenced_off_does_not_release_the_new_one() -> None:
    storage = MemoryStorage()
    old, new = acquire_fence(storage, ELSEWHERE), acquire_fence(storage, ELSEWHERE)
    release_fence(storage, old)
    assert not json.loads(storage.get(new.path))["released"]


def test_a_run_that_was_removed_is_nobodys() -> None:
    """Who wrote into it stops, and does not bring it back to life; nor does it own what is begun in its place."""
    storage = MemoryStorage()
    held = acquire_fence(storage, ELSEWHERE)
    storage.remove_uncounted(held.path)
    with pytest.raises(Fenced, match="does not exist any more"):
        check_fence(storage, held)
    new = acquire_fence(storage, this_process())
    assert new.number == held.number == 1
    with pytest.raises(Fenced, match="took over the run"):
        check_fence(storage, held)
    release_fence(storage, held)
    assert not json.loads(storage.get(new.path))["released"]


def test_something_in_the_way_of_a_fence_is_said_and_not_waited_for() -> None:
    """On a file system without links, the claim of a process that was killed may be."""
    storage = MemoryStorage()
    storage.fail_operation(
        "put", "fence/*", times=10**9, error=AlreadyThere("or a process is writing it: .00000001.json.claim exists")
    )
    with pytest.raises(AlreadyThere, match="claim exists"):
        acquire_fence(storage, this_process())


def test_a_file_that_is_no_fence_is_named() -> None:
    storage = MemoryStorage()
    storage.put("fence/00000003.json", b'{"format": "x"}')
    storage.put("fence/.00000009.json.tmp", b"")
    with pytest.raises(Damaged, match=r"fence/00000003.json is not a valid fence") as caught:
        acquire_fence(storage, ELSEWHERE)
    assert caught.value.path == "fence/00000003.json"


def test_a_crash_while_a_run_is_opened_leaves_it_open_to_others() -> None:
    """At whichever operation of the storage."""
    for operation in range(1, 12):
        storage = MemoryStorage()
        for _ in range(3):
            acquire_fence(storage, ELSEWHERE)
        process = storage.new_process()
        process.crash_at(operation, "torn")
        with contextlib.suppress(SimulatedCrash):
            acquire_fence(process, ELSEWHERE)
        held = acquire_fence(storage, ELSEWHERE)
        check_fence(storage, held)
        assert held.number >= 4


def test_a_copy_of_a_live_run_is_nobodys(neighbour: RunOwner, tmp_path: Path) -> None:
    """The run itself is refused, by whichever name it goes; and so is one whose fence does not say where it was."""
    run, copy, link = tmp_path / "run", tmp_path / "copy", tmp_path / "link"
    theirs = acquire_fence(LocalStorage(run), neighbour)
    shutil.copytree(run, copy)
    link.symlink_to(run)
    for same in (run, link, tmp_path / "copy" / ".." / "run"):
        with pytest.raises(Fenced, match="is alive"):
            acquire_fence(LocalStorage(same), this_process())
    assert acquire_fence(LocalStorage(copy), this_process()).number == 2
    check_fence(LocalStorage(run), theirs)
    old = json.loads((run / theirs.path).read_text())
    del old["place"]
    (run / theirs.path).write_text(json.dumps(old))
    with pytest.raises(Fenced, match="is alive"):
        acquire_fence(LocalStorage(run), this_process())


def test_a_fence_of_a_newer_allranks_is_one() -> None:
    """It may say more than this one knows."""
    storage = MemoryStorage()
    held = acquire_fence(storage, ELSEWHERE)
    said = json.loads(storage.get(held.path))
    storage.put(
        held.path, json.dumps({**said, "more": 1, "owner": {**said["owner"], "more": 2}}).encode(), replace=True
    )
    check_fence(storage, held)
    assert acquire_fence(storage, this_process()).number == 2
