"""Define what the launchers of a job's hosts send each other: frozen records, one line of JSON each.

The launcher of host 0 is the *coordinator*, the others are *members*. A member sends what happens to its ranks, and the
coordinator sends what to do.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from allranks.failure import Failure
from allranks.launch.events import Action, Event, Interrupted, Terminated
from allranks.launch.limits import Phase
from allranks.launch.result import RankResult
from allranks.launch.typed_json import parse, typed

# Of this protocol: launchers of different versions refuse each other.
VERSION = 1
LONGEST = 8 << 20  # bytes of a message; most have less than 200


@dataclass(frozen=True, slots=True)
class Hello:
    """A member's first message: which host it is, and what it would run.

    - ``job``: what identifies the job among those of an engine. ``proof``: shows that the sender knows the job's key.
    - ``number``: the host's number, or -1 if the coordinator is to choose one.
    - ``ranks``: how many ranks the host would run.
    - ``target``: the program and its arguments, for people. ``facts``: versions and the digest of the program.
    """

    name: str
    ranks: int
    number: int = -1
    job: str = ""
    proof: str = ""
    target: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)
    version: int = VERSION


@dataclass(frozen=True, slots=True)
class Challenge:
    """The coordinator's greeting. The proof in `Hello` is computed from ``nonce`` and the job's key."""

    nonce: str


@dataclass(frozen=True, slots=True)
class Admitted:
    """The coordinator's answer to a `Hello` of its own job. ``text``: why the host has to wait, or ""."""

    text: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """Start these ranks.

    - ``hosts``, ``counts``, ``host``: the fields of `Placement`.
    - ``job_id``: unique among jobs. ``coordinator_port``, ``master_port``: free ports of host 0.
    - ``restart``, ``restarts``, ``reason``: the fields of `Job`.
    - ``store_key``: the secret of the ranks, if the launchers share no key from which they derive it.
    """

    hosts: tuple[str, ...]
    counts: tuple[int, ...]
    host: int
    job_id: str
    coordinator_port: int
    master_port: int
    restart: int = 0
    restarts: int = 0
    reason: str = ""
    store_key: str = ""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The job does not start on this host, or on any host. ``exit_code`` is that of the launcher.

    ``is_final``: this is the host's job. Otherwise another launcher may be the one that it looks for. ``is_wrong_key``:
    this is the host's job, by its name, and the host has another key.
    """

    text: str
    exit_code: int = 2
    is_final: bool = False
    is_wrong_key: bool = False


@dataclass(frozen=True, slots=True)
class Happened:
    """Events of a member's ranks, in order. Their times are on the coordinator's clock."""

    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class Exiting:
    """The processes of these ranks of a member are exiting now."""

    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Perform:
    """Perform these actions, in order."""

    actions: tuple[Action, ...]


@dataclass(frozen=True, slots=True)
class PhaseChanged:
    """The job has entered another phase. ``failed`` is the rank that failed first, as far as it is known now, or -1."""

    phase: Phase
    failed: int


@dataclass(frozen=True, slots=True)
class Ping:
    """A sign of life, which also compares the clocks.

    A member sends ``sent``, its time. The coordinator answers at once with this time in ``echo`` and its own in
    ``sent``. ``offset`` is how far the member's clock is ahead. All times are Unix times in seconds.
    """

    sent: float
    echo: float = 0.0
    offset: float = 0.0


@dataclass(frozen=True, slots=True)
class Finished:
    """The job has ended: a member kills what is left and answers with `HostResult`. The fields are as in `Ending`."""

    exit_code: int
    first_failure: Failure | None = None
    cause: str = ""
    stopped: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class HostResult:
    """How the ranks of a member have ended. Only the first rank that failed has a ``tail``."""

    ranks: tuple[RankResult, ...]


@dataclass(frozen=True, slots=True)
class Goodbye:
    """The job is not started again. If a signal to the launcher of ``host`` is why, ``event`` is that."""

    event: Interrupted | Terminated | None = None
    host: str = ""


Message = (
    Challenge
    | Hello
    | Admitted
    | Plan
    | Refusal
    | Happened
    | Exiting
    | Perform
    | PhaseChanged
    | Ping
    | Finished
    | HostResult
    | Goodbye
)


def encode(message: Message) -> bytes:
    """Encode a message as one line of JSON that ends with a newline."""
    return json.dumps(_plain(message), separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> Message:
    """Decode a line that ``encode`` made. Raises ValueError for everything else."""
    message: Message = typed(parse(line), Message)
    return message


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {"kind": type(value).__name__} | {one.name: _plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Phase):
        return value.value
    if isinstance(value, tuple | frozenset):
        return [_plain(one) for one in value]
    return dict(value) if isinstance(value, Mapping) else value
