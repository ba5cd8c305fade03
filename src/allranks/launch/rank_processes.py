"""Keep the processes of this host's ranks: their pids and ends; observe those that are stopped, or exiting."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from allranks.launch.events import RankResumed, RankSuspended
from allranks.launch.fork_server_messages import Exited
from allranks.process import is_ending, is_suspended

PERIOD = 1.0
MOST_A_SECOND = 100  # of 300 ranks that end, a launcher on a busy host would otherwise see little else


@dataclass(slots=True)
class RankProcess:
    """The state of one rank's process: its start time, pid and end."""

    started: float = 0.0
    pid: int | None = None
    ended: Exited | None = None

    @property
    def seconds(self) -> float:
        """How many seconds the process lived; 0 if it lives, or could not be started."""
        return self.ended.when - self.started if self.ended and self.pid else 0.0


class RankProcesses(dict[int, RankProcess]):
    """The processes of this host's ranks, by rank.

    Stopped processes are observed several times in ``hang_after`` seconds, at most once a second, and less often if
    there are many.
    """

    def __init__(self, ranks: range, hang_after: float) -> None:
        super().__init__({rank: RankProcess() for rank in ranks})
        self._period = min(PERIOD, hang_after / 4) if hang_after else PERIOD
        self._due = 0.0
        self._suspended: set[int] = set()

    @property
    def pids(self) -> dict[int, int]:
        """The pids of the ranks whose processes live."""
        return {rank: one.pid for rank, one in self.items() if one.pid and not one.ended}

    def exiting(self) -> frozenset[int]:
        """Return the ranks whose processes are exiting. Other ranks may notice the exit before the fork server does."""
        return frozenset(rank for rank, pid in self.pids.items() if is_ending(pid))

    def suspensions_due(self, now: float) -> float:
        """Return when ``suspensions`` has something to do."""
        return max(self._due, now)

    def suspensions(
        self, agents: Mapping[int, int], fork_server: int, now: float
    ) -> Iterator[RankSuspended | RankResumed]:
        """Yield the ranks whose processes are newly stopped, or run again; continue the process ``fork_server``.

        ``agents`` are the pids of the Python processes below a shell or another command, by rank. Nobody has a reason
        to stop the fork server, and without it no end of a rank is seen.
        """
        if now < self._due:
            return
        self._due = now + max(self._period, len(self) / MOST_A_SECOND)
        if is_suspended(fork_server):
            os.kill(fork_server, signal.SIGCONT)
        for rank, pid in self.pids.items():
            stops = any(map(is_suspended, {pid, agents.get(rank, pid)}))
            if stops and rank not in self._suspended:
                self._suspended.add(rank)
                yield RankSuspended(rank)
            elif not stops and rank in self._suspended:
                self._suspended.discard(rank)
                yield RankResumed(rank)

    def kill_groups(self) -> None:
        """Kill the process groups of the ranks. If the kernel has killed the ranks, their children may still live."""
        for pid in self.pids.values():
            try:
                os.killpg(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
