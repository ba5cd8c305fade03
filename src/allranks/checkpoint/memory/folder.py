"""The folder of a host's memory: in a tmpfs, which outlives processes, and not the host."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path

from allranks.checkpoint import paths
from allranks.digest import digest, show
from allranks.errors import StorageError
from allranks.storage.base import BlockSource, Storage
from allranks.storage.local import LocalStorage

_VARIABLE, _DEFAULT = "ALLRANKS_MEMORY_FOLDER", "/dev/shm"  # noqa: S108


def open_folder(place: str, host: str, *, environ: Mapping[str, str]) -> LocalStorage:
    """Return the storage of this host's memory for the run at ``place``; folders are made, for this user alone.

    Raises StorageError where the folder of this user is a link, or somebody else's.
    """
    base = Path(environ.get(_VARIABLE) or _DEFAULT)
    user = base / f"allranks-{os.getuid()}"
    mine = user / f"{show(digest(place))[:16]}-{re.sub('[^A-Za-z0-9._-]', '_', host)}"
    _make(user)
    mine.mkdir(exist_ok=True)
    return _HostFolder(mine, spares=_VARIABLE not in environ)


class _HostFolder(LocalStorage):
    """A folder that only this user can open, also where it was removed meanwhile. With ``spares``, a quarter of the
    tmpfs is left to others: data loaders pass their batches through /dev/shm."""

    def __init__(self, folder: Path, *, spares: bool) -> None:
        super().__init__(folder)
        self._user, self._spares = folder.parent, spares

    def write(self, path: str, source: BlockSource) -> None:
        _make(self._user)
        about = os.statvfs(self._user)
        left = about.f_bavail * about.f_frsize - source.size
        if self._spares and left < about.f_blocks * about.f_frsize // 4:
            raise StorageError(
                f"{self._user.parent} has {left + source.size:,} bytes left, and {source.size:,} more would leave less "
                "than the quarter that is for others.",
                path=path,
                remedy=f"Name the folder of a tmpfs in {_VARIABLE}.",
            )
        super().write(path, source)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise StorageError(
            f"cannot make {folder}, for checkpoints in memory: {error.strerror}.",
            path=str(folder),
            remedy=f"Name the folder of a tmpfs in {_VARIABLE}.",
        ) from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise StorageError(
            f"{folder} is not a folder of this user alone: expected mode 0700 and owner {os.getuid()}, found "
            f"{stat.filemode(found.st_mode)} and owner {found.st_uid}.",
            path=str(folder),
            remedy=f"Remove it, or name another folder in {_VARIABLE}.",
        )


def files_in(storage: Storage) -> list[str]:
    """Return the paths of all files of ours in a host's memory."""
    folders = [entry.name for entry in storage.list("") if entry.size is None and not entry.link]
    return [
        f"{folder}/{entry.name}"
        for folder in folders
        if paths.step_of(folder) is not None
        for entry in storage.list(folder)
        if paths.shard_file_of(entry.name) is not None
    ]
