"""Define the heartbeat: what a rank reports of its training thread to the store, or as the answer to a query."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from allranks.launch.hang_limits import STEP
from allranks.world.progress import CHECKPOINTS, PYTHON, WAITS

# Phases that may take very long in one call, and are at work while their process is.
PATIENT = CHECKPOINTS | {"compile"}
# A process that uses fewer cores, and moves fewer bytes a second, does not work.
_AT_WORK_CORES, _AT_WORK_BYTES = 0.1, 100e3


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The state of the training thread of one rank, from its progress stamps, its Python stack and the kernel.

    - ``when``: the Unix time on the rank's host.
    - ``phase`` and ``what``: a word of ``world.progress``, and the call in that phase.
    - ``where``: the line of the user's code.
    - ``kernel`` and ``before``: the system call of the thread, and the call before.
    - ``order``: how many collectives and exchanges the rank has entered; 0 if it waits in one that is not counted.
    - ``since``: for how many seconds the rank has been in this call.
    - ``still``: for how many seconds the rank has shown no sign of progress.
    - ``alike``: for how many seconds every snapshot has found the rank at the same place.
    - ``cores`` and ``io``: the CPU cores and the bytes a second that the process uses.
    - ``pace`` and ``noise``: the median of the busy seconds a step, 0 if unknown; and the error of ``pace``.
    - ``group``: the name of the torch group in which the rank waits, if that is not the group of all ranks.
    - ``peer``: the rank with which it moves data (send, recv); -1 for none.
    - ``limit``: after how many seconds its exchange times out; 0 if unknown.
    - ``lockstep``: whether its collectives are compared with those of the other ranks.
    - ``stage``: the stage of the training, by its name in `allranks.launch.hang_limits`.
    """

    rank: int
    when: float
    phase: str = PYTHON
    what: str = ""
    where: str = ""
    kernel: str = ""
    before: str = ""
    step: int | None = None
    order: int = 0
    since: float = 0.0
    still: float = 0.0
    alike: float = 0.0
    cores: float = 0.0
    io: float = 0.0
    pace: float = 0.0
    noise: float = 0.0
    group: str = ""
    peer: int = -1
    limit: float = 0.0
    lockstep: bool = False
    stage: str = STEP.name

    @property
    def waits(self) -> bool:
        """Whether the rank waits for other ranks."""
        return self.phase in WAITS

    @property
    def seconds_in_place(self) -> float:
        """For how many seconds the rank has been at its place in the code, though its process may be active."""
        return self.alike if self.alike > self.still else self.still

    @property
    def is_receiving(self) -> bool:
        """Whether the call with the rank's ``peer`` is a receive."""
        return "recv" in self.what

    def at_work(self, limit: float) -> bool:
        """Return whether the rank still does something, after the others have waited for it for ``limit`` seconds."""
        if self.phase in PATIENT:
            return self.cores >= _AT_WORK_CORES or self.io >= _AT_WORK_BYTES
        return max(self.still, self.alike) < limit / 2

    def to_json(self) -> dict[str, Any]:
        return {name: round(value, 3) if isinstance(value, float) else value for name, value in asdict(self).items()}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Heartbeat:
        return cls(**fields)
