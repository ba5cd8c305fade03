"""A launcher of few words: starts the ranks of a job, listens to their agents, and ends the job after a failure."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import free_port

from allranks.launch.environment import JobLocation, for_rank
from allranks.launch.job import Command, Job
from allranks.launch.placement import Placement

AGENT = Path(__file__).parents[2] / "src" / "allranks" / "agent"
PATIENCE = 60.0  # a job that takes longer hangs
GRACE = 1.5  # from the first failure until the others are killed


@dataclass(frozen=True)
class Outcome:
    """What the agents said, in order, and how each rank ended (None: it had to be killed)."""

    said: list[dict[str, Any]]
    codes: list[int | None]
    out: list[str]
    err: list[str]
    seconds: float

    def of(self, kind: str, rank: int | None = None) -> list[dict[str, Any]]:
        return [m for m in self.said if m["kind"] == kind and rank in (None, m["rank"])]

    def failure(self, rank: int) -> dict[str, Any]:
        [message] = self.of("failed", rank)
        return message["failure"]


def run(job: Job, folder: Path, *, base: dict[str, str] | None = None) -> Outcome:
    """Run a job until all its ranks have ended, or until `GRACE` seconds after the first failure."""
    port = free_port()
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    channel.bind(str(folder / "control"))
    channel.settimeout(0.05)
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", **(base or {})}
    site = JobLocation(
        "job-1",
        Placement(("hosta",), (job.ranks,)),
        "127.0.0.1",
        port,
        port + 1,
        2,
        str(folder / "control"),
        str(AGENT),
        environment,
    )
    started = time.monotonic()
    files = [(folder / f"{rank}.out", folder / f"{rank}.err") for rank in range(job.ranks)]
    ranks = []
    for rank, (out, err) in enumerate(files):
        with out.open("w") as stdout, err.open("w") as stderr:
            ranks.append(
                subprocess.Popen(
                    job.target.argv(sys.executable),
                    cwd=folder,
                    env=for_rank(job, rank, site),
                    stdout=stdout,
                    stderr=stderr,
                    start_new_session=True,
                )
            )
    try:
        said = listen(channel, ranks, deadline=started + PATIENCE)
        codes = [rank.poll() for rank in ranks]
    finally:
        for rank in ranks:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(rank.pid, signal.SIGKILL)
            rank.wait()
        channel.close()
    read = [[path.read_text() for path in pair] for pair in files]
    return Outcome(said, codes, [out for out, _ in read], [err for _, err in read], time.monotonic() - started)


def listen(channel: socket.socket, ranks: list[subprocess.Popen[bytes]], deadline: float) -> list[dict[str, Any]]:
    """Until all have ended, or none but ranks that did not fail for `GRACE` seconds after the first failure."""
    said: list[dict[str, Any]] = []
    enough = deadline
    while (now := time.monotonic()) < deadline:
        failed = [rank for rank in ranks if any(m["kind"] == "failed" and m["pid"] == rank.pid for m in said)]
        over = all(rank.poll() is not None for rank in (ranks if now < enough else failed))
        try:
            said.append(json.loads(channel.recv(1 << 20)))
        except TimeoutError:
            if over:
                break
            continue
        if said[-1]["kind"] == "failed":
            enough = min(enough, time.monotonic() + GRACE)
            with contextlib.suppress(ProcessLookupError):
                os.kill(said[-1]["pid"], signal.SIGTERM)  # the rank may go
    return said


def python(folder: Path, program: str, *args: str) -> Command:
    """Write a program and return the command that runs it."""
    (folder / "train.py").write_text(program)
    return Command((sys.executable, "train.py", *args))
