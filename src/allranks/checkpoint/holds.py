"""Steps that a reader holds: nobody removes them before they are released, or their time is over.

A run's folder has a file ``hold/<step>.<8 hex>.json`` for each hold, put by the reader. Who removes steps lists the
folder before he removes a manifest, and once more after that, before he removes a file: so a reader that has put its
hold, and then still sees the manifest, keeps the step.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta

from allranks.checkpoint import fence, inventory, paths
from allranks.errors import NotThere, StepRemoved, StorageError
from allranks.process import started
from allranks.storage.base import Storage

FORMAT = "allranks.hold"
_MOST_ATTEMPTS = 100
_REMEDY = "Choose another step: `allranks ckpt ls` shows those that are there."


@dataclass(frozen=True, slots=True)
class Hold:
    """A reader's claim on a step, until the time ``until`` (UTC, ISO 8601)."""

    step: int
    owner: fence.Owner
    until: str

    def __str__(self) -> str:
        return f"process {self.owner.pid} on host {self.owner.host} holds it until {self.until}"


@contextmanager
def holding(storage: Storage, step: int | None, *, minutes: float) -> Iterator[int]:
    """Hold a step, by default the newest; gives its number. Raises NotThere; StepRemoved for one that is gone."""
    number, path = _newest(storage, minutes) if step is None else (step, take(storage, step, minutes=minutes))
    try:
        yield number
    finally:
        release(storage, path)


def take(storage: Storage, step: int, *, minutes: float) -> str:
    """Put a hold; return its path, for ``release``. Raises StepRemoved where the step is not there, or any more."""
    now = datetime.now(UTC)
    hold = Hold(step, fence.this_process(), (now + timedelta(minutes=minutes)).isoformat(timespec="seconds"))
    path = paths.hold_path(step, secrets.token_hex(4))
    storage.put(path, json.dumps({"format": FORMAT, **asdict(hold)}).encode())
    if storage.size(paths.manifest_path(step)) is None:
        release(storage, path)
        told = f"{storage.url} has no step {step}, or it was removed meanwhile."
        raise StepRemoved(told, path=paths.step_folder(step), remedy=_REMEDY)
    return path


def release(storage: Storage, path: str) -> None:
    """Give a step free; a hold that cannot be removed ends by its time."""
    with suppress(StorageError):
        storage.delete(path)


def held(storage: Storage) -> dict[int, str]:
    """Return who holds which steps. Holds that are over, by their time or their process' end, are removed."""
    found: dict[int, str] = {}
    for entry in storage.list(paths.HOLDS):
        step = paths.hold_of(entry.name)
        if step is None:
            continue
        path = f"{paths.HOLDS}/{entry.name}"
        hold = _read(storage, path, step)
        if hold is not None and _is_over(hold):
            release(storage, path)
        elif hold is not None:
            found[step] = str(hold)
    return found


def _newest(storage: Storage, minutes: float) -> tuple[int, str]:
    for _ in range(_MOST_ATTEMPTS):
        steps = inventory.steps(storage)
        if not steps:
            raise NotThere(f"{storage.url} has no step.", path=storage.url)
        with suppress(StepRemoved):  # since it was listed
            return steps[-1], take(storage, steps[-1], minutes=minutes)
    raise StepRemoved(f"{storage.url}: each of {_MOST_ATTEMPTS} steps was removed before it could be held.")


def _is_over(hold: Hold) -> bool:
    here = bool(hold.owner.machine) and hold.owner.machine == fence.this_process().machine
    if here and started(hold.owner.pid) != hold.owner.started:
        return True
    return datetime.fromisoformat(hold.until) < datetime.now(UTC)


def _read(storage: Storage, path: str, step: int) -> Hold | None:
    """Return a hold; None for one that was released meanwhile, and for a file that is none."""
    try:
        found = json.loads(storage.get(path))
        if found.get("format") != FORMAT or datetime.fromisoformat(found["until"]).tzinfo is None:
            return None
        return Hold(step, fence.Owner(**fence.known(fence.Owner, found["owner"])), found["until"])
    except (NotThere, ValueError, KeyError, TypeError, AttributeError):
        return None
