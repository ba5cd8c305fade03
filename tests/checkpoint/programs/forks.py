"""Processes that start in a moment: forked from one that has imported all that they need."""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "world")]

PATIENCE = 60.0


def fork(action: Callable[[], object]) -> int:
    """Run an action in a new process that leaves without a farewell to anybody, and shows its stacks at SIGABRT."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        faulthandler.enable()
        code = 1
        try:
            action()
            code = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    return pid


def end_of(pid: int) -> int:
    """Wait for a process; return its exit code, or minus the signal that killed it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def run(action: Callable[[], object]) -> None:
    """Run an action in a new process, which must not fail."""
    assert end_of(fork(action)) == 0


def wait_for(what: str, condition: Callable[[], Any]) -> Any:
    """Look again and again until a condition holds; return what it returned."""
    deadline = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited {PATIENCE} s for {what}"
        time.sleep(0.005)
    return found


class Diary:
    """What one process tells, line by line, and others read while it lives."""

    def __init__(self, where: Path) -> None:
        self.where = where

    def write(self, *words: Any) -> None:
        with self.where.open("a") as file:
            file.write(json.dumps([time.time(), *words]) + "\n")

    def lines(self) -> list[str]:
        """Return what was told, each line after the moment, as JSON; a line that its writer died in is not."""
        return self.where.read_text().split("\n")[:-1] if self.where.exists() else []

    def read(self) -> list[list[Any]]:
        return [json.loads(line) for line in self.lines()]


def kill_all(pids: Sequence[int], by: int = signal.SIGKILL) -> None:
    for pid in pids:
        try:
            os.kill(pid, by)
            os.waitpid(pid, 0)
        except (ProcessLookupError, ChildProcessError):
            continue
