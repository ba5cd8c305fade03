"""Remove steps and leftover files of a run, and say which files may be removed.

A manifest is removed first, so a step that is removed in part is no checkpoint. Only files of allranks are removed: the
manifest, the files that it names, and files with allranks' own names. Symbolic links are not followed, because what is
behind a link may be somebody else's (``Storage.delete`` refuses).

A save writes its files first and names them last. So a file that no manifest names belongs to a save that goes on, or
to one that died. A folder in which nothing has changed for a while is of the second kind.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from allranks.checkpoint import holds, inventory, items, manifest_decode, manifest_encode, paths
from allranks.checkpoint.inventory import StepFolder
from allranks.errors import AllranksError, NotThere
from allranks.storage.base import Entry, Storage

NEWER = "its manifest is of a newer allranks, or of another program"
LINK = "its folder is a symbolic link"
# What LocalStorage leaves behind when it is killed while it puts a manifest.
_OF_A_PUT = re.compile(r"\.manifest\.json\.([0-9a-f]{8}\.tmp|claim)")


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
    ours, others = split_names(storage.list(paths.step_folder(step)), named)
    remove_files(storage, step, ours)
    return others


def reduce_step(storage: Storage, step: int, names: Collection[str]) -> bool:
    """Remove all of a step but these items; return False where a reader has just taken hold of it, and all stays.

    A manifest of what is left takes the place of the step's. Then the files go that it does not name.
    """
    path = paths.manifest_path(step)
    before, data = inventory.load(storage, step), storage.get(path)
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
    ours, _ = split_names(storage.list(paths.step_folder(step)), named)
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
    nonce = inventory.load(storage, step).nonce
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


@dataclass(frozen=True, slots=True)
class Leftover:
    """Files of a step's folder that no manifest names. ``age`` is the seconds for which the folder has not changed,
    None where that is not known; ``whole`` says that nothing else stands in the folder."""

    step: int
    names: tuple[str, ...]
    bytes: int
    age: float | None
    whole: bool


@dataclass(frozen=True, slots=True)
class StepRemoval:
    """What of a step's folder goes with the step: ``bytes``; and the names ``others`` that are not ours, and stay."""

    step: int
    bytes: int
    others: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Clearance:
    """``remove`` are old enough; ``spare`` are not, or their age is not known."""

    remove: tuple[Leftover, ...]
    spare: tuple[Leftover, ...]


def leftover_of(found: StepFolder, *, now: float) -> Leftover | None:
    """Return what is left over in a folder, None if nothing is. Files with names that are not ours are left alone.

    ``now`` is in seconds since 1970. Of a manifest that cannot be read nobody knows what it names: all that is there
    stays. So does what a symbolic link leads to.
    """
    if found.state in ("damaged", "newer") or found.link:
        return None
    named = {file.name for file in found.manifest.files} if found.manifest else set()
    mine = [file for file in found.files if file.size is not None and _is_ours(file.name) and file.name not in named]
    if not mine and (found.manifest or found.files):
        return None
    return Leftover(
        found.step,
        tuple(file.name for file in mine),
        sum(file.size or 0 for file in mine),
        None if found.changed is None else max(now - found.changed, 0.0),
        found.state == "unfinished" and len(mine) == len(found.files),
    )


def split_names(entries: Iterable[Entry], named: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names in a step's folder that go with the step (but for the manifest), and those that are not ours.

    ``named`` are the files that the manifest names.
    """
    known = {*named}
    ours: list[str] = []
    others: list[str] = []
    for entry in entries:
        if entry.name != paths.MANIFEST:
            mine = entry.size is not None and (entry.name in known or _is_ours(entry.name))
            (ours if mine else others).append(entry.name)
    return tuple(ours), tuple(others)


def step_removal(found: StepFolder) -> StepRemoval:
    """Return what goes with a whole step, and what stays."""
    ours, others = split_names(found.files, [file.name for file in found.manifest.files] if found.manifest else ())
    gone = {*ours, paths.MANIFEST}
    return StepRemoval(found.step, sum(file.size or 0 for file in found.files if file.name in gone), others)


def clearance(found: Iterable[StepFolder], *, now: float, older_than: float) -> Clearance:
    """Return what to remove: what has not changed for ``older_than`` seconds."""
    left = [one for one in (leftover_of(each, now=now) for each in found) if one is not None]
    old = [one for one in left if one.age is not None and one.age >= older_than]
    return Clearance(tuple(old), tuple(one for one in left if one not in old))


def _is_ours(name: str) -> bool:
    return paths.shard_file_of(name) is not None or _OF_A_PUT.fullmatch(name) is not None
