"""Whatever befalls the files of a checkpoint is noticed by a restore and by an audit, or does no harm."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from proving import blank, damaged, newest, open_run, same, state

from allranks import SimulatedWorld, World
from allranks.checkpoint import inventory, paths, rehash
from allranks.checkpoint.checkpointer import Checkpointer
from allranks.checkpoint.chunk_reader import ChunkReader
from allranks.errors import Damaged
from allranks.storage import MemoryStorage

RANKS = 3
# Two chunks for each of the large leaves, one for the small ones.
LIKE = {"leaves": 6, "items": 24 << 10}


@pytest.fixture(scope="module")
def saved() -> dict[str, bytes]:
    """The files of two steps, saved by three ranks."""
    disk = MemoryStorage()

    def run(world: World) -> None:
        ckpt = Checkpointer(disk.new_process(), world, on_sigterm=False)
        for step in (10, 20):
            ckpt.save(step, state(step, **LIKE), block=True)
        ckpt.close()

    SimulatedWorld(RANKS).run(run).values()
    return disk.file_contents()


def disk_of(files: dict[str, bytes]) -> MemoryStorage:
    disk = MemoryStorage()
    for path, data in files.items():
        disk.put(path, data)
    return disk


def shard_files(files: dict[str, bytes], step: int = 20) -> list[str]:
    return sorted(path for path in files if path.startswith(f"checkpoint-{step}/") and path.endswith(".safetensors"))


def restored(disk: MemoryStorage, **options: Any) -> tuple[dict[str, Any], int] | None:
    return open_run(disk).restore(blank(**LIKE), **options)


def audited(disk: MemoryStorage) -> Sequence[rehash.DamagedRange]:
    return rehash.verify_checkpoint(disk, inventory.load_manifest(disk, 20))


def is_noticed(disk: MemoryStorage, path: str, byte: int | None = None) -> bool:
    """Check that an audit names file, bytes and leaf, and that a restore does too, or returns what was saved."""
    faults = audited(disk)
    if not faults:
        return False
    name = path.rpartition("/")[2]
    assert all(fault.file == name for fault in faults)
    if byte is not None:
        (fault,) = faults
        assert fault.where[0] <= byte < fault.where[1]
        assert fault.leaves or fault.where[0] == 0  # only the header is of no leaf
    error: Damaged | None = None
    try:
        found = restored(disk)
    except Damaged as caught:
        error = caught
    if error is None:  # the header alone was hit
        assert found is not None
        assert same(found[0], state(20, **LIKE))
        assert all(fault.where[0] == 0 for fault in faults)
        return True
    assert error.path == path
    assert error.step == 20
    assert error.where is not None
    begin, end = error.where
    assert any(f.where[0] < end and begin < f.where[1] and error.leaf in f.leaves for f in faults), (
        error.where,
        faults,
    )
    assert f"bytes {begin}-{end}" in str(error)
    assert f"leaf {error.leaf!r}" in str(error)
    assert "restore(step=10) restores the step before" in str(error)
    return True


def deleted(disk: MemoryStorage, path: str, _: str, __: str) -> None:
    disk.remove_uncounted(path)


def emptied(disk: MemoryStorage, path: str, _: str, __: str) -> None:
    disk.truncate_file(path, 0)


def cut_in_half(disk: MemoryStorage, path: str, _: str, __: str) -> None:
    disk.truncate_file(path, len(disk.file_contents()[path]) // 2)


def cut_by_a_byte(disk: MemoryStorage, path: str, _: str, __: str) -> None:
    disk.truncate_file(path, len(disk.file_contents()[path]) - 1)


def swapped_with_another_rank(disk: MemoryStorage, path: str, other: str, _: str) -> None:
    disk.put(path, disk.file_contents()[other], replace=True)


def swapped_with_another_save(disk: MemoryStorage, path: str, _: str, earlier: str) -> None:
    disk.put(path, disk.file_contents()[earlier], replace=True)


def a_hole_of_zeros(disk: MemoryStorage, path: str, _: str, __: str) -> None:
    data = disk.file_contents()[path]
    disk.put(path, data[:8192] + bytes(4096) + data[12288:], replace=True)


def a_page_of_another_save(disk: MemoryStorage, path: str, _: str, earlier: str) -> None:
    data = disk.file_contents()[path]
    disk.put(path, data[:8192] + disk.file_contents()[earlier][8192:12288] + data[12288:], replace=True)


KINDS = [
    deleted,
    emptied,
    cut_in_half,
    cut_by_a_byte,
    swapped_with_another_rank,
    swapped_with_another_save,
    a_hole_of_zeros,
    a_page_of_another_save,
]


@pytest.mark.parametrize("befalls", KINDS, ids=lambda one: one.__name__)
def test_a_damaged_file_is_named_and_the_older_step_is_there(
    befalls: Callable[[MemoryStorage, str, str, str], None], saved: dict[str, bytes]
) -> None:
    """With fallback=True the older one is taken; without, the error offers it."""
    files, earlier = shard_files(saved), shard_files(saved, 10)
    for number, path in enumerate(files):
        disk = disk_of(saved)
        befalls(disk, path, files[(number + 1) % RANKS], earlier[number])
        assert is_noticed(disk, path)
        with pytest.raises(Damaged):
            restored(disk)
        found = restored(disk, fallback=True)
        assert found is not None
        assert found[1] == 10
        assert same(found[0], state(10, **LIKE))


def test_a_fallback_is_said_loudly(saved: dict[str, bytes], caplog: pytest.LogCaptureFixture) -> None:
    disk = disk_of(saved)
    path = shard_files(saved)[1]
    disk.flip_bit(path, 5000)
    restored(disk, fallback=True)
    record = caplog.records[0]
    assert record.levelname == "WARNING"
    assert path in record.message
    assert "leaf 'layer" in record.message
    assert "falling back to step 10" in record.message


def test_a_file_of_another_save_with_equal_arrays_does_no_harm_and_is_noticed() -> None:
    """The nonce in its header is the only difference."""
    disk = MemoryStorage()
    ckpt = open_run(disk)
    for step in (10, 20):
        ckpt.save(step, state(7, **LIKE), block=True)
    (new,), (old,) = shard_files(disk.file_contents()), shard_files(disk.file_contents(), 10)
    assert disk.file_contents()[new][4096:] == disk.file_contents()[old][4096:]
    disk.swap_files(new, old)
    found = restored(disk)
    assert found is not None
    assert same(found[0], state(7, **LIKE))
    (fault,) = audited(disk)
    assert fault.where[0] == 0


def test_a_step_under_the_name_of_another_is_no_step(saved: dict[str, bytes]) -> None:
    """A whole folder that was copied, or renamed by hand."""
    disk = disk_of(saved)
    for path, data in saved.items():
        if path.startswith("checkpoint-20/"):
            disk.put(path.replace("checkpoint-20/", "checkpoint-30/"), data)
    with pytest.raises(Damaged, match="checkpoint-30 holds step 20: expected step 30"):
        restored(disk)
    found = restored(disk, fallback=True)
    assert found is not None
    assert found[1] == 20


# Flipped bits.


def manifest_flips(saved: dict[str, bytes], bits: Callable[[int], Sequence[int]]) -> Counter[str]:
    """Flip bits of every byte of a manifest; each time a restore refuses it."""
    path, disk, seen = paths.manifest_path(20), disk_of(saved), Counter[str]()
    for byte in range(len(saved[path])):
        for bit in bits(byte):
            disk.flip_bit(path, byte, bit)
            with pytest.raises(Damaged) as caught:
                restored(disk)
            assert caught.value.path.endswith(path)
            seen["detected"] += 1
            disk.flip_bit(path, byte, bit)
    assert restored(disk) is not None
    return seen


def data_flips(saved: dict[str, bytes], places: Iterator[tuple[str, int, int]]) -> Counter[str]:
    disk, seen = disk_of(saved), Counter[str]()
    for path, byte, bit in places:
        disk.flip_bit(path, byte, bit)
        assert is_noticed(disk, path, byte), (path, byte, bit)
        seen["header" if byte < 4096 else "data"] += 1
        disk.flip_bit(path, byte, bit)
    assert damaged(disk) == []
    return seen


def drawn(saved: dict[str, bytes], count: int) -> Iterator[tuple[str, int, int]]:
    draw = random.Random(0)
    for _ in range(count):
        path = draw.choice(shard_files(saved))
        yield path, draw.choice([draw.randrange(4096), draw.randrange(len(saved[path]))]), draw.randrange(8)


def test_a_bit_flipped_anywhere_in_a_manifest_is_noticed(saved: dict[str, bytes]) -> None:
    """One bit, of every byte."""
    print(manifest_flips(saved, lambda byte: (byte % 8,)))


def test_a_bit_flipped_in_a_file_is_noticed_and_named(saved: dict[str, bytes]) -> None:
    """At 500 places, of headers and data."""
    print(data_flips(saved, drawn(saved, 500)))


@pytest.mark.soak
def test_every_bit_of_a_manifest_is_guarded(saved: dict[str, bytes]) -> None:
    print(manifest_flips(saved, lambda _: range(8)))


@pytest.mark.soak
def test_a_bit_of_every_byte_of_a_file_is_guarded() -> None:
    """Of a small checkpoint, all of it."""
    disk = MemoryStorage()
    ckpt = open_run(disk)
    for step in (10, 20):
        ckpt.save(step, state(step), block=True)
    files = disk.file_contents()
    (path,) = shard_files(files)
    seen = Counter[str]()
    for byte in range(len(files[path])):
        disk.flip_bit(path, byte, byte % 8)
        faults = audited(disk)
        assert [fault.file for fault in faults] == [path.rpartition("/")[2]], byte
        try:
            assert newest(disk) == (20, 0)
            seen["harmless, and noticed by the audit"] += 1
        except Damaged:
            seen["refused"] += 1
        disk.flip_bit(path, byte, byte % 8)
    print(seen)


@pytest.mark.soak
def test_twenty_thousand_flipped_bits_are_noticed(saved: dict[str, bytes]) -> None:
    print(data_flips(saved, drawn(saved, 20_000)))


def test_a_reader_that_does_not_look_is_found_out(saved: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the tests above can fail: without digests, a restore returns what was not saved."""

    def careless(self: ChunkReader, file: int, span: Sequence[Any], _: Any, into: Any) -> None:
        stored = self._manifest.files[file]
        self._storage.read(f"checkpoint-20/{stored.name}", span[0].begin, [one.data for one in into])

    monkeypatch.setattr(ChunkReader, "_read_chunks", careless)
    disk = disk_of(saved)
    path = shard_files(saved)[0]
    disk.flip_bit(path, 5000)
    with pytest.raises(AssertionError):
        is_noticed(disk, path)


def test_of_a_file_that_was_cut_the_bytes_that_are_gone_are_named(saved: dict[str, bytes]) -> None:
    """From the first chunk that is not whole; what lies before is looked at all the same."""
    disk = disk_of(saved)
    path = shard_files(saved)[0]
    size = len(saved[path])
    disk.truncate_file(path, size - 1)
    (fault,) = audited(disk)
    with pytest.raises(Damaged) as caught:
        restored(disk)
    assert caught.value.where == fault.where
    assert fault.where[1] == size
    assert fault.where[0] > size - 70_000
    assert fault.leaves == (caught.value.leaf,) == ("layer1",)
    disk.flip_bit(path, 5000)
    assert [one.leaves for one in audited(disk)] == [("layer0",), ("layer1",)]
