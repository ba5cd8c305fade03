"""Keep checkpoints in the hosts' memory: a tmpfs folder on each host, which each rank serves to ranks of other hosts.

A tmpfs survives the processes of its host, but not the host.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from allranks.checkpoint import paths
from allranks.checkpoint.memory import placement
from allranks.checkpoint.memory.peers import HostMemory, MemoryServer, RemoteMemory
from allranks.digest import digest, show
from allranks.errors import StorageError
from allranks.storage.base import BlockSource, Storage
from allranks.storage.local import LocalStorage
from allranks.world.base import World
from allranks.world.processes import addresses_of_this_host

_VARIABLE, _DEFAULT = "ALLRANKS_MEMORY_FOLDER", "/dev/shm"  # noqa: S108


class HostMemories(Protocol):
    """Access to the checkpoint memory of every host, from one rank. ``mine``: the memory of this rank's host."""

    mine: Storage

    def memory_of_host(self, host: str) -> HostMemory:
        """Return the checkpoint memory of the host with this name."""

    def close(self) -> None:
        """Stop serving this host's memory to other ranks."""


class ServedHostMemories:
    """Access to the hosts' memory for the run at ``place``; it also serves this host's. **Every rank must make one.**

    Raises StorageError on every rank if one rank has no usable memory.
    """

    mine: Storage

    def __init__(self, world: World, place: str) -> None:
        self._world = world
        self._server: MemoryServer | None = None
        self._remotes: dict[str, RemoteMemory] = {}
        several = len({*world.hosts}) > 1
        secret, place = world.broadcast([os.urandom(32).hex(), place], name="memory")
        self._secret, error = bytes.fromhex(secret), ""
        try:
            self.mine = open_folder(place, world.host, environ=os.environ)
            self._server = MemoryServer(self.mine, secret=self._secret_of(world.rank)) if several else None
        except (StorageError, OSError) as found:
            error = str(found)
        addresses = addresses_of_this_host(os.environ) if several else ()
        port = self._server.port if self._server else 0
        self._peers = world.all_gather([error, list(addresses), port], name="memory")
        for rank, (words, *_) in enumerate(self._peers):
            if words:
                if self._server is not None:
                    self._server.close()
                raise StorageError(f"rank {rank} (host {world.hosts[rank]}): {words}")

    def memory_of_host(self, host: str) -> HostMemory:
        world = self._world
        if host == world.host:
            return self.mine
        if host not in self._remotes:
            rank = placement.serving_rank(world.rank, host, world.hosts)
            _, addresses, port = self._peers[rank]
            self._remotes[host] = RemoteMemory(
                rank, host, [(one, port) for one in addresses], secret=self._secret_of(rank)
            )
        return self._remotes[host]

    def _secret_of(self, rank: int) -> bytes:
        """Return the secret that clients of a rank must know. Only this job knows it.

        Ranks have different secrets. Several hosts may have the same address (loopback), so that another rank may
        answer.
        """
        return self._secret + str(rank).encode()

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for one in self._remotes.values():
            one.close()
        with suppress(OSError):  # it is not empty, or another rank of this host has removed it
            os.rmdir(self.mine.url)


def open_folder(place: str, host: str, *, environ: Mapping[str, str]) -> LocalStorage:
    """Return the storage for this host's memory of the run at ``place``. Creates the folders, for this user only.

    Raises StorageError if this user's folder is a link, or belongs to another user.
    """
    base = Path(environ.get(_VARIABLE) or _DEFAULT)
    user = base / f"allranks-{os.getuid()}"
    mine = user / f"{show(digest(place))[:16]}-{re.sub('[^A-Za-z0-9._-]', '_', host)}"
    _make_folder(user)
    mine.mkdir(exist_ok=True)
    return _HostFolder(mine, spares=_VARIABLE not in environ)


class _HostFolder(LocalStorage):
    """A folder that only this user can open. It is created again if it was removed in the meantime.

    ``spares``: leave a quarter of the tmpfs to other programs, because data loaders pass their batches through
    /dev/shm.
    """

    def __init__(self, folder: Path, *, spares: bool) -> None:
        super().__init__(folder)
        self._user, self._spares = folder.parent, spares

    def write(self, path: str, source: BlockSource) -> None:
        _make_folder(self._user)
        about = os.statvfs(self._user)
        left = about.f_bavail * about.f_frsize - source.size
        if self._spares and left < about.f_blocks * about.f_frsize // 4:
            raise StorageError(
                f"{self._user.parent} has {left + source.size:,} bytes free: {source.size:,} bytes more "
                "would leave less "
                "than a quarter for other programs.",
                path=path,
                remedy=f"Set {_VARIABLE} to a folder of another tmpfs.",
            )
        super().write(path, source)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise StorageError(
            f"cannot create {folder} for checkpoints in memory: {error.strerror}.",
            path=str(folder),
            remedy=f"Set {_VARIABLE} to a folder of another tmpfs.",
        ) from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise StorageError(
            f"{folder} is not private to this user: expected mode 0700 and owner {os.getuid()}, found "
            f"{stat.filemode(found.st_mode)} and owner {found.st_uid}.",
            path=str(folder),
            remedy=f"Remove the folder, or set {_VARIABLE} to another folder.",
        )


def list_shard_files(storage: Storage) -> list[str]:
    """Return the paths of all shard files in a host's memory."""
    folders = [entry.name for entry in storage.list("") if entry.size is None and not entry.link]
    return [
        f"{folder}/{entry.name}"
        for folder in folders
        if paths.parse_step_folder(folder) is not None
        for entry in storage.list(folder)
        if paths.parse_shard_file(entry.name) is not None
    ]
