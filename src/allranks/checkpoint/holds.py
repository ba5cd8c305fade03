"""Keep steps from being removed while a reader uses them. A *hold* is a file that protects one step until it expires.

A run's folder has a file ``hold/<step>.<8 hex>.json`` for each hold, which the reader creates. A process that removes
steps lists the holds before it removes a manifest, and again before it removes a file. So a reader keeps the step if it
has created its hold, and then still finds the manifest.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta

from allranks.checkpoint import fence, inventory, paths
from allranks.checkpoint.json_value import parse_json
from allranks.errors import NotAFile, NotThere, StepRemoved, StorageError, Unsafe
from allranks.process import started
from allranks.storage.base import Storage

FORMAT = "allranks.hold"
_MOST_ATTEMPTS = 100
_LARGEST = 64 << 10
_REMEDY = "Choose another step: `allranks ckpt ls` lists the steps."


@dataclass(frozen=True, slots=True)
class Hold:
    """A reader's claim on a step, until the time ``until`` (UTC, ISO 8601)."""

    step: int
    owner: fence.RunOwner
    until: str

    def __str__(self) -> str:
        return f"process {self.owner.pid} on host {self.owner.host} holds it until {self.until}"


@contextmanager
def hold_step(storage: Storage, step: int | None, *, minutes: float) -> Iterator[int]:
    """Hold a step (default: the newest) while a ``with`` block runs; yield its number. Raises NotThere, StepRemoved."""
    number, path = _hold_newest(storage, minutes) if step is None else (step, take_hold(storage, step, minutes=minutes))
    try:
        yield number
    finally:
        release_hold(storage, path)


def take_hold(storage: Storage, step: int, *, minutes: float) -> str:
    """Create a hold on a step; return its path, for ``release_hold``. Raises StepRemoved if there is no such step."""
    now = datetime.now(UTC)
    hold = Hold(step, fence.this_process(), (now + timedelta(minutes=minutes)).isoformat(timespec="seconds"))
    path = paths.hold_path(step, secrets.token_hex(4))
    storage.put(path, json.dumps({"format": FORMAT, **asdict(hold)}).encode())
    if storage.size(paths.manifest_path(step)) is None:
        release_hold(storage, path)
        told = f"{storage.url} has no step {step} (any more)."
        raise StepRemoved(told, path=paths.step_folder(step), remedy=_REMEDY)
    return path


def release_hold(storage: Storage, path: str) -> None:
    """Release a hold by its path. If the file cannot be removed, the hold expires by itself."""
    with suppress(StorageError):
        storage.delete(path)


def held_steps(storage: Storage) -> dict[int, str]:
    """Return the steps that readers hold, each with a text that names one reader.

    Holds that have expired, or whose process has ended, are removed.
    """
    found: dict[int, str] = {}
    for entry in storage.list(paths.HOLDS):
        step = paths.parse_hold_name(entry.name)
        if step is None:
            continue
        path = f"{paths.HOLDS}/{entry.name}"
        hold = _read_hold(storage, path, step)
        if hold is not None and _is_over(hold):
            release_hold(storage, path)
        elif hold is not None:
            found[step] = str(hold)
    return found


def _hold_newest(storage: Storage, minutes: float) -> tuple[int, str]:
    for _ in range(_MOST_ATTEMPTS):
        steps = inventory.complete_steps(storage)
        if not steps:
            raise NotThere(f"{storage.url} has no step to hold: expected at least one complete step.", path=storage.url)
        with suppress(StepRemoved):  # since it was listed
            return steps[-1], take_hold(storage, steps[-1], minutes=minutes)
    raise StepRemoved(f"{storage.url}: each of {_MOST_ATTEMPTS} newest steps was removed before it could be held.")


def _is_over(hold: Hold) -> bool:
    here = bool(hold.owner.machine) and hold.owner.machine == fence.this_process().machine
    if here and started(hold.owner.pid) != hold.owner.started:
        return True
    return datetime.fromisoformat(hold.until) < datetime.now(UTC)


def _read_hold(storage: Storage, path: str, step: int) -> Hold | None:
    """Return a hold; None if it was released in the meantime, or if the file is not a hold."""
    try:
        found = parse_json(storage.get(path, most=_LARGEST))
        if found.get("format") != FORMAT or datetime.fromisoformat(found["until"]).tzinfo is None:
            return None
        return Hold(step, fence.RunOwner(**fence.keep_known_fields(fence.RunOwner, found["owner"])), found["until"])
    except (NotThere, NotAFile, Unsafe, ValueError, KeyError, TypeError, AttributeError):
        return None
