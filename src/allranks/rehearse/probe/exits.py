"""Record what a rank leaves behind at its end: threads that Python waits for, and child processes that still run.

Also os._exit with exit code 0 while an exception is handled, which hides the exception from the launcher.
"""

from __future__ import annotations

import fcntl
import multiprocessing.process
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from allranks.agent import load
from allranks.rehearse.probe.record import Recorder

failures = load("allranks_agent_failure")
# Seconds for which Python may wait, at the end of the main thread, for threads and children of the program.
_PATIENCE = 6.0


class ExitRecorder:
    """The threads and children that one process has started, by the place at which each was started."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._threads: list[tuple[threading.Thread, int]] = []
        self._children: list[tuple[Any, int]] = []
        self._process = os.getpid()

    def attach(self) -> None:
        self._follow(threading.Thread, "start", self._threads)
        self._follow(multiprocessing.process.BaseProcess, "start", self._children)
        self._follow(subprocess.Popen, "__init__", self._children)
        private: Any = threading
        private._shutdown = self._before(private._shutdown)
        private_os: Any = os
        private_os._exit = self._leaving(os._exit)

    def _follow(self, kind: Any, name: str, started: list[tuple[Any, int]]) -> None:
        original = getattr(kind, name)

        def start(one: Any, *args: Any, **options: Any) -> Any:
            result = original(one, *args, **options)
            if os.getpid() == self._process and self._recorder.is_called_by_program():
                started.append((one, self._recorder.place()))
            return result

        setattr(kind, name, start)

    def _before(self, join_threads: Callable[[], None]) -> Callable[[], None]:
        """Return a function that waits for threads as Python does, while another thread watches how long it takes."""

        def shutdown() -> None:
            if os.getpid() == self._process:
                if failures.that_ended_main() is None:
                    self._recorder.write("left", place=0)
                for child, place in self._children:
                    if isinstance(child, subprocess.Popen) and child.poll() is None:
                        self._recorder.write("behind", place=place, what="process", name=_command(child))
                self._record_daemons()
                threading.Thread(target=self._watch, name="allranks-exits", daemon=True).start()
            join_threads()

        return shutdown

    def _record_daemons(self) -> None:
        """Record each daemon thread that still runs, and the files that this process has open to write."""
        alive = [(one, place) for one, place in self._threads if one.is_alive() and one.daemon]
        files = _open_files() if alive else []
        for one, place in alive:
            self._recorder.write("daemon", place=place, name=one.name, native=one.native_id, files=files)

    def _watch(self) -> None:
        time.sleep(_PATIENCE)
        threads = [(one, place) for one, place in self._threads if one.is_alive() and not one.daemon]
        children = [
            (one, place)
            for one, place in self._children
            if not isinstance(one, subprocess.Popen) and not one.daemon and one.is_alive()
        ]
        for one, place in threads:
            self._recorder.write("behind", place=place, what="thread", name=one.name)
        for one, place in children:
            self._recorder.write("behind", place=place, what="process", name=one.name)
            one.kill()
        if threads or children:
            os._exit(0)

    def _leaving(self, leave: Callable[[int], Any]) -> Callable[[int], Any]:
        def leaving(status: int) -> None:
            error = sys.exc_info()[1]
            if os.getpid() == self._process and not status and error is not None and not isinstance(error, SystemExit):
                self._recorder.write("hidden", error=f"{type(error).__name__}: {error}"[:200])
            leave(status)

        return leaving


def _open_files() -> list[str]:
    """Return the paths of the regular files that this process has open to write."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        try:
            status = os.fstat(int(number))
            flags = fcntl.fcntl(int(number), fcntl.F_GETFL)
            if stat.S_ISREG(status.st_mode) and flags & os.O_ACCMODE != os.O_RDONLY:
                found.append(os.readlink(f"/proc/self/fd/{number}"))
        except OSError:
            continue  # the descriptor of the listing itself
    return found


def _command(child: Any) -> str:
    words = child.args if isinstance(child.args, list | tuple) else [child.args]
    return " ".join(map(str, words))[:80]
