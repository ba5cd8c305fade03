"""The storage that fails on purpose fails as it was told to."""

from __future__ import annotations

import errno

import pytest
from sources import Blocks, content

from allranks.errors import NotThere, StorageError
from allranks.storage import MemoryStorage
from allranks.storage.base import BLOCK
from allranks.storage.memory import SimulatedCrash

DATA = content(2 * BLOCK + 10)
OPERATIONS = ["create", "block", "block", "block", "finish"]


def test_operations_are_counted_by_name() -> None:
    storage = MemoryStorage()
    storage.write("file", Blocks(DATA))
    storage.put("other", b"1")
    storage.get("other")
    assert storage.log == [*((name, "file") for name in OPERATIONS), ("put", "other"), ("get", "other")]


@pytest.mark.parametrize("effect", ["none", "torn", "whole"])
@pytest.mark.parametrize("at", range(1, 6))
def test_a_crash_leaves_what_was_done_until_then(at: int, effect: str) -> None:
    """The process is dead from then on and tidies nothing up; another process sees the part that was written."""
    storage = MemoryStorage()
    storage.crash_at(at, effect)
    with pytest.raises(SimulatedCrash, match=f"operation {at}"):
        storage.write("file", Blocks(DATA))
    with pytest.raises(SimulatedCrash):
        storage.get("file")
    done = at - (effect == "none")
    written = min(max(0, done - 1) * BLOCK, len(DATA))
    if effect == "torn" and 2 <= at <= 4:
        begin = (at - 2) * BLOCK
        written = begin + min(BLOCK, len(DATA) - begin) // 2
    assert storage.new_process().file_contents() == ({"file": DATA[:written]} if done else {})


def test_a_torn_put_leaves_its_temporary_file_alone() -> None:
    """A put is whole or not at all, for a crash too."""
    for effect, names in (("none", []), ("torn", [".f.torn.tmp"]), ("whole", ["f"])):
        storage = MemoryStorage()
        storage.crash_at(1, effect)
        with pytest.raises(SimulatedCrash):
            storage.put("f", b"1234")
        assert list(storage.new_process().file_contents()) == names


def test_a_power_cut_keeps_what_returned() -> None:
    """Of what did not, anything from nothing to all is there, drawn from the seed."""
    storage = MemoryStorage()
    storage.write("whole", Blocks(DATA))
    storage.put("manifest", b"{}")
    dead = storage.new_process()
    dead.crash_at(5)
    with pytest.raises(SimulatedCrash):
        dead.write("part", Blocks(DATA))
    after = [storage.after_power_cut(seed).file_contents() for seed in range(12)]
    assert all(files["whole"] == DATA and files["manifest"] == b"{}" for files in after)
    fates = {"lost" if "part" not in files else files["part"] == DATA for files in after}
    assert fates == {"lost", False, True}
    assert after[7] == storage.after_power_cut(7).file_contents()
    assert storage.file_contents()["part"] == DATA


def test_a_full_memory_says_so() -> None:
    """And gives the space of the failed file back."""
    storage = MemoryStorage(capacity=2 * BLOCK)
    with pytest.raises(StorageError, match="ENOSPC"):
        storage.write("file", Blocks(DATA))
    storage.put("file", content(2 * BLOCK))
    with pytest.raises(StorageError, match="ENOSPC"):
        storage.put("more", b"1")
    assert list(storage.file_contents()) == ["file"]


def test_planned_errors_hit_what_they_name() -> None:
    """By name and path, so often and no more, in the words of the storage or as they are."""
    storage = MemoryStorage()
    storage.fail_operation("put", "fence/*", times=2)
    storage.fail_operation("*", "other", error=NotThere("planned"))
    storage.put("manifest", b"1")
    for _ in range(2):
        with pytest.raises(StorageError, match=errno.errorcode[errno.EIO]):
            storage.put("fence/1", b"1")
    storage.put("fence/1", b"1")
    with pytest.raises(NotThere, match="planned"):
        storage.size("other")
    storage.fail_operation("block", error=OSError(errno.EDQUOT, "quota"))
    with pytest.raises(StorageError, match="EDQUOT"):
        storage.write("file", Blocks(DATA))
    assert "file" not in storage.file_contents()


def test_a_test_is_told_before_every_operation() -> None:
    """So it may wait or raise at a chosen one."""
    seen = []
    storage = MemoryStorage(before=lambda operation, path: seen.append((operation, path)))
    storage.write("file", Blocks(b"1"))
    assert seen == storage.log
    assert seen[0] == ("create", "file")


def test_files_are_damaged_on_demand() -> None:
    storage = MemoryStorage()
    storage.put("a", b"\x00\x01")
    storage.put("b", b"123")
    storage.flip_bit("a", 1, 7)
    storage.truncate_file("b", 2)
    assert storage.file_contents() == {"a": b"\x00\x81", "b": b"12"}
    storage.swap_files("a", "b")
    storage.remove_uncounted("b")
    assert storage.file_contents() == {"a": b"12"}
    assert storage.log == [("put", "a"), ("put", "b")]
