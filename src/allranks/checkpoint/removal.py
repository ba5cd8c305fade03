"""Checkpoints and left-overs are removed: a manifest first, so that what is half removed is no checkpoint."""

from __future__ import annotations

from allranks.checkpoint import paths
from allranks.storage.base import Storage


def remove_step(storage: Storage, step: int) -> None:
    """Remove a step and all that lies in its folder."""
    storage.delete(paths.manifest_path(step))
    folder = paths.step_folder(step)
    for entry in storage.list(folder):
        if entry.size is not None:
            storage.delete(f"{folder}/{entry.name}")
    storage.remove_folder(folder)
