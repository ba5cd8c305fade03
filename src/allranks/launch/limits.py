"""Define the phases of a job (`allranks.launch.supervise`) and how long they may take."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from allranks.evidence import CauseWeight

OUT_OF_TIME = 124  # the exit code at the time limit of a job, as that of `timeout`


class Phase(enum.Enum):
    """The phase of a job. `allranks.launch.supervise` explains each phase."""

    RUNNING = "running"
    SETTLING = "settling"
    STOPPING = "stopping"
    KILLING = "killing"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Limits:
    """Time limits of a job, in seconds.

    - ``grace``: after a Ctrl-C or SIGTERM. ``crash_grace``: after a failure. ``timeout``: of the whole job.
    - ``settle``: how long to wait for the cause of a failure if a cause is known. ``doubt``: if the known failure may
      be a consequence. ``search``: if it can only be a consequence.
    - ``repeat``: within this time a second SIGTERM counts as the same one: `timeout` signals its child, then the group.
    - ``hang_after``: how long ranks may wait for others to join or to end until that is reported (0: never).
      ``end_hangs``: the job then ends.
    """

    grace: float = 30.0
    repeat: float = 1.0
    crash_grace: float = 0.75
    settle: float = 0.25
    search: float = 5.0
    doubt: float = 1.0
    join_patience: float = 1.0
    kill_patience: float = 5.0
    timeout: float | None = None
    hang_after: float = 0.0
    end_hangs: bool = False

    def patience(self, weight: CauseWeight, *, dying: bool) -> float:
        """Return how many seconds after the first failure the job waits for the cause of the failure.

        ``weight`` is the weight of the best candidate so far. ``dying``: a process is exiting now, and may have failed
        first.
        """
        if dying or weight is CauseWeight.CONSEQUENCE:
            return self.search
        return self.settle if weight is CauseWeight.CAUSE else self.doubt
