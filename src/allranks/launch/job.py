"""What a person asked for: one program, so many ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from allranks.launch.target import Target

Style = Literal["default", "torchrun", "slurm", "ompi"]
STYLES: tuple[str, ...] = get_args(Style)


@dataclass(frozen=True, slots=True)
class Job:
    """A program to run as ``ranks`` processes on this machine.

    ``devices`` is the number of virtual CPU devices per rank (None: as JAX finds them); ``timeout`` and ``grace`` are
    seconds (the whole job may take ``timeout``; ranks have ``grace`` to end after Ctrl-C or SIGTERM); ``style`` is the
    launcher whose variables the ranks see; ``zygote`` allows ranks to be forked from a process that has imported the
    frameworks. ``rendezvous_timeout`` is how many seconds ranks wait for each other in a collective (None: as the
    libraries have it), ``xla_flags`` what says so to XLA. ``guard``: the program is guarded though it
    does not import allranks; with ``guard_any_line``, ranks may start one collective from different lines.
    ``hang_after`` (seconds, 0 for never) and ``on_hang`` overrule what the program says; None: they do not.
    ``restart`` counts the starts before this one, of which ``restarts`` are allowed; ``reason`` is why it is needed.
    """

    target: Target
    ranks: int
    devices: int | None = None
    timeout: float | None = None
    style: Style = "default"
    zygote: bool = True
    grace: float = 30.0
    rendezvous_timeout: float | None = None
    xla_flags: tuple[str, ...] = ()
    hang_after: float | None = None
    guard: bool = False
    guard_any_line: bool = False
    on_hang: str | None = None
    restart: int = 0
    restarts: int = 0
    reason: str = ""
