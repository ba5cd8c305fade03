"""The memory of the hosts of a world: folders in tmpfs, of which each rank serves its host's to the ranks of others."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Protocol

from allranks.checkpoint.memory import folder, placement
from allranks.checkpoint.memory.peers import Memory, Remote, Server, addresses_of_this_host
from allranks.errors import StorageError
from allranks.storage.base import Storage
from allranks.world.base import World


class Hosts(Protocol):
    """The memory of the hosts of a world, as one rank sees it; ``mine`` is its own host's."""

    mine: Storage

    def of(self, host: str) -> Memory:
        """Return the memory of a host."""

    def close(self) -> None:
        """Serve it no more to other ranks."""


class RealHosts:
    """The hosts' memory for the run at ``place``. **Every rank must make one.**

    Raises StorageError on every rank where one of them has no memory to use.
    """

    mine: Storage

    def __init__(self, world: World, place: str) -> None:
        self._world = world
        self._server: Server | None = None
        self._remotes: dict[str, Remote] = {}
        several = len({*world.hosts}) > 1
        secret, place = world.broadcast([os.urandom(32).hex(), place], name="memory")
        self._secret, error = bytes.fromhex(secret), ""
        try:
            self.mine = folder.open_folder(place, world.host, environ=os.environ)
            self._server = Server(self.mine, secret=self._secret_of(world.rank)) if several else None
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

    def of(self, host: str) -> Memory:
        world = self._world
        if host == world.host:
            return self.mine
        if host not in self._remotes:
            rank = placement.server(world.rank, host, world.hosts)
            _, addresses, port = self._peers[rank]
            self._remotes[host] = Remote(rank, host, [(one, port) for one in addresses], secret=self._secret_of(rank))
        return self._remotes[host]

    def _secret_of(self, rank: int) -> bytes:
        """Return what only this job knows, another for each rank: at an address that several hosts have (loopback),
        another rank of the job may answer."""
        return self._secret + str(rank).encode()

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for one in self._remotes.values():
            one.close()
        with suppress(OSError):  # it is not empty, or another rank of this host was faster
            os.rmdir(self.mine.url)
