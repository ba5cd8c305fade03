"""Record which job may write into a run: the job that holds the newest fence.

A run's folder holds ``fence/<00000007>.json``. A job that opens the run for writing creates the file with the next
number, which only one job can do. From then on that job owns the run. An older job may still be alive: a restart
replaced it, or a network came back. It finds the newer number before it publishes or deletes anything, and is refused.

A file system does not know which job is alive. But on one machine a process can see another one. A job is refused at
once, before it does any harm, if it opens a run whose owner is alive on the same machine.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from typing import Any

from allranks.checkpoint import paths
from allranks.checkpoint.json_value import parse_json
from allranks.errors import AlreadyThere, Damaged, Fenced, NotAFile, NotThere, StorageError, Unsafe
from allranks.process import started
from allranks.storage.base import Storage
from allranks.storage.detect import canonical_place
from allranks.world import processes

FORMAT = "allranks.fence"
KEPT = 2
MOST_ATTEMPTS = 1000
LARGEST = 64 << 10


@dataclass(frozen=True, slots=True)
class RunOwner:
    """The process that opened a run for writing. ``job``: the launcher's name of the job, or "".

    ``machine``, ``started``: make the ``pid`` unique; ``started`` is in kernel ticks since the machine's boot. They are
    "" and 0 if processes cannot be watched.
    """

    host: str
    pid: int
    machine: str
    started: int
    job: str = ""


@dataclass(frozen=True, slots=True)
class Fence:
    """The right to write into a run, until another job holds a fence with a higher ``number``.

    ``nonce``: identifies the fence. ``since``: when it was made (UTC, ISO 8601).
    ``released``: the owner has closed the run.
    ``place``: where the owner saw the run; "" if not known. A later copy of the run has another place, and so no owner.
    """

    number: int
    nonce: str
    owner: RunOwner
    since: str
    released: bool = False
    place: str = ""

    @property
    def path(self) -> str:
        return paths.fence_path(self.number)


def this_process() -> RunOwner:
    """Return the RunOwner that describes this process."""
    here = processes.of_this_process(os.environ)
    job = os.environ.get("ALLRANKS_JOB") or os.environ.get("SLURM_JOB_ID", "")
    return RunOwner(here.host, here.pid, here.machine, started(here.pid) or 0, job)


def acquire_fence(storage: Storage, owner: RunOwner, *, take_over: bool = False) -> Fence:
    """Become the owner of the run in ``storage``, and return the new fence. Only one rank calls it.

    Raises Fenced if the owner is another live process on this machine. With ``take_over`` it does not: then that
    process is refused when it next publishes.
    """
    attempts, place = 0, canonical_place(storage)
    while True:
        numbers = _fence_numbers(storage)
        present = _read_fence(storage, numbers[-1]) if numbers else None
        if present is not None and not take_over and owner_is_alive_here(present, owner, place):
            raise Fenced(
                f"{storage.url}: {describe_owner(present)} writes into this run and is alive: expected one job at a "
                "time in a run.",
                remedy="Wait for the other job, or end it. With take_over=True this job takes the run, and the other "
                "job fails at its next save.",
            )
        now = datetime.now(UTC).isoformat(timespec="seconds")
        fence = Fence((numbers[-1] if numbers else 0) + 1, os.urandom(16).hex(), owner, now, place=place)
        try:
            storage.put(fence.path, _fence_document(fence))
        except AlreadyThere:
            attempts += 1
            if attempts == MOST_ATTEMPTS:
                raise  # there is no newer fence: another error
            continue  # another job was faster, and is the present owner now
        *older, newest = _fence_numbers(storage)
        if newest == fence.number:
            for number in older[: 1 - KEPT]:
                with suppress(StorageError):  # an old fence has no effect
                    storage.delete(paths.fence_path(number))
            return fence
        storage.delete(fence.path)  # another job was faster: it may have used and removed our number


def check_fence(storage: Storage, fence: Fence) -> None:
    """Raise Fenced if the run has a newer owner. Call it immediately before something is published or deleted."""
    found = newest_fence(storage)
    if found is not None and found.nonce == fence.nonce:  # a run that was removed begins with number 1 again
        return
    if found is None:
        raise Fenced(
            f"{storage.url}: the file {fence.path}, which makes this job the owner of the run, does not exist any "
            "more.",
            remedy="Another program removed the file, or the run, while this job wrote. Nothing was published: "
            "start the job again.",
        )
    raise Fenced(
        f"{storage.url}: {describe_owner(found)} took over the run from this job (process {fence.owner.pid} on host "
        f"{fence.owner.host}, since {fence.since}). Nothing was published.",
        remedy="Let one job at a time write into a run.",
    )


def release_fence(storage: Storage, fence: Fence) -> None:
    """Record that the owner no longer writes, so that the next job may take the run. The fence's file stays."""
    found = newest_fence(storage)
    if found is not None and found.nonce == fence.nonce:
        storage.put(fence.path, _fence_document(replace(fence, released=True)), replace=True)


def newest_fence(storage: Storage) -> Fence | None:
    """Return the fence of the run's present or last owner; None if the run was never opened."""
    numbers = _fence_numbers(storage)
    return _read_fence(storage, numbers[-1]) if numbers else None


def owner_is_alive_here(fence: Fence, process: RunOwner, run_place: str) -> bool:
    """Return whether a fence's owner is another live process on the machine of ``process`` that has not closed the run.

    A fence that was copied with its run to ``run_place`` has no owner there.
    """
    owner = fence.owner
    if fence.place not in ("", run_place):
        return False
    here = bool(owner.machine) and owner.machine == process.machine
    ourselves = (owner.pid, owner.started) == (process.pid, process.started)
    return here and not ourselves and not fence.released and started(owner.pid) == owner.started


def describe_owner(fence: Fence) -> str:
    """Return a text that describes the owner of a fence."""
    job = f" of job {fence.owner.job}" if fence.owner.job else ""
    return f"process {fence.owner.pid} on host {fence.owner.host}{job} (since {fence.since})"


def _fence_numbers(storage: Storage) -> list[int]:
    """Return the numbers of all fences, in ascending order. Other files in the folder are ignored."""
    stems = (entry.name.removesuffix(".json") for entry in storage.list(paths.FENCES) if entry.name.endswith(".json"))
    return sorted(int(stem) for stem in stems if stem.isdecimal())


def _fence_document(fence: Fence) -> bytes:
    return json.dumps({"format": FORMAT, **asdict(fence)}).encode()


def keep_known_fields(record_type: type[Fence | RunOwner], document: dict[str, Any]) -> dict[str, Any]:
    """Return the entries of ``document`` that are fields of ``record_type``.

    A newer allranks may write further ones.
    """
    names = {one.name for one in fields(record_type)}
    return {name: value for name, value in document.items() if name in names}


def _read_fence(storage: Storage, number: int) -> Fence | None:
    """Return the fence with this number; None if it was just removed because newer fences exist. Raises Damaged."""
    path = paths.fence_path(number)
    try:
        found = parse_json(storage.get(path, most=LARGEST))
        if found.pop("format") != FORMAT:
            raise ValueError(f"expected the format {FORMAT!r}")
        return Fence(
            **keep_known_fields(Fence, {**found, "owner": RunOwner(**keep_known_fields(RunOwner, found["owner"]))})
        )
    except NotThere:
        return None
    except (NotAFile, Unsafe, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Damaged(
            f"{storage.url}: {path} is not a valid fence: {error!s:.300}.",
            path=path,
            remedy="If no other job writes into this run, delete the file.",
        ) from error
