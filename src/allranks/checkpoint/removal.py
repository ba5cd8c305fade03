"""Checkpoints and leftovers are removed: a manifest first, so that what is half removed is no checkpoint.

Only what is ours goes: the manifest, the files that it names, and files with our own names. Symbolic links are not
followed: what is behind one may be somebody else's (``Storage.delete`` refuses).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from allranks.checkpoint import audit, holds, items, leftovers, manifest_decode, manifest_encode, paths
from allranks.errors import AllranksError, NotThere
from allranks.storage.base import Storage

NEWER = "its manifest is of a newer allranks, or of another program"
LINK = "its folder is a symbolic link"


def obstacles(storage: Storage, steps: Iterable[int], *, held: Mapping[int, str]) -> dict[int, str]:
    """Return why some of these steps must stay, by step; ``held`` says who holds which."""
    links = {entry.name for entry in storage.list("") if entry.link}
    found = {}
    for step in steps:
        if paths.step_folder(step) in links:
            found[step] = LINK
        elif step in held:
            found[step] = held[step]
        elif _manifest(storage, step)[1] is None:
            found[step] = NEWER
    return found


def remove_step(storage: Storage, step: int) -> tuple[str, ...] | None:
    """Remove a step; return the names in its folder that are not ours, and stay. None where the whole step stays.

    That is a step with a manifest that is not ours, and one that a reader has just taken hold of. Raises StorageError
    for a folder that is a symbolic link.
    """
    data, named = _manifest(storage, step)
    if named is None:
        return None
    storage.delete(paths.manifest_path(step))
    if step in holds.held(storage):
        if data:
            storage.put(paths.manifest_path(step), data)
        return None
    ours, others = leftovers.split(storage.list(paths.step_folder(step)), named)
    remove_files(storage, step, ours)
    return others


def reduce_step(storage: Storage, step: int, names: Collection[str]) -> bool:
    """Remove all of a step but these items; return False where a reader has just taken hold of it, and all stays.

    A manifest of what is left takes the place of the step's. Then the files go that it does not name.
    """
    path = paths.manifest_path(step)
    before, data = audit.load(storage, step), storage.get(path)
    if lacking := set(names) - items.items_in(before):
        told = ", ".join(map(repr, sorted(lacking)))
        raise AllranksError(f"step {step} of {storage.url} has no item {told}, so nothing of it is removed.", step=step)
    after = items.reduce_manifest(before, names)
    if after.files != before.files or after.leaves.keys() != before.leaves.keys() or after.values != before.values:
        storage.put(path, manifest_encode.encode(after), replace=True)
        if step in holds.held(storage):
            storage.put(path, data, replace=True)
            return False
    named = {file.name for file in after.files}
    ours, _ = leftovers.split(storage.list(paths.step_folder(step)), named)
    remove_files(storage, step, [name for name in ours if name not in named])
    return True


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


def _manifest(storage: Storage, step: int) -> tuple[bytes, tuple[str, ...] | None]:
    """Return the bytes of a step's manifest, and the files that it names: none where it is damaged or missing, None
    where it is not ours."""
    try:
        data = storage.get(paths.manifest_path(step))
    except NotThere:
        return b"", ()
    return data, manifest_decode.file_names(data)
