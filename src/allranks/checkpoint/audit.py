"""Which steps of a run are whole as far as their manifests say, and what a manifest says of a file."""

from __future__ import annotations

from collections.abc import Iterator

from allranks.checkpoint import manifest_decode, paths
from allranks.checkpoint.dtypes import DTYPES
from allranks.checkpoint.manifest import Manifest, Run
from allranks.errors import Damaged, NotThere
from allranks.storage.base import Storage


def steps(storage: Storage) -> tuple[int, ...]:
    """Return the steps that have a manifest, in ascending order."""
    named = [paths.step_of(entry.name) for entry in storage.list("") if entry.size is None]
    found = sorted(step for step in named if step is not None)
    return tuple(step for step in found if storage.size(paths.manifest_path(step)) is not None)


def load(storage: Storage, step: int) -> Manifest:
    """Return the manifest of a run's step. Raises NotThere, NewerFormat, and Damaged where it is not sound, or of
    another step."""
    folder = paths.step_folder(step)
    manifest = load_folder(storage, folder)
    if manifest.step != step:
        raise Damaged(
            f"{storage.url}/{folder} holds step {manifest.step}: the folder was copied or renamed.",
            path=paths.manifest_path(step),
            step=step,
            remedy=f"Rename it to {paths.step_folder(manifest.step)}; or allranks.load reads the folder as it is.",
        )
    return manifest


def load_folder(storage: Storage, folder: str) -> Manifest:
    """Return the manifest in a folder ("": the top), whatever it is called. Raises NotThere, NewerFormat, Damaged."""
    path = f"{folder}/{paths.MANIFEST}" if folder else paths.MANIFEST
    return manifest_decode.decode(storage.get(path), path=f"{storage.url}/{path}")


def in_memory(storage: Storage) -> Manifest:
    """Return the manifest of the step that is in the memory of the hosts of a run's job (docs/checkpoint-memory.md).

    Raises NotThere, NewerFormat, Damaged.
    """
    return manifest_decode.decode(storage.get(paths.MEMORY), path=f"{storage.url}/{paths.MEMORY}")


def is_current(storage: Storage, manifest: Manifest, folder: str | None = None) -> bool:
    """Return whether a step is still what its manifest says: not removed since, saved over, or reduced to some items.

    ``folder`` as in ``Reader``. Raises StorageError, Damaged, NewerFormat.
    """
    try:
        there = load(storage, manifest.step) if folder is None else load_folder(storage, folder.rstrip("/"))
    except NotThere:
        return False
    return there.nonce == manifest.nonce and there.files == manifest.files


def leaves_at(manifest: Manifest, file: int, begin: int, end: int) -> tuple[str, ...]:
    """Return the leaves of which some bytes lie between ``begin`` and ``end`` of a file, in the manifest's order."""
    found = []
    for path, leaf in manifest.leaves.items():
        item = DTYPES[leaf.dtype].size
        if any(
            begin < at + run.first.extent.size * item and at < end for run in leaf.runs for at in _begins_in(run, file)
        ):
            found.append(path)
    return tuple(found)


def _begins_in(run: Run, file: int) -> Iterator[int]:
    """Yield where the shards of a run that are in a file begin."""
    if run.file_step:
        k, rest = divmod(file - run.first.file, run.file_step)
        if not rest and 0 <= k < run.count:
            yield run.first.begin + k * run.begin_step
    elif run.first.file == file:
        yield from (run.first.begin + k * run.begin_step for k in range(run.count))
