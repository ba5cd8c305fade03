"""Describe what `allranks run` is to launch: a target (script, module, function, command) and its options."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

Style = Literal["default", "torchrun", "slurm", "ompi"]
STYLES: tuple[str, ...] = get_args(Style)


@dataclass(frozen=True, slots=True)
class Script:
    """The target ``python path arguments...``."""

    path: str
    arguments: tuple[str, ...] = ()

    def argv(self, python: str) -> tuple[str, ...]:
        return (python, self.path, *self.arguments)


@dataclass(frozen=True, slots=True)
class Module:
    """The target ``python -m name arguments...``."""

    name: str
    arguments: tuple[str, ...] = ()

    def argv(self, python: str) -> tuple[str, ...]:
        return (python, "-m", self.name, *self.arguments)


@dataclass(frozen=True, slots=True)
class Call:
    """A call of the function ``"package.module:name"`` with the arguments in a JSON list. The result is dropped."""

    function: str
    arguments: str = "[]"

    def argv(self, python: str) -> tuple[str, ...]:
        return (python, "-c", CALL, self.function, self.arguments)


@dataclass(frozen=True, slots=True)
class Command:
    """Any command. Its first word is searched for in PATH."""

    arguments: tuple[str, ...]

    def argv(self, python: str) -> tuple[str, ...]:  # noqa: ARG002 - the same face as the others
        return self.arguments


Target = Script | Module | Call | Command
KINDS: dict[str, Callable[..., Target]] = {kind.__name__: kind for kind in get_args(Target)}
CALL = """\
import importlib, json, sys
module, name = sys.argv[1].split(":")
getattr(importlib.import_module(module), name)(*json.loads(sys.argv[2]))
"""


def to_json(target: Target) -> str:
    """Encode a target as one line of JSON."""
    return json.dumps({"kind": type(target).__name__, **asdict(target)})


def from_json(text: str) -> Target:
    """Decode the target that ``to_json`` encoded."""
    fields: dict[str, Any] = json.loads(text)
    kind = KINDS[fields.pop("kind")]
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()})


def target_of(arguments: Sequence[str], *, pythons: Sequence[str]) -> Target:
    """Parse a command line into a target.

    ``train.py ...`` and ``python train.py ...`` are scripts, ``python -m x`` is a module. ``pythons`` are the names of
    the interpreter that runs us. A command with options for the interpreter itself (``python -O train.py``) stays a
    command.
    """
    first, *rest = arguments
    if first.endswith(".py"):
        return Script(first, tuple(rest))
    if first in pythons and len(rest) >= 2 and rest[0] == "-m":
        return Module(rest[1], tuple(rest[2:]))
    if first in pythons and rest and rest[0].endswith(".py"):
        return Script(rest[0], tuple(rest[1:]))
    return Command(tuple(arguments))


@dataclass(frozen=True, slots=True)
class Job:
    """A program to run as ``ranks`` processes on this machine.

    - ``devices``: the number of virtual CPU devices per rank (None: as JAX finds them).
    - ``timeout``: how many seconds the whole job may take.
    - ``grace``: how many seconds ranks have to end after Ctrl-C or SIGTERM.
    - ``style``: the launcher whose variables the ranks see. ``role``: their ROLE_NAME.
    - ``zygote``: whether ranks may be forked from a process that has imported the frameworks.
    - ``rendezvous_timeout``: how many seconds ranks wait for each other in a collective (None: the libraries'
      defaults).
    - ``xla_flags``: the flags that set this timeout in XLA.
    - ``guard``: guard the program even if it does not import allranks.
    - ``guard_any_line``: ranks may start one collective from different lines.
    - ``hang_after`` (seconds, 0 for never), ``on_hang``: override the program's settings (None: do not).
    - ``hang_limits``: the same for other stages than a training step, by name (`allranks.launch.hang_limits`).
    - ``probe``: what a rehearsal sends to the probe in each rank ("": no probe).
    - ``restart``: the number of starts before this one. ``restarts``: how many are allowed.
    - ``reason``: why the job was started again.
    - ``max_no_progress``: after so many failures alike in a row, without a newly saved step, the job is not started
      again. ``alike`` is how many there were, and ``saved`` the last saved step before this start.
    """

    target: Target
    ranks: int
    devices: int | None = None
    timeout: float | None = None
    style: Style = "default"
    role: str = ""
    zygote: bool = True
    grace: float = 30.0
    rendezvous_timeout: float | None = None
    xla_flags: tuple[str, ...] = ()
    hang_after: float | None = None
    hang_limits: Mapping[str, float] = field(default_factory=dict)
    guard: bool = False
    guard_any_line: bool = False
    on_hang: str | None = None
    probe: str = ""
    restart: int = 0
    restarts: int = 0
    reason: str = ""
    max_no_progress: int = 3
    alike: int = 0
    saved: int | None = None
