"""Jobs for the launcher's tests: the command line in a process of its own, on scripts written for the occasion."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

PATIENCE = 60.0  # seconds for what should take two: the machine may be busy


@dataclass(frozen=True, slots=True)
class Outcome:
    code: int
    out: str
    seconds: float


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "allranks", "run", *words]


def environment() -> dict[str, str]:
    outer = ("ALLRANKS_", "JAX_", "FORCE_COLOR")
    return {name: value for name, value in os.environ.items() if not name.startswith(outer)}


def allranks(*words: str, cwd: Path, limit: float = PATIENCE, through: str = "cat") -> Outcome:
    """Run ``allranks run`` to its end; both streams together, ``through`` a shell's pipe."""
    start = time.monotonic()
    done = subprocess.run(
        ["bash", "-c", f"{shlex.join(command(*words))} 2>&1 | {through}; exit ${{PIPESTATUS[0]}}"],
        cwd=cwd,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=limit,
    )
    return Outcome(done.returncode, done.stdout, time.monotonic() - start)


class Started:
    """``allranks run`` in the background, its output in a file; killed at the end of a ``with``."""

    def __init__(self, *words: str, cwd: Path) -> None:
        self._file = cwd / "output.txt"
        with self._file.open("wb") as out:
            self.process = subprocess.Popen(
                command(*words),
                cwd=cwd,
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def out(self) -> str:
        return self._file.read_text()

    def send(self, signum: int) -> None:
        self.process.send_signal(signum)

    def end(self) -> int:
        return self.process.wait(PATIENCE)

    def __enter__(self) -> Started:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()


def write(folder: Path, text: str, name: str = "train.py") -> str:
    """Write a script; returns its name."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))
    return name


def wait_until(true: Callable[[], bool], what: str) -> None:
    """Wait for the state of another process, for which there is no event."""
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def pids_in(folder: Path) -> list[int]:
    """The pids that ranks have left as the names of files in ``folder/pids``."""
    return [int(path.name) for path in (folder / "pids").glob("*")]
