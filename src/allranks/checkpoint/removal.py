"""Checkpoints and left-overs are removed: a manifest first, so that what is half removed is no checkpoint."""

from __future__ import annotations

from allranks.checkpoint import audit, paths
from allranks.storage.base import Storage


def remove_step(storage: Storage, step: int) -> None:
    """Remove a step and all that lies in its folder."""
    storage.delete(paths.manifest_path(step))
    folder = paths.step_folder(step)
    for entry in storage.list(folder):
        if entry.size is not None:
            storage.delete(f"{folder}/{entry.name}")
    storage.remove_folder(folder)


def remove_replaced(storage: Storage, step: int) -> None:
    """Remove the shard files of saves of this step that are not the one of its manifest."""
    folder, nonce = paths.step_folder(step), audit.load(storage, step).nonce
    for entry in storage.list(folder):
        said = paths.shard_file_of(entry.name)
        if said is not None and not nonce.startswith(said.nonce):
            storage.delete(f"{folder}/{entry.name}")
