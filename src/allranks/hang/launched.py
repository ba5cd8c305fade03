"""Watch a rank under ``allranks run`` if its program does not call ``allranks.init()``.

The watch starts when the agent sees that the program has joined the other ranks through its framework. On one host it
uses nothing of that framework: its store is a folder beside the launcher's socket. So a program may destroy its process
group, create another one, or end first, and no rank has to serve the store for the others. On several hosts, its store
is the framework's, and the watch ends with that store.

The watch ends with the main thread. The launcher reports a rank that does not exit after that. ``allranks.init()``
replaces this watch.
"""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from allranks import agent
from allranks.errors import StoreError
from allranks.failure import Failure
from allranks.hang import start
from allranks.launch.placement import Placement
from allranks.world import departures
from allranks.world.base import RankIdentity, World
from allranks.world.failure_listener import WakeUp
from allranks.world.files import FileStore
from allranks.world.signed_store import signed_store
from allranks.world.store import KeyValueStore

# Seconds between two looks for a ring.
_POLL = 0.2


class PolledStore:
    """A key-value store in which a thread can wait for a key without a deadline, by polling."""

    def __init__(self, store: KeyValueStore) -> None:
        self.set, self.get, self.wait, self.claim = store.set, store.get, store.wait, store.claim
        self.add, self.delete, self.list = store.add, store.delete, store.list
        self._over = threading.Event()

    def hear(self, key: str) -> bool:
        """Wait for a key without a deadline; return True when it is set, and False after ``stop``."""
        while not self._over.is_set():
            if self.get(key) is not None:
                return True
            self._over.wait(_POLL)
        return False

    def stop(self) -> None:
        self._over.set()


class LauncherListener:
    """The listener for failures and wake-ups of the hang watch, if the launcher handles the ends of ranks."""

    def __init__(self, store: PolledStore, rank: int, placement: Placement) -> None:
        self._store, self._rank, self._here = store, rank, placement.ranks
        self._bell = WakeUp(store)
        self._heard: list[Callable[[], None]] = []
        self._farewells: list[Callable[[], None]] = []
        self._thread = threading.Thread(target=self._listen, name="allranks-listener", daemon=True)

    @property
    def near(self) -> Mapping[int, int]:
        """The process ids of the other ranks of this host, by rank."""
        pids = {int(key.removeprefix("pid/")): int(pid) for key, pid in FileStore(store_folder()).list("pid/").items()}
        return {rank: pid for rank, pid in pids.items() if rank != self._rank and rank in self._here}

    def locate(self, ranks: Sequence[int]) -> Mapping[int, str]:
        del ranks
        return {}

    def wake(self) -> None:
        """Wake the listening threads of every rank."""
        self._bell.wake()

    def on_wake(self, heard: Callable[[], None]) -> None:
        """Call ``heard`` now, and after every wake-up."""
        self._heard.append(heard)
        if not self._thread.is_alive():
            self._thread.start()

    def before_end(self, finish: Callable[[], object]) -> Callable[[], None]:
        """Register ``finish`` to be called when the program ends without an error; return a function to undo this."""
        undo: Callable[[], None] = agent.load().before_end(finish)
        return undo

    def end_all(self, failure: Failure) -> None:
        """End the job because of this failure of any rank."""
        agent.load().report_peer_failure(asdict(failure))

    def at_end(self, farewell: Callable[[], None]) -> None:
        """Register ``farewell`` to be called when the main thread has ended."""
        self._farewells.append(farewell)

    def report(self, kind: str, **fields: Any) -> None:
        """Act on a message of this rank's agent: ``failed`` (a rank has failed) or ``left`` (this rank has ended)."""
        if kind == "failed":
            _mark_departure(self._store, int(fields["failure"]["rank"]), f"has failed: {fields['failure']['what']}")
        elif kind == "left":
            _mark_departure(self._store, self._rank, f"has left (exit code {fields.get('exit_code', 0)})")
            self.stop()

    def stop(self) -> None:
        """End the watch and join its thread."""
        self._store.stop()
        for farewell in self._farewells:
            farewell()
        if self._thread.is_alive():
            self._thread.join()

    def _listen(self) -> None:
        try:
            while self._call_all() and self._bell.hear():
                continue
        except StoreError:
            return  # the launcher has ended, and so will this rank

    def _call_all(self) -> bool:
        for heard in self._heard:
            heard()
        return True


def begin_watch(backend: str) -> None:
    """Watch this rank, unless ``allranks.init()`` does so or the user wants no watch.

    The agent must call this once in each process.
    """
    rank, host = int(os.environ["ALLRANKS_RANK"]), os.environ["ALLRANKS_HOST"]
    placement = Placement.from_text(os.environ["ALLRANKS_HOSTS"], host=int(os.environ["ALLRANKS_HOST_RANK"]))
    hosts = tuple(placement.hosts[placement.host_of(other)] for other in range(placement.size))
    store = PolledStore(_store_of(placement, backend))
    listener = LauncherListener(store, rank, placement)
    local_rank = rank - placement.ranks.start
    world = World(RankIdentity(rank, placement.size, local_rank, hosts, backend), store, listener=listener)
    if start.substitute(world, listener, listener.stop):
        agent.load().listen(rank, host, listener.report)


def _store_of(placement: Placement, backend: str) -> KeyValueStore:
    """Return the store of the watch: a folder, which the ranks of several hosts do not share, or the framework's."""
    if len(placement.hosts) == 1:
        return FileStore(store_folder())
    return signed_store(importlib.import_module(f"allranks.world.{backend}").connect(), os.environ)


def store_folder() -> Path:
    """Return the folder of the store. The launcher removes the folder together with its socket."""
    return Path(f"{os.environ['ALLRANKS_CONTROL']}.watch")


def _mark_departure(store: KeyValueStore, rank: int, why: str) -> None:
    try:
        departures.mark_ended(store, rank, why)
    except StoreError:
        return  # the launcher has ended: nobody reads it
