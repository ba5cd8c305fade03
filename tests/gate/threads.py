"""Ranks that are threads over one local store: enough for the protocol of lockstep, without a framework."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from allranks.gate.lockstep.monitor import LockstepMonitor
from allranks.world.base import RankIdentity, World
from allranks.world.store import LocalStore


class _Ears:
    """The failure listeners of all ranks: a ring calls everybody's listener, in the thread that rings."""

    def __init__(self) -> None:
        self.listeners: list[Callable[[], None]] = []

    def locate(self, ranks: Sequence[int]) -> Mapping[int, str]:
        return dict.fromkeys(ranks, "at data.py:41 in next_batch")

    def wake(self) -> None:
        for heard in list(self.listeners):
            heard()

    def on_wake(self, heard: Callable[[], None]) -> None:
        self.listeners.append(heard)
        heard()


def pause() -> None:
    """Let other ranks go on."""
    time.sleep(0.01)


def run(size: int, program: Callable[[LockstepMonitor], Any], *, timeout: float = 30.0) -> list[Any]:
    """Run ``program(monitor)`` on every rank; return results, or the exceptions that were raised, in rank order."""
    store, ears = LocalStore(), _Ears()
    hosts = tuple(f"host-{rank}" for rank in range(size))

    def live(rank: int) -> Any:
        world = World(RankIdentity(rank, size, 0, hosts, "simulated"), store, timeout=timeout, listener=ears)
        monitor = LockstepMonitor(world)
        try:
            return program(monitor)
        except Exception as error:
            return error
        finally:
            for (
                sequence
            ) in monitor.sequences.values():  # else the monitor's thread would end this process with the verdict
                sequence.error_raised = True

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(live, range(size)))
