"""List the steps of a run, load their manifests, and report the state of each step's folder."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Literal

from allranks.checkpoint import manifest_decode, manifest_document, paths
from allranks.checkpoint.dtypes import DTYPES
from allranks.checkpoint.manifest import Manifest, ShardRun
from allranks.errors import Damaged, NewerFormat, NotAFile, NotThere, Unsafe
from allranks.storage import limits
from allranks.storage.base import Entry, Storage

_AT_ONCE = 8
State = Literal["whole", "damaged", "newer", "unfinished"]


def complete_steps(storage: Storage) -> tuple[int, ...]:
    """Return the steps that have a manifest, in ascending order. Manifests are not read."""
    named = [paths.parse_step_folder(entry.name) for entry in storage.list("") if entry.size is None]
    found = sorted(step for step in named if step is not None)
    return tuple(step for step in found if storage.size(paths.manifest_path(step)) is not None)


def load_manifest(storage: Storage, step: int) -> Manifest:
    """Return the manifest of a step.

    Raises NotThere, NewerFormat, and Damaged for an invalid manifest or the manifest of another step.
    """
    folder = paths.step_folder(step)
    manifest = load_folder(storage, folder)
    if manifest.step != step:
        raise Damaged(
            f"{storage.url}/{folder} holds step {manifest.step}: expected step {step}. The folder was copied or "
            "renamed.",
            path=paths.manifest_path(step),
            step=step,
            remedy=f"Rename the folder to {paths.step_folder(manifest.step)}, or load the folder with allranks.load.",
        )
    return manifest


def load_folder(storage: Storage, folder: str) -> Manifest:
    """Return the manifest in a folder of any name ("": the top). Raises NotThere, NewerFormat, Damaged."""
    path = f"{folder}/{paths.MANIFEST}" if folder else paths.MANIFEST
    return manifest_decode.decode_manifest(_manifest_bytes(storage, path), path=f"{storage.url}/{path}")


def load_from_memory(storage: Storage) -> Manifest:
    """Return the manifest of the step that the hosts of a run's job hold in memory (docs/checkpoint-memory.md).

    Raises NotThere, NewerFormat, Damaged.
    """
    return manifest_decode.decode_manifest(_manifest_bytes(storage, paths.MEMORY), path=f"{storage.url}/{paths.MEMORY}")


def has_foreign_memory_file(storage: Storage) -> bool:
    """Return whether the file of the step in memory exists, and is of another program."""
    try:
        return not manifest_document.is_allranks_manifest(_manifest_bytes(storage, paths.MEMORY))
    except NotThere:
        return False
    except Damaged:  # it is not a file
        return True


def _manifest_bytes(storage: Storage, path: str) -> bytes:
    """Return the content of a manifest. Raises NotThere, and Damaged for a pipe, a folder, or too many bytes."""
    try:
        return storage.get(path, most=limits.metadata_limit())
    except (NotAFile, Unsafe) as error:
        raise Damaged(str(error), path=path, remedy="Restore another step.") from error


def is_current(storage: Storage, manifest: Manifest, folder: str | None = None) -> bool:
    """Return whether a step still has this manifest: it was not removed, saved again, or reduced to some items.

    ``folder``: as in ``ChunkReader``. Raises StorageError, Damaged, NewerFormat.
    """
    try:
        there = load_manifest(storage, manifest.step) if folder is None else load_folder(storage, folder.rstrip("/"))
    except NotThere:
        return False
    return there.nonce == manifest.nonce and there.files == manifest.files


def leaves_in_byte_range(manifest: Manifest, file: int, begin: int, end: int) -> tuple[str, ...]:
    """Return the paths of leaves that have bytes between ``begin`` and ``end`` of a file, in the manifest's order."""
    found = []
    for path, leaf in manifest.leaves.items():
        item = DTYPES[leaf.dtype].size
        if any(
            begin < at + run.first.extent.size * item and at < end for run in leaf.runs for at in _begins_in(run, file)
        ):
            found.append(path)
    return tuple(found)


def _begins_in(run: ShardRun, file: int) -> Iterator[int]:
    """Yield the positions at which the run's shards in a file begin."""
    if run.file_step:
        k, rest = divmod(file - run.first.file, run.file_step)
        if not rest and 0 <= k < run.count:
            yield run.first.begin + k * run.begin_step
    elif run.first.file == file:
        yield from (run.first.begin + k * run.begin_step for k in range(run.count))


@dataclass(frozen=True, slots=True)
class StepFolder:
    """The folder of a step and its content.

    ``state`` is one of:
    - ``whole``: the manifest is valid (the other files are not checked);
    - ``damaged``: the manifest is invalid (``why`` says how);
    - ``newer``: a newer allranks has written the manifest (``why`` says so);
    - ``unfinished``: there is no manifest, so this is not a checkpoint.
    ``link``: the folder is a symbolic link.
    """

    step: int
    state: State
    files: tuple[Entry, ...]
    manifest: Manifest | None = None
    why: str = ""
    folder_modified: float | None = None
    link: bool = False

    @property
    def bytes(self) -> int:
        """The sum of the sizes of all files in the folder, in bytes."""
        return sum(file.size or 0 for file in self.files)

    @property
    def last_change_time(self) -> float | None:
        """The time of the last change in the folder, in seconds since 1970; None if it is not known."""
        times = [file.modified for file in self.files]
        known = [at for at in (*times, self.folder_modified) if at is not None]
        return None if None in times else max(known, default=None)


def survey_folders(storage: Storage) -> tuple[StepFolder, ...]:
    """Return the step folders of a run, in ascending order. Reads every manifest and no other file."""
    named = ((paths.parse_step_folder(entry.name), entry) for entry in storage.list("") if entry.size is None)
    folders = sorted(((step, entry) for step, entry in named if step is not None), key=lambda folder: folder[0])
    with ThreadPoolExecutor(_AT_ONCE) as workers:
        return tuple(workers.map(lambda folder: _inspect_folder(storage, *folder), folders))


def _inspect_folder(storage: Storage, step: int, folder: Entry) -> StepFolder:
    found = StepFolder(
        step, "whole", storage.list(paths.step_folder(step)), folder_modified=folder.modified, link=folder.link
    )
    try:
        return replace(found, manifest=load_manifest(storage, step))
    except NotThere:
        return replace(found, state="unfinished")
    except NewerFormat as error:
        return replace(found, state="newer", why=str(error))
    except Damaged as error:
        return replace(found, state="damaged", why=str(error))
