"""What is in a run's folder, step by step: checkpoints, damaged ones, newer ones, and saves that never ended."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Literal

from allranks.checkpoint import audit, paths
from allranks.checkpoint.manifest import Manifest
from allranks.errors import Damaged, NewerFormat, NotThere
from allranks.storage.base import Entry, Storage

_AT_ONCE = 8

State = Literal["whole", "damaged", "newer", "unfinished"]


@dataclass(frozen=True, slots=True)
class Found:
    """The folder of a step, and what is in it; ``link``: the folder is a symbolic link.

    ``whole``: with a sound manifest (whether its files are there and as they were is not looked at). ``damaged``: with
    a manifest that is not sound, ``newer``: with one of a newer allranks; ``why`` says so. ``unfinished``: without a
    manifest, so it is no checkpoint.
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
        """The bytes of all files in the folder."""
        return sum(file.size or 0 for file in self.files)

    @property
    def changed(self) -> float | None:
        """When anything in the folder last changed, in seconds since 1970; None where that is not known."""
        times = [file.modified for file in self.files]
        known = [at for at in (*times, self.folder_modified) if at is not None]
        return None if None in times else max(known, default=None)


def survey(storage: Storage) -> tuple[Found, ...]:
    """Return what there is, in ascending order of the steps. Reads every manifest and no other file."""
    named = ((paths.step_of(entry.name), entry) for entry in storage.list("") if entry.size is None)
    folders = sorted(((step, entry) for step, entry in named if step is not None), key=lambda folder: folder[0])
    with ThreadPoolExecutor(_AT_ONCE) as workers:
        return tuple(workers.map(lambda folder: _look(storage, *folder), folders))


def _look(storage: Storage, step: int, folder: Entry) -> Found:
    found = Found(
        step, "whole", storage.list(paths.step_folder(step)), folder_modified=folder.modified, link=folder.link
    )
    try:
        return replace(found, manifest=audit.load(storage, step))
    except NotThere:
        return replace(found, state="unfinished")
    except NewerFormat as error:
        return replace(found, state="newer", why=str(error))
    except Damaged as error:
        return replace(found, state="damaged", why=str(error))
