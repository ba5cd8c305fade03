"""Checkpoints and left-overs are removed: a manifest first, so that what is half removed is no checkpoint."""

from __future__ import annotations

from collections.abc import Iterable

from allranks.checkpoint import audit, paths
from allranks.storage.base import Storage


def remove_step(storage: Storage, step: int) -> None:
    """Remove a step and all that lies in its folder."""
    storage.delete(paths.manifest_path(step))
    remove_files(storage, step, [it.name for it in storage.list(paths.step_folder(step)) if it.size is not None])


def remove_files(storage: Storage, step: int, names: Iterable[str]) -> None:
    """Remove files of a step's folder, and the folder if nothing is left in it."""
    folder = paths.step_folder(step)
    for name in names:
        storage.delete(f"{folder}/{name}")
    storage.remove_folder(folder)


def remove_replaced(storage: Storage, step: int) -> None:
    """Remove the shard files of saves of this step that are not the one of its manifest."""
    nonce = audit.load(storage, step).nonce
    named = [(entry.name, paths.shard_file_of(entry.name)) for entry in storage.list(paths.step_folder(step))]
    remove_files(storage, step, [name for name, said in named if said and not nonce.startswith(said.nonce)])
