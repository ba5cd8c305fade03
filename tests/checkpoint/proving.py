"""States that tell where they come from, and a reader who judges what a run's directory holds, for proofs by damage."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allranks.checkpoint import inventory, rehash, stage
from allranks.checkpoint.checkpointer import Checkpointer
from allranks.storage.base import BLOCK, Storage
from allranks.world.detect import single_world

LEAVES = 4


def _untouched_block() -> NDArray[np.uint8]:
    return np.frombuffer(mmap.mmap(-1, BLOCK), np.uint8)


# Proofs make thousands of small checkpoints. Blocks of memory that are filled with pages before these are needed, as it
# is best for large ones, would take most of the time.
stage.fresh_block = _untouched_block


def state(step: int, branch: int = 0, *, leaves: int = LEAVES, items: int = 64) -> dict[str, Any]:
    """Return the state after ``step`` steps of a branch: every element of every leaf says both."""
    number = 1000 * step + branch
    arrays = {f"layer{i}": np.full(items, number + i / 16, np.float32) for i in range(leaves)}
    return {**arrays, "count": np.array(number), "name": f"step {step} of {branch}"}


def blank(*, leaves: int = LEAVES, items: int = 64) -> dict[str, Any]:
    """Return a template for ``state``."""
    arrays = {f"layer{i}": np.full(items, -1, np.float32) for i in range(leaves)}
    return {**arrays, "count": np.array(-1), "name": ""}


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


def open_run(storage: Storage, **options: Any) -> Checkpointer:
    """Open a run as a job of one rank."""
    return Checkpointer(storage, single_world(), on_sigterm=False, **options)


def newest(storage: Storage, **like: int) -> tuple[int, int] | None:
    """Return step and branch of what a job that starts now would go on from; None if from nothing.

    Fails if that is torn: if its parts are of several saves.
    """
    restored = open_run(storage).restore(blank(**like))
    if restored is None:
        return None
    found, step = restored
    branch = int(found["count"]) - 1000 * step
    assert same(found, state(step, branch, **like)), found
    return step, branch


def damaged(storage: Storage) -> list[str]:
    """Return what is wrong with any step that the run shows, every byte read."""
    found = []
    for step in inventory.complete_steps(storage):
        found += [
            f"step {step}: {fault}"
            for fault in rehash.verify_checkpoint(storage, inventory.load_manifest(storage, step))
        ]
    return found
