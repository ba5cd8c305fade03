"""Real ranks over loopback, for tests: start N Python processes, wait for all of them, kill what is left."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PATIENCE = 120.0
# What a launcher around the tests may have set: the ranks here must not see it.
_LAUNCHERS = ("ALLRANKS_", "SLURM_", "OMPI_", "PMI", "TORCHELASTIC_", "JAX_COORDINATOR")
_LAUNCHERS_EXACT = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class Rank:
    """How one process ended: ``code`` as subprocess gives it, None if it had to be killed; ``seconds`` until then."""

    code: int | None
    out: str
    err: str
    seconds: float

    @property
    def text(self) -> str:
        """Both streams: of a launcher, what its ranks wrote to stdout and then all else."""
        return self.out + self.err


@dataclass(frozen=True)
class Job:
    """How all processes of a job ended, in rank order."""

    ranks: tuple[Rank, ...]

    @property
    def codes(self) -> list[int | None]:
        return [rank.code for rank in self.ranks]

    @property
    def seconds(self) -> float:
        return max(rank.seconds for rank in self.ranks)

    def __str__(self) -> str:
        """All output, for an assertion's message."""
        told = (f"--- rank {i}: {r.code} after {r.seconds:.1f} s\n{r.out}{r.err}" for i, r in enumerate(self.ranks))
        return "\n".join(["", *told])


def free_port() -> int:
    """Return a port that nobody listens on, and whose next one is free too (JAX's coordinator under torchrun).

    Below the range from which the kernel takes ports for connections: none takes it before the job listens.
    """
    while True:
        port = random.randrange(20000, 32000, 2)
        with contextlib.suppress(OSError), socket.create_server(("", port)), socket.create_server(("", port + 1)):
            return port


def clean_environ(extra: Mapping[str, str] = {}) -> dict[str, str]:
    """Return an environment in which no launcher has left a sign, and allranks can be imported."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(_LAUNCHERS) and name not in _LAUNCHERS_EXACT
    }
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    quiet = {"PYTHONPATH": path, "JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1", "NPROC": "4"}
    return {**inherited, **quiet, **extra}


def torchrun_environ(rank: int, size: int, port: int) -> dict[str, str]:
    """Return the variables of a rank that was started by hand: enough for torch, and for ``allranks.init()``."""
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": str(rank),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "JAX_COORDINATOR_PORT": str(port),
    }


def run(
    size: int,
    command: Sequence[str],
    *,
    environ: Callable[[int, int, int], Mapping[str, str]] = torchrun_environ,
    patience: float = PATIENCE,
) -> Job:
    """Run ``python COMMAND`` on ``size`` ranks until all have ended, or ``patience`` seconds are over.

    ``environ(rank, size, port)`` gives each rank's launcher variables; ``port`` is a free one.
    """
    port = free_port()
    commands = [([sys.executable, *command], clean_environ(environ(rank, size, port))) for rank in range(size)]
    return run_commands(commands, patience=patience)


def run_commands(commands: Sequence[tuple[Sequence[str], Mapping[str, str]]], *, patience: float = PATIENCE) -> Job:
    """Run commands, each with its environment, side by side; the whole process group of each is killed in the end."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        files = [(Path(folder) / f"{i}.out", Path(folder) / f"{i}.err") for i in range(len(commands))]
        processes: list[subprocess.Popen[bytes]] = []
        try:
            for (argv, environ), (out, err) in zip(commands, files, strict=True):
                with out.open("wb") as o, err.open("wb") as e:
                    processes.append(
                        subprocess.Popen(argv, env=dict(environ), stdout=o, stderr=e, start_new_session=True)
                    )
            ended = _wait(processes, start, patience)
        finally:
            for process in processes:
                _kill_group(process)
        return Job(
            tuple(
                Rank(code, out.read_text(errors="replace"), err.read_text(errors="replace"), seconds)
                for (code, seconds), (out, err) in zip(ended, files, strict=True)
            )
        )


def _wait(
    processes: Sequence[subprocess.Popen[bytes]], start: float, patience: float
) -> list[tuple[int | None, float]]:
    ended: dict[int, tuple[int | None, float]] = {}
    while len(ended) < len(processes) and time.monotonic() - start < patience:
        for i, process in enumerate(processes):
            if i not in ended and process.poll() is not None:
                ended[i] = process.returncode, time.monotonic() - start
        time.sleep(0.02)
    return [ended.get(i, (None, time.monotonic() - start)) for i in range(len(processes))]


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
