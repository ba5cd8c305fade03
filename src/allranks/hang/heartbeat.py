"""Define the heartbeat: what a rank reports of its training thread, to the store and to a query."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from allranks.world.progress import PYTHON, WAITS

# Phases that may take very long in one call, and are at work while their process is.
PATIENT = frozenset(["compile", "save", "restore", "load"])
# A process that uses fewer cores, and moves fewer bytes a second, does not work.
_AT_WORK_CORES, _AT_WORK_BYTES = 0.1, 100e3


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The state of the training thread of one rank, by its stamps, its Python stack and the kernel.

    ``phase`` is a word of ``world.progress`` and ``what`` the call in it; ``where`` is the user's line; ``kernel`` is
    the system call of the thread, ``before`` the call before. ``order`` says how far the rank is: how many collectives
    and exchanges it has entered; 0 where it waits in one that is not counted. In seconds: ``since``, how long in this
    call; ``still``, how long without any sign of progress; ``alike``, how long every snapshot has found it at the same
    place. ``group`` is the name of torch's group in which the rank waits, if that is not all ranks; ``peer`` is the
    rank with which it moves data (send, recv), -1 for none; ``limit`` is when its exchange times out, 0 where unknown;
    ``lockstep``: its collectives are compared. ``cores`` and ``io`` (bytes a second) are what the process uses.
    ``pace`` is the median of its busy seconds a step, 0 where unknown, ``noise`` the error of that. ``when`` is Unix
    time on the rank's host.
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

    @property
    def waits(self) -> bool:
        """Whether the rank waits for others."""
        return self.phase in WAITS

    @property
    def seconds_in_place(self) -> float:
        """How long the rank has been where it is, in seconds, though its process may do something meanwhile."""
        return self.alike if self.alike > self.still else self.still

    @property
    def is_receiving(self) -> bool:
        """Whether the call with one ``peer`` is a receive."""
        return "recv" in self.what

    def at_work(self, limit: float) -> bool:
        """Return whether the rank does something, though the others wait for it for ``limit`` seconds."""
        if self.phase in PATIENT:
            return self.cores >= _AT_WORK_CORES or self.io >= _AT_WORK_BYTES
        return max(self.still, self.alike) < limit / 2

    def to_json(self) -> dict[str, Any]:
        return {name: round(value, 3) if isinstance(value, float) else value for name, value in asdict(self).items()}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Heartbeat:
        return cls(**fields)
