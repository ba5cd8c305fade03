"""What a person asked for: one command, so many ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Style = Literal["default", "torchrun", "slurm", "ompi"]
STYLES: tuple[str, ...] = get_args(Style)


@dataclass(frozen=True, slots=True)
class Job:
    """A command to run as ``ranks`` processes on this machine.

    ``devices`` is the number of virtual CPU devices per rank (None: as JAX finds them); ``timeout`` and ``grace`` are
    seconds (the whole job may take ``timeout``; ranks have ``grace`` to end after SIGTERM); ``style`` is the launcher
    whose variables the ranks see; ``zygote`` allows ranks to be forked from a process that has imported the frameworks.
    """

    command: tuple[str, ...]
    ranks: int
    devices: int | None = None
    timeout: float | None = None
    log_dir: str | None = None
    style: Style = "default"
    zygote: bool = True
    grace: float = 1.0
