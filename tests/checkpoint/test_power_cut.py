"""The power goes after a save was reported: on a real ext4, whose block device is copied at that moment."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from proving import blank, damaged, newest, open_run, state
from safetensors.numpy import load_file, save_file

from allranks.checkpoint import keep_every
from allranks.storage import LocalStorage

SIZE = {"leaves": 4, "items": 1 << 18}  # 4 MiB
# Seconds after which ext4 has written by itself what nobody asked it to write: soon over in the soak.
LATER = (1, 5, 30)
ITEMS = {"layer0": keep_every(10)}


def has_run(*words: object) -> bool:
    return subprocess.run([str(word) for word in words], check=False, capture_output=True).returncode == 0


class Disk:
    """An ext4 in a file, mounted at ``root``."""

    def __init__(self, folder: Path) -> None:
        self.image, self.root = folder / "image", folder / "disk"
        self.root.mkdir(parents=True)
        with self.image.open("wb") as file:
            file.truncate(96 << 20)
        self._copies = 0
        if not (has_run("mkfs.ext4", "-q", "-F", self.image) and has_run("mount", "-o", "loop", self.image, self.root)):
            pytest.skip("this user has no permission mount a file system of its own")

    @contextlib.contextmanager
    def after_power_cut(self) -> Iterator[Path]:
        """Yield what a machine would find that is started again after its power went now."""
        self._copies += 1
        image = self.image.with_name(f"image-{self._copies}")
        subprocess.run(["cp", "--sparse=always", self.image, image], check=True)
        there = self.root.with_name(f"disk-{self._copies}")
        there.mkdir()
        subprocess.run(["mount", "-o", "loop", image, there], check=True)
        try:
            yield there
        finally:
            subprocess.run(["umount", there], check=True)
            image.unlink()

    def close(self) -> None:
        subprocess.run(["umount", self.root], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    made = Disk(tmp_path)
    yield made
    made.close()


def check(disk: Disk, step: int) -> None:
    """What was reported as saved is there and whole."""
    with disk.after_power_cut() as there:
        storage = LocalStorage(there / "runs" / "a")
        assert damaged(storage) == []
        assert newest(storage, **SIZE) == (step, 0)


def saves(disk: Disk, look: Callable[[int], None], *, rounds: int = 1) -> int:
    """Save first, again, with older ones reduced, with older ones removed, and over a branch that is given up.

    ``look`` after each. Return how many saves that were.
    """
    storage, count = LocalStorage(disk.root / "runs" / "a"), 0
    for _ in range(rounds):
        shutil.rmtree(storage.url, ignore_errors=True)
        for step, keeps, items in ((10, None, ITEMS), (20, None, ITEMS), (30, 1, ITEMS), (40, 1, None)):
            ckpt = open_run(storage, keep_last=keeps, items=items)
            ckpt.restore(blank(**SIZE))
            ckpt.save(step, state(step, **SIZE)).wait()
            look(step)
            ckpt.close()
        ckpt = open_run(storage)
        for step in (50, 60):
            ckpt.save(step, state(step, branch=9, **SIZE), block=True)
        ckpt.restore(blank(**SIZE), step=40)
        ckpt.save(50, state(50, **SIZE)).wait()
        look(50)
        ckpt.close()
        count += 5
    return count


def test_what_was_reported_as_saved_survives_a_power_cut(disk: Disk) -> None:
    """At the very moment when ``wait`` has returned."""
    print(f"{saves(disk, lambda step: check(disk, step))} power cuts")


@pytest.mark.soak
def test_so_it_does_at_any_later_moment(disk: Disk) -> None:
    def look(step: int) -> None:
        check(disk, step)
        for since, until in pairwise((0, *LATER)):
            time.sleep(until - since)
            check(disk, step)

    print(f"{saves(disk, look) * (1 + len(LATER))} power cuts")


@pytest.mark.soak
def test_so_it_does_a_hundred_times(disk: Disk) -> None:
    print(f"{saves(disk, lambda step: check(disk, step), rounds=20)} power cuts")


def test_a_save_that_syncs_nothing_is_found_out(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the tests above can fail."""
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda _: None)
    with pytest.raises(AssertionError, match="assert None == "):
        saves(disk, lambda step: check(disk, step))


def test_without_us_the_power_takes_what_was_saved(disk: Disk) -> None:
    """safetensors' own save: the file does not exist, or there are zeros in it."""
    subprocess.run(["sync", "-f", disk.root], check=True)
    arrays: dict[str, Any] = {name: one for name, one in state(10, **SIZE).items() if name != "name"}
    save_file(arrays, disk.root / "model.safetensors")
    with disk.after_power_cut() as there, pytest.raises(Exception, match=r"No such file|rror while deserializing"):
        load_file(there / "model.safetensors")
