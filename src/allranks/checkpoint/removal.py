"""Remove steps and leftover files of a run, and say which files may be removed.

A manifest is removed first, so a step that is removed in part is no checkpoint. Only files of allranks are removed: the
manifest, the files that it names, and files with allranks' own names. Symbolic links are not followed, because the
target of a link may belong to somebody else (``Storage.delete`` refuses).

A save writes its files first and names them last. So a file that no manifest names belongs to a running save, or to a
save that died. If nothing has changed in a folder for a while, the save died.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import compress
from operator import not_

from allranks.checkpoint import holds, inventory, items, manifest_decode, manifest_encode, paths
from allranks.checkpoint.inventory import StepFolder
from allranks.errors import AllranksError, NotAFile, NotThere, Unsafe
from allranks.storage import limits
from allranks.storage.base import Entry, Storage

NEWER = (
    "its manifest was written by a newer allranks, or by another program, or is not a file (remove the folder by hand)"
)
DAMAGED = "its manifest is damaged, so it is not known which files belong to it (remove the folder by hand)"
LINK = "its folder is a symbolic link, which is not followed (remove the link by hand)"
# The files that LocalStorage leaves if it is killed while it writes a manifest.
_OF_A_PUT = re.compile(r"\.manifest\.json\.([0-9a-f]{8}\.tmp|claim)")


def removal_obstacles(storage: Storage, steps: Iterable[int], *, holders: Mapping[int, str]) -> dict[int, str]:
    """Return, by step, why a step must not be removed; steps that may be removed are left out.

    ``holders``: the holders, by step.
    """
    links = {entry.name for entry in storage.list("") if entry.link}
    found = {}
    for step in steps:
        if paths.step_folder(step) in links:
            found[step] = LINK
        elif step in holders:
            found[step] = holders[step]
        elif _manifest_and_files(storage, step)[1] is None:
            found[step] = NEWER
    return found


def remove_step(storage: Storage, step: int) -> tuple[str, ...] | None:
    """Remove a step. Return the names of foreign files in its folder, which stay; None if the complete step stays.

    A step stays if this allranks cannot read its manifest, or if a reader has just created a hold on it. Raises
    StorageError if its folder is a symbolic link.
    """
    data, named = _manifest_and_files(storage, step)
    if named is None:
        return None
    storage.delete(paths.manifest_path(step))
    if step in holds.held_steps(storage):
        if data:
            storage.put(paths.manifest_path(step), data)
        return None
    ours, others = split_removable_names(storage.list(paths.step_folder(step)), named)
    remove_files(storage, step, ours)
    return others


def reduce_step(storage: Storage, step: int, kept_items: Collection[str]) -> bool:
    """Remove everything of a step except these items. Returns False, and changes nothing, if a reader has just held it.

    A manifest of the remaining items replaces that of the step. Then the files that it does not name are removed.
    Raises AllranksError if the step lacks one of the items.
    """
    path = paths.manifest_path(step)
    before, data = inventory.load_manifest(storage, step), storage.get(path, most=limits.metadata_limit())
    if lacking := set(kept_items) - items.items_in(before):
        told = ", ".join(map(repr, sorted(lacking)))
        raise AllranksError(
            f"step {step} of {storage.url} has no item {told}: nothing of this step is removed. Give "
            "one of the items that the step has.",
            step=step,
        )
    after = items.reduce_manifest(before, kept_items)
    if after.files != before.files or after.leaves.keys() != before.leaves.keys() or after.values != before.values:
        storage.put(path, manifest_encode.encode_manifest(after), replace=True)
        if step in holds.held_steps(storage):
            storage.put(path, data, replace=True)
            return False
    named = {file.name for file in after.files}
    ours, _ = split_removable_names(storage.list(paths.step_folder(step)), named)
    remove_files(storage, step, [name for name in ours if name not in named])
    return True


def remove_files(storage: Storage, step: int, names: Iterable[str]) -> None:
    """Remove files of a step's folder, and then the folder if it is empty."""
    folder = paths.step_folder(step)
    for name in names:
        storage.delete(f"{folder}/{name}")
    storage.remove_folder(folder)


def remove_memory_manifest(storage: Storage) -> None:
    """Remove the manifest of the step in memory from a run. A file of another program with this name stays."""
    if not inventory.has_foreign_memory_file(storage):
        storage.delete(paths.MEMORY)


def remove_run(storage: Storage) -> tuple[str, ...]:
    """Remove all steps of a run, its fences, holds and leftovers, and its folder. Return the names that stay."""
    stay: list[str] = []
    for entry in storage.list(""):
        step = paths.parse_step_folder(entry.name)
        if step is not None and entry.size is None:
            left = (entry.name,) if entry.link else remove_step(storage, step)
            stay += [entry.name] if left is None else [f"{entry.name}/{name}" for name in left]
    remove_memory_manifest(storage)
    for folder, is_ours in ((paths.HOLDS, paths.parse_hold_name), (paths.FENCES, paths.parse_fence_name)):
        entries = storage.list(folder)
        for entry in entries:
            if is_ours(entry.name) is not None and entry.size is not None:
                storage.delete(f"{folder}/{entry.name}")
        if entries:
            storage.remove_folder(folder)
    known = {name.partition("/")[0] for name in stay}
    return (*stay, *(entry.name for entry in storage.list("") if entry.name not in known))


def remove_replaced(storage: Storage, step: int) -> None:
    """Remove the shard files of earlier saves of a step that was saved again."""
    nonce = inventory.load_manifest(storage, step).nonce
    named = [(entry.name, paths.parse_shard_file(entry.name)) for entry in storage.list(paths.step_folder(step))]
    remove_files(storage, step, [name for name, said in named if said and not nonce.startswith(said.nonce)])


def _manifest_and_files(storage: Storage, step: int) -> tuple[bytes, tuple[str, ...] | None]:
    """Return the bytes of a step's manifest, and the files that it names.

    The files are () if the manifest is damaged or missing, and None if this allranks cannot read it.
    """
    try:
        data = storage.get(paths.manifest_path(step), most=limits.metadata_limit())
    except NotThere:
        return b"", ()
    except (NotAFile, Unsafe):
        return b"", None
    return data, manifest_decode.named_files(data)


@dataclass(frozen=True, slots=True)
class LeftoverFiles:
    """Files of a step's folder that no manifest names.

    ``age``: the seconds since the folder last changed; None if not known. ``fills_folder``: there is no other file.
    """

    step: int
    names: tuple[str, ...]
    bytes: int
    age: float | None
    fills_folder: bool


@dataclass(frozen=True, slots=True)
class StepRemoval:
    """The effect of removing a step.

    ``bytes``: the bytes that are freed. ``foreign``: other programs' files, which stay.
    """

    step: int
    bytes: int
    foreign: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LeftoverChoice:
    """Leftover files to ``remove``, because they are old enough, and to ``spare``, because they are newer or of unknown
    age.
    """

    remove: tuple[LeftoverFiles, ...]
    spare: tuple[LeftoverFiles, ...]


def find_leftover_files(step_folder: StepFolder, *, now_seconds: float) -> LeftoverFiles | None:
    """Return the leftover files of a folder; None if there are none. Files that are not allranks' are ignored.

    ``now_seconds``: seconds since 1970. If the manifest cannot be read, it is not known which files it names, and all
    of them stay. Files behind a symbolic link stay, too.
    """
    if step_folder.state in ("damaged", "newer") or step_folder.link:
        return None
    named = {file.name for file in step_folder.manifest.files} if step_folder.manifest else set()
    mine = [
        file for file in step_folder.files if file.size is not None and _is_ours(file.name) and file.name not in named
    ]
    if not mine and (step_folder.manifest or step_folder.files):
        return None
    return LeftoverFiles(
        step_folder.step,
        tuple(file.name for file in mine),
        sum(file.size or 0 for file in mine),
        None if step_folder.last_change_time is None else max(now_seconds - step_folder.last_change_time, 0.0),
        step_folder.state == "unfinished" and len(mine) == len(step_folder.files),
    )


def foreign_leftovers(step_folder: StepFolder) -> tuple[str, ...]:
    """Return the names in the folder of an unfinished save that stay when its leftovers are removed."""
    return split_removable_names(step_folder.files, ())[1] if step_folder.state == "unfinished" else ()


def split_removable_names(
    entries: Iterable[Entry], manifest_files: Iterable[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names in a step's folder to remove with the step (except the manifest), and all other names.

    ``manifest_files``: the files that the manifest names.
    """
    known = {*manifest_files}
    ours: list[str] = []
    others: list[str] = []
    for entry in entries:
        if entry.name != paths.MANIFEST:
            mine = entry.size is not None and (entry.name in known or _is_ours(entry.name))
            (ours if mine else others).append(entry.name)
    return tuple(ours), tuple(others)


def plan_step_removal(step_folder: StepFolder) -> StepRemoval:
    """Return what is removed with a complete step, and which files stay."""
    ours, others = split_removable_names(
        step_folder.files, [file.name for file in step_folder.manifest.files] if step_folder.manifest else ()
    )
    gone = {*ours, paths.MANIFEST}
    return StepRemoval(step_folder.step, sum(file.size or 0 for file in step_folder.files if file.name in gone), others)


def choose_leftovers(step_folders: Iterable[StepFolder], *, now_seconds: float, older_than: float) -> LeftoverChoice:
    """Choose the leftover files to remove: those that have not changed for ``older_than`` seconds.

    ``now_seconds``: seconds since 1970.
    """
    left = [
        one for one in (find_leftover_files(each, now_seconds=now_seconds) for each in step_folders) if one is not None
    ]
    old = [one.age is not None and one.age >= older_than for one in left]
    return LeftoverChoice(tuple(compress(left, old)), tuple(compress(left, map(not_, old))))


def _is_ours(name: str) -> bool:
    return paths.parse_shard_file(name) is not None or _OF_A_PUT.fullmatch(name) is not None
