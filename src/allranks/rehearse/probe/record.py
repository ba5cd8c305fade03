"""Write the events of this rank to its trace file, one JSON object per line."""

from __future__ import annotations

import json
import os
import signal
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from allranks.rehearse.probe.page import KILL_AT, POSITION, STEP, Page

_FRAMES = 6
_OURS = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
# Where compilers of the frameworks keep what they made: the same on all ranks, and written under locks of their own.
COMPILER_CACHES = (
    os.path.join(tempfile.gettempdir(), "torchinductor_"),
    *(os.environ[name] + os.sep for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR") if os.environ.get(name)),
)
# Directories whose code is not the program's own: installed packages, the standard library, allranks.
_FOREIGN = tuple(
    path + os.sep
    for base in {
        os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))),
        os.path.dirname(os.__file__),
        *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")),
    }
    for path in {os.path.abspath(base), os.path.realpath(base)}
)


class Recorder:
    """Writes the events of one process. A forked child begins its own file.

    ``waits``: how many seconds this rank waits after each of its next synchronisations.
    """

    def __init__(self, folder: str, rank: int, page: Page) -> None:
        self.rank, self.page = rank, page
        self.on_step: list[Callable[[int], object]] = []
        self._folder = folder
        self.waits: list[float] = []
        self._lock = threading.Lock()
        self._places: dict[tuple[Any, ...], int] = {}
        self._is_users: dict[str, bool] = {}
        self._singles: set[bool] = set()
        self._open()
        os.register_at_fork(after_in_child=self._open)

    def _open(self) -> None:
        self.process = os.getpid()
        self._lock = threading.Lock()
        self._places = {}
        path = os.path.join(self._folder, f"rank-{self.rank}.{self.process}.jsonl")
        self._file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def write(self, kind: str, *, place: int | None = None, **data: Any) -> None:
        """Record an event of this thread, with the user's line that is running."""
        at = self.place() if place is None else place
        record = {
            "kind": kind,
            "position": self.page.get(POSITION),
            "time": time.monotonic(),
            "step": self.page.get(STEP),
            "place": at,
            "process": self.process,
            "thread": threading.get_native_id(),
            **data,
        }
        self._put(record)

    def _put(self, record: dict[str, Any]) -> None:
        os.write(self._file, json.dumps(record).encode() + b"\n")

    def synchronise(self, kind: str, **data: Any) -> None:
        """Record that this rank enters or leaves a synchronisation. Later events get a higher position."""
        with self._lock:
            self.write(kind, **data)
            self.page.set(POSITION, self.page.get(POSITION) + 1)
        if kind == "leave" and self.waits:
            time.sleep(self.waits.pop())

    def run_single(self, framework: str, what: str, *, queried: bool) -> None:
        """Record, once, that this rank works in a world of one.

        ``queried``: the program has queried the number of its process, or of processes.
        """
        if queried not in self._singles:
            self._singles.add(queried)
            if not any(map(_is_in_use, _OTHER_WORLDS)):
                self.write("single", framework=framework, what=what, queried=queried)

    def step_done(self, number: int) -> None:
        """Record that a step is done, and call ``on_step``. If the rank is to be killed at this step, kill it."""
        if number > self.page.get(STEP):
            self.page.set(STEP, number)
        due = self.page.get(KILL_AT)
        if due and number >= due:
            self.write("killed", steps=number)
            os.kill(os.getpid(), signal.SIGKILL)
        for action in self.on_step:
            action(number)

    def place(self) -> int:
        """Return the number of the user's line that this thread runs, with its callers; 0 if there is none."""
        frames: list[tuple[CodeType, int | None]] = []
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and len(frames) < _FRAMES:
            if self.is_users(frame.f_code.co_filename):
                frames.append((frame.f_code, frame.f_lineno))
            frame = frame.f_back
        key = tuple(frames)
        if not key:
            return 0
        if (number := self._places.get(key)) is None:
            number = self._places[key] = len(self._places) + 1
            lines = [[os.path.abspath(c.co_filename), line or 0, c.co_name] for c, line in frames]
            self._put({"kind": "place", "number": number, "frames": lines})
        return number

    def is_called_by_program(self) -> bool:
        """Return whether the program itself has called a recorded function, not a library in between."""
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and frame.f_code.co_filename.startswith(_OURS):
            frame = frame.f_back
        return frame is not None and self.is_users(frame.f_code.co_filename)

    def is_users(self, file: str) -> bool:
        """Return whether a source file is the program's own. The result is cached."""
        known = self._is_users.get(file)
        if known is None:
            known = self._is_users[file] = is_users(file)
        return known


# Modules by which ranks may have joined without torch or JAX, each with the name of its world.
_OTHER_WORLDS = (("mpi4py.MPI", "COMM_WORLD"), ("horovod.torch", "rank"), ("allranks.world.detect", "_made"))


def _is_in_use(world: tuple[str, str]) -> bool:
    return getattr(sys.modules.get(world[0]), world[1], None) is not None


def is_main_thread() -> bool:
    """Return whether this is the main thread: where the program trains."""
    return threading.current_thread() is threading.main_thread()


def is_users(file: str) -> bool:
    """Return whether a source file is the program's own.

    Installed packages, the standard library and allranks are not.
    """
    if file.startswith("<"):
        return False
    # Without os.path.realpath, which makes a system call for each part of the path.
    full = os.path.abspath(file)
    return not full.startswith((*_FOREIGN, *COMPILER_CACHES)) and "-packages" + os.sep not in full
