"""Set how long the launchers of a job's hosts wait for each other."""

from __future__ import annotations

from dataclasses import dataclass

# The exit code of a job whose host 0 is lost: as if its ranks were killed, as with any other host.
LOST = 137


@dataclass(frozen=True, slots=True)
class HostLimits:
    """Time limits between the launchers of a job, in seconds.

    - ``ping``: between two signs of life of a launcher.
    - ``doubt``: a host that is silent for so long may be the cause of a failure elsewhere.
    - ``silence``: a host that is silent for so long is lost.
    - ``joining``: how long the launchers may take to find each other.
    - ``comeback``: the same before a restart.
    - ``last_call``: if fewer hosts than possible are enough, how long to wait for another one.
    - ``restart_call``: the same before a restart.
    - ``results``: after the end of the ranks, how long to wait for what the other launchers report.
    """

    ping: float = 1.0
    doubt: float = 3.0
    silence: float = 15.0
    joining: float = 600.0
    comeback: float = 60.0
    last_call: float = 30.0
    restart_call: float = 10.0
    results: float = 12.0


DEFAULT = HostLimits()
