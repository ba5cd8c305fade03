"""Running programs to the end or to a limit, with nothing left of them; and the median of runs that take turns."""

from __future__ import annotations

import json
import math
import os
import select
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
PROGRAMS = Path(__file__).parent / "programs"
ROOT = Path(__file__).parents[1]
_CHUNK, _TAIL = 1 << 16, 1 << 16
_MARK = "BENCH_RUN"


@dataclass(frozen=True, slots=True)
class Ran:
    """What became of a command. ``code`` is None where it was killed at its limit.

    ``begin`` and ``end`` are on the monotonic clock, which all processes of this machine share; ``cpu`` is in seconds,
    with that of all children that were waited for; ``left`` counts processes that outlived the command and were killed;
    ``seen`` is when the last output with the awaited bytes came.
    """

    code: int | None
    begin: float
    end: float
    cpu: float
    output: str
    told: tuple[Mapping[str, Any], ...]
    left: int
    seen: float = math.nan

    @property
    def seconds(self) -> float:
        return self.end - self.begin


def run(
    command: Sequence[object], *, limit: float = 120.0, env: Mapping[str, str] | None = None, awaited: bytes = b""
) -> Ran:
    """Run a command to its end, but for ``limit`` seconds at most; then kill whatever it left.

    Its output is read from a pipe, and the last 64 KiB are kept. ``told`` is what its ranks told (programs/told.py).
    """
    mark = uuid.uuid4().hex
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        begin = time.monotonic()
        environ = {
            **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
            "PYTHONUNBUFFERED": "1",
            "JAX_PLATFORMS": "cpu",
            "BENCH_PORT": str(free_port()),
            "BENCH_OUT": folder,
            "BENCH_BEGIN": repr(begin),
            _MARK: mark,
            **(env or {}),
        }
        child = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environ,
            start_new_session=True,
        )
        try:
            output, ended, seen = _read_to_the_end(child, begin + limit, awaited)
            code, end, cpu = _reap(child, kill=not ended)
        finally:
            left = kill_marked(mark)
        return Ran(code if ended else None, begin, end, cpu, output, read_told(folder), left, seen)


def read_told(folder: str) -> tuple[Mapping[str, Any], ...]:
    """Return what the ranks told (programs/told.py), in rank order."""
    return tuple(json.loads(file.read_text()) for file in sorted(Path(folder).glob("*.json")))


def must(ran: Ran) -> Ran:
    """Return a run that ended with 0; raise with its output otherwise."""
    if ran.code != 0:
        raise RuntimeError(f"the command ended with {ran.code}:\n{ran.output[-4000:]}")
    return ran


def _read_to_the_end(child: subprocess.Popen[bytes], deadline: float, awaited: bytes) -> tuple[str, bool, float]:
    """Read until the child has ended, whoever else still holds the pipe.

    Returns the tail, whether the child ended, and when the last piece with the awaited bytes was read.
    """
    assert child.stdout is not None
    pipe, tail, ended, seen = child.stdout.fileno(), b"", False, math.nan
    os.set_blocking(pipe, False)
    end = os.pidfd_open(child.pid)
    watched = [pipe, end]
    try:
        while not ended and (left := deadline - time.monotonic()) > 0:
            ready = select.select(watched, [], [], left)[0]
            ended = end in ready
            while pipe in ready and (data := _available(pipe)) is not None:
                tail = (tail + data)[-_TAIL:]
                if awaited in data:
                    seen = time.monotonic()
                if not data:
                    watched, ready = [end], []
    finally:
        os.close(end)
        child.stdout.close()
    return tail.decode(errors="replace"), ended, seen


def _available(pipe: int) -> bytes | None:
    """What is in the pipe now: None for nothing, empty at its end."""
    try:
        return os.read(pipe, _CHUNK)
    except BlockingIOError:
        return None


def _reap(child: subprocess.Popen[bytes], *, kill: bool) -> tuple[int, float, float]:
    if kill:
        child.kill()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    return child.returncode, time.monotonic(), usage.ru_utime + usage.ru_stime


def kill_marked(mark: str) -> int:
    """Kill every process that was started with this mark in its environment; return how many there were."""
    killed: set[int] = set()
    patience = 50
    while True:
        living, beginning = _marked(f"{_MARK}={mark}".encode())
        if not living and not (beginning and patience):
            return len(killed)
        for pid in living - killed:
            _kill(pid)
        killed |= living
        patience -= not living
        time.sleep(0.02)  # they are not our children: there is no event for their end, nor for their beginning


def _marked(wanted: bytes) -> tuple[set[int], bool]:
    """Return who has this in his environment, and whether somebody is there who has none yet: in the middle of exec."""
    found, beginning = set(), False
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environ = (folder / "environ").read_bytes()
            if wanted in environ.split(b"\0"):
                found.add(int(folder.name))
            elif not environ and not (folder / "cmdline").read_bytes():
                beginning |= not (folder / "statm").read_text().startswith("0 ")
        except OSError:  # it is gone, or a zombie
            continue
    return found, beginning


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def free_port() -> int:
    """Return a port of the loopback that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def allranks(ranks: int, *words: object, devices: int | None = None) -> list[object]:
    """Return the command that runs a script as ranks of one job under our launcher."""
    width = [] if devices is None else ["-d", devices]
    return [sys.executable, "-m", "allranks", "run", "-n", ranks, *width, *words]


def torchrun(ranks: int, *words: object) -> list[object]:
    """Return the command that runs a script under torchrun, with its static rendezvous: the fastest it has."""
    own = ["--nproc-per-node", ranks, "--master-port", free_port()]
    return [sys.executable, "-m", "torch.distributed.run", *own, *words]


def plain(ranks: int, *words: object) -> list[object]:
    """Return the command that starts the ranks, waits for them, and does nothing else."""
    return [sys.executable, PROGRAMS / "plain.py", ranks, *words]


def in_turns(ways: Mapping[str, Callable[[], T]], rounds: int) -> dict[str, list[T]]:
    """Call every way once a round, so that what the machine does meanwhile falls on all alike."""
    results: dict[str, list[T]] = {name: [] for name in ways}
    for number in range(rounds):
        for name, way in ways.items():
            print(f"  round {number + 1} of {rounds}: {name}", file=sys.stderr, flush=True)
            results[name].append(way())
    return results


def median(values: Iterable[float]) -> float:
    return statistics.median(values)
