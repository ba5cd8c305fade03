"""``allranks ckpt verify``: what is not as it was saved is found and named."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from runs import Said

from allranks.checkpoint import inventory, paths
from allranks.checkpoint.manifest import Manifest
from allranks.checkpoint.rehash import DamagedRange, verify_checkpoint
from allranks.storage.local import LocalStorage
from allranks.storage.memory import MemoryStorage


def flip(path: Path, byte: int) -> None:
    data = bytearray(path.read_bytes())
    data[byte] ^= 0x10
    path.write_bytes(data)


def begins(run: Path, leaf: str, rank: int) -> int:
    """Where the part of a leaf that a rank holds begins in its file."""
    manifest = inventory.load_manifest(LocalStorage(run), 200)
    return next(shard.begin for shard in manifest.leaves[leaf].shards if shard.file == rank)


def test_what_is_as_it_was_saved_is_good(ckpt: Callable[..., Said], run: Path) -> None:
    said = ckpt("verify", run)
    assert said.code == 0
    assert said.out.startswith(f"{run}/checkpoint-200: good: ")
    assert "in 4 files, 5 leaves, every byte as it was saved" in said.out
    document = ckpt("verify", run, "--all", "--json").document
    assert document["good"]
    assert [(one["step"], one["good"], one["faults"]) for one in document["steps"]] == [
        (100, True, []),
        (200, True, []),
    ]


def test_a_flipped_bit_is_found_with_its_file_its_leaf_and_its_bytes(
    ckpt: Callable[..., Said], run: Path, shard_files: list[Path]
) -> None:
    at = begins(run, "opt/mu/wte", 2) + 1000
    flip(shard_files[2], at)
    said = ckpt("verify", run)
    assert said.code == 1
    assert "checkpoint-200: DAMAGED: 1 fault in " in said.out
    [fault] = ckpt("verify", run, "--json").document["steps"][0]["faults"]
    assert (fault["file"], fault["kind"]) == (shard_files[2].name, "changed")
    assert "opt/mu/wte" in fault["leaves"]  # with others, if they are small and share its chunk
    assert fault["begin"] <= at < fault["end"]
    assert (
        f"    bytes {fault['begin']:,} to {fault['end']:,}: their digest differs from that in the manifest" in said.out
    )
    assert ", ".join(fault["leaves"]) in said.out
    assert ckpt("verify", run, "--step", 100).code == 0
    assert ckpt("verify", run, "--all").code == 1


def test_every_flipped_bit_is_found(run: Path, shard_files: list[Path]) -> None:
    """Anywhere in any file, the header too; the fault names the bytes."""
    storage, draw = LocalStorage(run), random.Random(3)
    manifest = inventory.load_manifest(storage, 200)
    for _ in range(60):
        path = draw.choice(shard_files)
        whole, byte = path.read_bytes(), draw.randrange(path.stat().st_size)
        flip(path, byte)
        [fault] = verify_checkpoint(storage, manifest)
        assert fault.file == path.name
        assert fault.where[0] <= byte < fault.where[1]
        path.write_bytes(whole)
    assert verify_checkpoint(storage, manifest) == ()


def test_the_manifest_is_verified_too(ckpt: Callable[..., Said], run: Path) -> None:
    flip(run / "checkpoint-200" / "manifest.json", 700)
    said = ckpt("verify", run)
    assert said.code == 1
    assert "DAMAGED" in said.out
    assert "manifest.json is not a valid manifest" in said.out
    assert ckpt("verify", run, "--json").document["steps"][0]["manifest"]


def test_a_missing_file_is_one_fault_with_all_its_leaves(run: Path, shard_files: list[Path]) -> None:
    storage = LocalStorage(run)
    manifest = inventory.load_manifest(storage, 200)
    size = shard_files[1].stat().st_size
    shard_files[1].unlink()
    [fault] = verify_checkpoint(storage, manifest)
    assert (fault.file, fault.kind, fault.where) == (shard_files[1].name, "missing", (0, size))
    assert {"model/wte", "model/wq", "opt/mu/wte"} <= set(fault.leaves)


def test_a_file_that_is_cut_off_is_verified_as_far_as_it_goes(run: Path, shard_files: list[Path]) -> None:
    storage = LocalStorage(run)
    manifest = inventory.load_manifest(storage, 200)
    size = shard_files[0].stat().st_size
    with shard_files[0].open("r+b") as file:
        file.truncate(size - 5)
    [fault] = verify_checkpoint(storage, manifest)
    assert fault.kind == "cut off"
    assert fault.where[0] > 0
    assert fault.where[1] == size
    assert f"the file has {size - 5:,} bytes: expected {size:,}" in fault.what


def test_bytes_behind_the_end_are_a_fault(run: Path, shard_files: list[Path]) -> None:
    """No digest covers them, and safetensors refuses such a file."""
    storage = LocalStorage(run)
    manifest = inventory.load_manifest(storage, 200)
    with shard_files[3].open("ab") as file:
        file.write(b"more")
    [fault] = verify_checkpoint(storage, manifest)
    assert (fault.kind, fault.leaves) == ("too long", ())


def test_a_file_of_another_save_is_called_so(run: Path, shard_files: list[Path]) -> None:
    """Its nonce, in its header, is not the manifest's."""
    storage = LocalStorage(run)
    manifest = inventory.load_manifest(storage, 200)
    other = sorted((run / "checkpoint-100").glob("*.safetensors"))[1]
    shutil.copy(other, shard_files[1])
    [fault] = verify_checkpoint(storage, manifest)
    assert fault.kind == "foreign"
    nonce = inventory.load_manifest(storage, 100).nonce
    assert fault.what == f"it belongs to another save: of step 100, nonce {nonce[:8]}"
    assert "model/wte" in fault.leaves


def test_files_of_two_ranks_that_were_swapped_are_called_so(run: Path, shard_files: list[Path]) -> None:
    storage = LocalStorage(run)
    manifest = inventory.load_manifest(storage, 200)
    one, other = shard_files[1].read_bytes(), shard_files[2].read_bytes()
    shard_files[1].write_bytes(other)
    shard_files[2].write_bytes(one)
    faults = verify_checkpoint(storage, manifest)
    assert [(fault.kind, fault.what) for fault in faults] == [
        ("foreign", "it is the file of rank 2 of this save: expected that of rank 1"),
        ("foreign", "it is the file of rank 1 of this save: expected that of rank 2"),
    ]


@pytest.mark.parametrize("size", [4096, 5000, (8 << 20) + 4096, (20 << 20) + 3])
def test_chunks_of_any_size_are_verified_past_the_cache_or_not(size: int, tmp_path: Path) -> None:
    """A file written by others may have chunks larger than the blocks in which we read."""
    data = np.random.default_rng(size).integers(0, 256, size, np.uint8).tobytes()
    (tmp_path / "checkpoint-1").mkdir()
    (tmp_path / "checkpoint-1" / "file").write_bytes(data)
    manifest = manifest_of(data, [size])
    for direct in (False, True):
        assert verify_checkpoint(LocalStorage(tmp_path, direct=direct), manifest) == ()
    flip(tmp_path / "checkpoint-1" / "file", size - 1)
    [fault] = verify_checkpoint(LocalStorage(tmp_path, direct=True), manifest)
    assert fault == DamagedRange("file", "changed", (0, size), (), "their digest differs from that in the manifest")


def test_a_bad_sector_is_a_fault_and_the_rest_is_verified() -> None:
    """The disk says EIO; what lies before and behind is looked at all the same."""
    storage, data = MemoryStorage(), bytes(20 << 20)
    storage.put("checkpoint-1/file", data[:-1] + b"x")
    ends = [8 << 20, 16 << 20, 20 << 20]
    storage.fail_operation("read", times=1)
    first, second = verify_checkpoint(storage, manifest_of(data, ends), threads=1)
    assert (first.kind, first.where) == ("unreadable", (0, 8 << 20))
    assert "EIO" in first.what
    assert (second.kind, second.where) == ("changed", (16 << 20, 20 << 20))


def test_progress_tells_every_byte() -> None:
    storage, data = MemoryStorage(), bytes(1000)
    storage.put("checkpoint-1/file", data)
    told: list[int] = []
    verify_checkpoint(storage, manifest_of(data, [10, 400, 1000]), report_progress=told.append)
    assert sum(told) == 1000


def manifest_of(data: bytes, ends: list[int]) -> Manifest:
    from allranks.checkpoint.manifest import StoredFile
    from allranks.digest import hasher_by_name

    digest = hasher_by_name("xxh3-128")
    digests = tuple(digest(data[begin:end]) for begin, end in zip([0, *ends], ends, strict=False))
    file = StoredFile("file", len(data), tuple(ends), digests)
    assert paths.parse_shard_file("file") is None
    return Manifest(1, "0" * 32, "2026-01-01T00:00:00+00:00", 1, "xxh3-128", (file,), {}, {}, None, {}, {})
