"""Chunks are compressed where that is asked for: every reader reads them, and every bit is guarded as before."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from safetensors.numpy import load as load_safetensors

import allranks
from allranks.checkpoint import inventory, keep_last, paths, read, rehash
from allranks.checkpoint.checkpointer import Checkpointer
from allranks.cli.main import main
from allranks.errors import AllranksError, Damaged
from allranks.storage import LocalStorage, MemoryStorage
from allranks.storage.base import BLOCK, Storage
from allranks.world.base import World
from allranks.world.detect import single_world
from allranks.world.simulated import SimulatedWorld


def state(scale: int = 1) -> dict[str, Any]:
    """Arrays that get shorter, and one that does not; of several blocks, and of none."""
    noise = np.random.default_rng(0).integers(0, 255, 300_000, np.uint8)
    return {
        "params": {"ones": np.full((700, 1000), scale, np.float32), "noise": noise, "none": np.zeros((0, 3))},
        "rest": np.arange(BLOCK // 4 + 5, dtype=np.int32) // 1000 * scale,
        "lr": 0.5,
    }


def save(storage: Storage | Path, ranks: int = 1, **options: Any) -> None:
    def job(world: World) -> None:
        with Checkpointer(storage, world, compression="zstd", on_sigterm=False, **options) as ckpt:
            for step in (1, 2):
                ckpt.save(step, state(step), block=True)

    SimulatedWorld(ranks).run(job).values()


@pytest.mark.parametrize(("before", "after"), [(1, 1), (3, 2)])
def test_what_is_compressed_comes_back(tmp_path: Path, before: int, after: int) -> None:
    """On any number of ranks, by readers that do not ask for it; and the files are smaller."""
    save(tmp_path, before, items={"params": keep_last(1)}, keep_last=1)
    storage = LocalStorage(tmp_path)
    manifest = inventory.load_manifest(storage, 2)
    for file in manifest.files:
        assert file.name.endswith(".safetensors.zst")
        assert storage.size(f"checkpoint-2/{file.name}") == file.size
    assert sum(file.size for file in manifest.files) < 0.1 * sum(file.bytes for file in manifest.files)
    assert rehash.verify_checkpoint(storage, manifest) == ()

    def job(world: World) -> bool:
        found = Checkpointer(tmp_path, world, read_only=True).restore(state(0))
        assert found is not None
        return all((found[0][name] == state(2)[name]).all() for name in ("rest",)) and bool(
            (found[0]["params"]["noise"] == state(2)["params"]["noise"]).all()
        )

    assert set(SimulatedWorld(after).run(job).values()) == {True}
    part, _ = read(tmp_path, only="params/ones", slices={"params/ones": (slice(690, 700),)})
    assert (part["params"]["ones"] == 2).all()
    report = allranks.load(tmp_path, into=state(0), world=single_world())
    assert (report.state["rest"] == state(2)["rest"]).all()
    assert main(["ckpt", "verify", str(tmp_path)]) == 0
    assert main(["ckpt", "export", str(tmp_path), str(tmp_path / "out"), "--prefix", "rest"]) == 0
    assert (load_safetensors((tmp_path / "out" / "model.safetensors").read_bytes())["rest"] == state(2)["rest"]).all()


def test_a_compressed_file_is_a_safetensors_file_for_zstd(tmp_path: Path) -> None:
    """For tools that know nothing of us."""
    save(tmp_path)
    (path,) = (tmp_path / "checkpoint-1").glob("*.zst")
    data = zstandard.ZstdDecompressor().stream_reader(path.read_bytes(), read_across_frames=True).read()
    assert (load_safetensors(data)["rest"] == state(1)["rest"]).all()


def small() -> MemoryStorage:
    disk = MemoryStorage()
    with Checkpointer(disk, single_world(), compression="zstd", on_sigterm=False) as ckpt:
        ckpt.save(1, {"w": np.arange(500), "v": np.ones(9)}, block=True)
    return disk


def flipped(places: Iterator[int]) -> tuple[int, int]:
    """Flip a bit of the file at each of these places; return how many readers noticed, and how many lost nothing."""
    disk = small()
    (file,) = inventory.load_manifest(disk, 1).files
    path, noticed, unharmed = f"{paths.step_folder(1)}/{file.name}", 0, 0
    whole = disk.get(path)
    for place in places:
        data = bytearray(whole)
        data[place % len(whole)] ^= 1 << place % 8
        disk.put(path, bytes(data), replace=True)
        audited = rehash.verify_checkpoint(disk, inventory.load_manifest(disk, 1))
        try:
            found, _ = read(disk)
        except Damaged:
            noticed += 1
            assert audited
        else:  # in the header, or in a bit of a frame that says nothing of its content
            assert found["w"].tolist() == list(range(500))
            unharmed += 1
    return noticed, unharmed


def test_a_bit_flipped_in_a_compressed_file_is_noticed_or_harmless() -> None:
    noticed, unharmed = flipped(iter(range(0, 3000, 41)))
    assert noticed > unharmed


@pytest.mark.soak
def test_every_bit_of_a_compressed_file_is_guarded() -> None:
    print(flipped(place * 8 + bit for place in range(3000) for bit in range(8)))


def test_a_compressed_file_that_was_cut_is_named() -> None:
    disk = small()
    (file,) = inventory.load_manifest(disk, 1).files
    path = f"{paths.step_folder(1)}/{file.name}"
    disk.put(path, disk.get(path)[:-5], replace=True)
    (fault,) = rehash.verify_checkpoint(disk, inventory.load_manifest(disk, 1))
    assert fault.kind == "cut off"
    with pytest.raises(Damaged, match=r"of leaf '[vw]'"):
        read(disk)


def test_without_the_library_it_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is saved; and where one reads, by what is needed, not as damage."""
    save(tmp_path)
    monkeypatch.setitem(sys.modules, "zstandard", None)
    monkeypatch.delitem(sys.modules, "allranks.checkpoint.zstd", raising=False)
    remedy = r"needs zstandard, which is not installed\. Install it: pip install \"allranks\[zstd\]\""
    with pytest.raises(AllranksError, match=f"compression='zstd' {remedy}"):
        Checkpointer(tmp_path / "b", single_world(), compression="zstd")
    with pytest.raises(AllranksError, match=f"step 2 {remedy}"):
        read(tmp_path)
    with pytest.raises(AllranksError, match="compression='lz4': expected None or 'zstd'"):
        Checkpointer(tmp_path / "b", single_world(), compression="lz4")  # type: ignore[arg-type]
    assert not (tmp_path / "b").exists()
