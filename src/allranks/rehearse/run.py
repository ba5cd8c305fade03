"""Run a program once under the watcher, and return what its ranks did."""

from __future__ import annotations

import functools
import io
import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from allranks.launch.console import Console
from allranks.launch.engines import local
from allranks.launch.job import Job
from allranks.launch.result import JobResult
from allranks.rehearse.guards import ANY_ERROR, guards_of
from allranks.rehearse.monitor import Monitor
from allranks.rehearse.probe import hosts
from allranks.rehearse.probe.files import is_interesting, is_restored
from allranks.rehearse.probe.record import is_users
from allranks.rehearse.trace import UNWATCHED, Event, Frame, Trace, merged, read_lines
from allranks.rehearse.watch import listener
from allranks.rehearse.watch.server import Effect, Server, Treat
from allranks.rehearse.watch.undo import Journal
from allranks.storage.temporary_folder import temporary_folder


@dataclass(frozen=True, slots=True)
class Run:
    """One run of all ranks: how it ended, the recorded trace, what the ranks printed, and how many seconds it took."""

    result: JobResult
    trace: Trace
    output: str
    seconds: float = 0.0


class Interrupted(Exception):
    """Raised when a signal (Ctrl-C, SIGTERM) has ended a run. ``run`` is what was seen until then."""

    def __init__(self, signum: int, run: Run) -> None:
        super().__init__(f"ended by {signal.Signals(signum).name}")
        self.signum, self.run = signum, run


def run_once(
    job: Job,
    settings: Mapping[str, Any],
    *,
    journal: Journal | None = None,
    treat: Treat | None = None,
    on_effect: Callable[[Server, Effect], None] | None = None,
    monitor: Monitor | None = None,
) -> Run:
    """Run a job under the watcher; return its result and its trace.

    - ``settings``: what the probe in each rank reads.
    - ``journal``: notes all changes of files, so that the caller can undo them.
    - ``treat``: delays or fails file calls.
    - ``on_effect``: is called with each file call, in the watcher's thread.
    - ``monitor``: shows the progress.

    Raises Interrupted if a signal ended the run. If the watcher failed, raises its exception: a trace with holes cannot
    be judged.
    """
    with temporary_folder("rehearse") as folder:
        place = os.path.join(folder, "watch")
        obstacle = listener.unavailable()
        reported = {**settings, "folder": folder, "socket": "" if obstacle else place}
        real = _real_path(reported, job.ranks)
        job = replace(job, probe=json.dumps(reported))
        output = io.BytesIO()
        console = Console(job.ranks, out=output, color=False, live=False, quiet=True)
        with (
            Server(
                place,
                is_interesting=lambda path: is_interesting(path) and not path.startswith(_OURS),
                is_restored=lambda path: is_restored(path) and not path.startswith(_OURS),
                treat=treat,
                on_effect=on_effect,
                journal=journal,
                real_path=real,
            ) as server,
            monitor.following(server.steps) if monitor else nullcontext(),
        ):
            begun = time.monotonic()
            result = local.run(job, console)
            seconds = time.monotonic() - begun
        console.close()
        if server.failure is not None:
            raise server.failure
        server.note_contents()
        trace = _trace(job.ranks, Path(folder), server, obstacle, real)
    kept = [Event(0, "kept", 0, 0.0, data={"path": path}) for path in journal.not_restored] if journal else []
    trace = replace(trace, events=(*kept, *trace.events))
    run = Run(result, trace, output.getvalue().decode(errors="replace"), seconds)
    if result.signal:
        raise Interrupted(result.signal, run)
    return run


def run_unwatched(job: Job) -> JobResult:
    """Run a job that is no part of the program, and return its result. What it prints is dropped."""
    console = Console(job.ranks, out=io.BytesIO(), color=False, live=False, quiet=True)
    try:
        return local.run(job, console)
    finally:
        console.close()


# Where a job of allranks has its own files.
_OURS = os.path.join(tempfile.gettempdir(), "allranks-")


def _real_path(settings: Mapping[str, Any], ranks: int) -> Callable[[int, str], str] | None:
    """Return a function that gives the real path of a rank's file, or None if all ranks share all folders."""
    count = settings.get("hosts")
    if not count:
        return None
    for host in range(count):
        for number, path in enumerate(hosts.folders(settings)):
            folder = hosts.private_folder(settings, host, number)
            if number < len(settings["private"]):
                os.makedirs(folder, exist_ok=True)
            else:
                shutil.copytree(path, folder, symlinks=True)
    return lambda rank, path: hosts.real_path(settings, hosts.host_of(rank, ranks, count), path)


def _trace(ranks: int, folder: Path, server: Server, obstacle: str, real: Callable[[int, str], str] | None) -> Trace:
    events: list[Event] = []
    places: dict[int, dict[int, tuple[Frame, ...]]] = {}
    for file in sorted(folder.glob("rank-*.jsonl")):
        name, process, _ = file.name.split(".")
        rank = int(name.removeprefix("rank-"))
        of_process = places[int(process)] = {}
        with open(file) as lines:
            events += (_really(event, real) for event in read_lines(lines, rank, of_process))
    events += [_event(effect, places) for effect in server.effects]
    struck = [(_event(effect, places), action) for effect, action in server.struck]
    events += [replace(event, kind="fault", data={"action": action, "steps": event.step}) for event, action in struck]
    notes = [f"{UNWATCHED}: {obstacle}"] if obstacle else []
    return merged(ranks, map(_marked, events), notes)


def _marked(event: Event) -> Event:
    """Return the event; a read that may fail, because the program catches the error, has ``caught`` in its data."""
    if event.kind != "file" or event.data["operation"] != "read" or not may_be_missing(event.place[:_CALLERS]):
        return event
    return replace(event, data={**event.data, "caught": True})


@functools.cache
def may_be_missing(frames: tuple[Frame, ...]) -> bool:
    """Return whether one of these lines is in a ``try`` that goes on without the file, if there is none."""
    guards = ((frame, guard) for frame in frames for guard in guards_of(frame.path))
    return any(frame.line in g.lines and g.caught & _NO_FILE and not g.gives_up for frame, g in guards)


# Errors that a program catches if a file need not be there; and how far from the read.
_NO_FILE = ANY_ERROR | {"FileNotFoundError", "OSError", "IOError", "EnvironmentError"}
_CALLERS = 3


def _really(event: Event, real: Callable[[int, str], str] | None) -> Event:
    if real is None or event.kind not in ("file", "lock", "unlock"):
        return event
    if event.kind != "file":
        return replace(event, data={**event.data, "path": real(event.rank, event.data["path"])})
    return replace(event, data={**event.data, "paths": [real(event.rank, path) for path in event.data["paths"]]})


def _event(effect: Effect, places: Mapping[int, Mapping[int, tuple[Frame, ...]]]) -> Event:
    place = places.get(effect.process, {}).get(effect.place, ()) or tuple(
        Frame(*frame) for frame in effect.frames if is_users(frame[0])
    )
    data = {"operation": effect.operation, "paths": list(effect.paths), "existed": effect.existed}
    if effect.content:
        data["content"] = effect.content
    if effect.content_after:
        data["content_after"] = effect.content_after
    return Event(
        effect.rank,
        "file",
        effect.position,
        effect.time,
        effect.step,
        place,
        effect.process,
        effect.thread,
        data,
    )
