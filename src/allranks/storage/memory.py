"""Store files in memory, and fail on demand, for tests and simulations.

Every step that a real storage takes is an *operation*. It has a name and a path, and is counted from 1:

    create, block (each one), finish                       of a write
    put, get, read, size, list, delete, remove_folder      the other calls

A file is durable from its ``finish`` or ``put`` on. Before that, processes see the part that was written, and a power
cut leaves any part.
"""

from __future__ import annotations

import errno
import os
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from typing import Literal, TypeVar

from .base import PAGE, BlockSource, Entry
from .os_errors import split_path, storage_error, too_large_error, truncated_file_error
from .pull import pull_blocks

T = TypeVar("T")
Effect = Literal["none", "torn", "whole"]
# The verbs for the operations of a write in messages.
_VERBS = dict.fromkeys(("create", "block", "finish"), "write")


class SimulatedCrash(BaseException):
    """Raised at the operation where a simulated process crashes, and by every later operation of that process."""


@dataclass(slots=True)
class _Disk:
    files: dict[str, bytearray] = field(default_factory=dict)
    unfinished: set[str] = field(default_factory=set)
    capacity: int | None = None
    lock: threading.RLock = field(default_factory=threading.RLock)

    def store(self, path: str, offset: int, data: bytes | memoryview) -> None:
        file = self.files[path]
        growth = max(0, offset + len(data) - len(file))
        if self.capacity is not None and sum(map(len, self.files.values())) + growth > self.capacity:
            raise _os_error(errno.ENOSPC)
        file.extend(bytes(max(0, offset - len(file))))
        file[offset : offset + len(data)] = data

    def create(self, path: str) -> None:
        if path in self.files:
            raise _os_error(errno.EEXIST)
        self.files[path] = bytearray()
        self.unfinished.add(path)

    def put(self, path: str, data: bytes, *, replace: bool) -> None:
        if path in self.files and not replace:
            raise _os_error(errno.EEXIST)
        temporary = f"{path}.tmp"
        self.create(temporary)
        try:
            self.store(temporary, 0, data)
            self.files[path] = self.files[temporary]
            self.unfinished.discard(path)
        finally:
            self.remove(temporary)

    def put_half(self, path: str, data: bytes) -> None:
        folder, _, name = path.rpartition("/")
        temporary = f"{folder}/.{name}.torn.tmp".lstrip("/")
        self.files[temporary] = bytearray(data[: len(data) // 2])
        self.unfinished.add(temporary)

    def file(self, path: str) -> bytearray:
        if path not in self.files:
            raise _os_error(errno.ENOENT)
        return self.files[path]

    def remove(self, path: str) -> None:
        self.files.pop(path, None)
        self.unfinished.discard(path)

    def entries(self, folder: str) -> tuple[Entry, ...]:
        found: dict[str, int | None] = {}
        prefix = f"{folder}/" if folder else ""
        for path, data in self.files.items():
            if path.startswith(prefix):
                name, _, deeper = path.removeprefix(prefix).partition("/")
                found[name] = None if deeper else len(data)
        return tuple(Entry(name, size) for name, size in sorted(found.items()))

    def after_power_cut(self, draw: random.Random) -> _Disk:
        files = {path: bytearray(data) for path, data in self.files.items() if path not in self.unfinished}
        for path in sorted(self.unfinished):
            fate = draw.choice(["lost", "torn", "whole"])
            if fate != "lost":
                files[path] = _partly_written(self.files[path], draw) if fate == "torn" else bytearray(self.files[path])
        return _Disk(files, capacity=self.capacity)


@dataclass(slots=True)
class _Plan:
    operation: str
    pattern: str
    times: int
    error: BaseException

    def matches(self, operation: str, path: str) -> bool:
        return self.times > 0 and fnmatchcase(operation, self.operation) and fnmatchcase(path, self.pattern)


class MemoryStorage:
    """A process that uses a simulated disk in memory; ``process()`` returns another process on the same disk.

    ``capacity``: the size of the disk, in bytes.
    ``before``: a function that is called before each operation, with its name and path. It may wait or raise.
    ``log``: the names and paths of the operations of this process so far.
    """

    def __init__(self, *, capacity: int | None = None, before: Callable[[str, str], None] | None = None) -> None:
        self._disk = _Disk(capacity=capacity)
        self._before = before
        self._crash: tuple[int, Effect] | None = None
        self._plans: list[_Plan] = []
        self.crashed = False
        self.log: list[tuple[str, str]] = []

    @property
    def url(self) -> str:
        return "memory"

    # Faults of the process, for tests.

    def new_process(self, *, before: Callable[[str, str], None] | None = None) -> MemoryStorage:
        """Return a new process on the same disk: another rank, or the same rank after a restart."""
        return self._process_on(self._disk, before)

    def crash_at(self, operation: int, effect: Effect = "none") -> None:
        """Crash at an operation, counted from 1 since the process began.

        ``effect`` says what that operation does before the crash: nothing, everything, or half of a block or of the
        temporary file of ``put``.
        """
        self._crash = (operation, effect)

    def fail_operation(
        self, operation: str, pattern: str = "*", *, times: int = 1, error: BaseException | None = None
    ) -> None:
        """Make the next ``times`` operations of a name (``*``: any) on matching paths raise before they have an effect.

        ``error``: what is raised; an OSError is translated to the StorageError for it. Default: an EIO of the device.
        """
        self._plans.append(_Plan(operation, pattern, times, error or _os_error(errno.EIO)))

    # Faults of the disk, for tests.

    def after_power_cut(self, seed: int = 0) -> MemoryStorage:
        """Return a process on the disk as it is after a power cut now: unfinished files are lost, torn or complete."""
        with self._disk.lock:
            return self._process_on(self._disk.after_power_cut(random.Random(seed)), None)

    def flip_bit(self, path: str, byte_index: int, bit_index: int = 0) -> None:
        """Invert one bit of a file."""
        with self._disk.lock:
            self._disk.files[path][byte_index] ^= 1 << bit_index

    def truncate_file(self, path: str, size: int) -> None:
        """Truncate a file to ``size`` bytes."""
        with self._disk.lock:
            del self._disk.files[path][size:]

    def swap_files(self, path: str, other_path: str) -> None:
        """Exchange the contents of two files."""
        with self._disk.lock:
            files = self._disk.files
            files[path], files[other_path] = files[other_path], files[path]

    def remove_uncounted(self, path: str) -> None:
        """Remove an existing file. This is not counted as an operation of the process."""
        with self._disk.lock:
            del self._disk.files[path]
            self._disk.unfinished.discard(path)

    def file_contents(self) -> dict[str, bytes]:
        """Return the content of every file by path, as processes see it."""
        with self._disk.lock:
            return {path: bytes(data) for path, data in sorted(self._disk.files.items())}

    # The storage.

    def write(self, path: str, source: BlockSource) -> None:
        split_path(path)
        disk = self._disk
        self._run_operation("create", path, partial(disk.create, path))

        def sink(offset: int, data: memoryview) -> None:
            half = partial(disk.store, path, offset, data[: len(data) // 2])
            self._run_operation("block", path, partial(disk.store, path, offset, data), half)

        try:
            pull_blocks(source, sink, thread_count=1)
            self._run_operation("finish", path, partial(disk.unfinished.discard, path), lambda: None)
        except BaseException:
            with disk.lock:
                if not self.crashed:  # a dead process removes nothing
                    disk.remove(path)
            raise

    def put(self, path: str, data: bytes, *, replace: bool = False) -> None:
        split_path(path)
        half = partial(self._disk.put_half, path, data)
        self._run_operation("put", path, partial(self._disk.put, path, data, replace=replace), half)

    def get(self, path: str, *, most: int | None = None) -> bytes:
        split_path(path)
        data = self._run_operation("get", path, lambda: bytes(self._disk.file(path)))
        if most is not None and len(data) > most:
            raise too_large_error(f"{self.url}/{path}", "the file", len(data), most)
        return data

    def read(self, path: str, offset: int, into: Sequence[memoryview]) -> None:
        split_path(path)

        def fill() -> None:
            file, at = self._disk.file(path), offset
            until = offset + sum(buffer.nbytes for buffer in into)
            if until > len(file):
                raise truncated_file_error(path, self.url, requested_end=until, size=len(file))
            for buffer in into:
                buffer.cast("B")[:] = file[at : at + buffer.nbytes]
                at += buffer.nbytes

        self._run_operation("read", path, fill)

    def size(self, path: str) -> int | None:
        split_path(path)
        files = self._disk.files
        return self._run_operation("size", path, lambda: len(files[path]) if path in files else None)

    def list(self, folder: str) -> tuple[Entry, ...]:
        if folder:
            split_path(folder)
        return self._run_operation("list", folder, partial(self._disk.entries, folder))

    def delete(self, path: str) -> None:
        split_path(path)
        self._run_operation("delete", path, partial(self._disk.remove, path))

    def remove_folder(self, folder: str) -> None:
        """Count the operation, and do nothing else: a folder exists as long as it contains a file."""
        split_path(folder)
        self._run_operation("remove_folder", folder, lambda: None)

    def _run_operation(
        self, operation: str, path: str, effect: Callable[[], T], half: Callable[[], object] | None = None
    ) -> T:
        if self._before:
            self._before(operation, path)
        with self._disk.lock:
            if self.crashed:
                raise SimulatedCrash(f"{operation} {path!r}: this process crashed before")
            self.log.append((operation, path))
            try:
                self._perhaps_crash(operation, path, effect, half or effect)
                self._perhaps_fail(operation, path)
                return effect()
            except OSError as error:
                raise storage_error(error, _VERBS.get(operation, operation), path, self.url) from error

    def _perhaps_crash(
        self, operation: str, path: str, effect_whole: Callable[[], object], half: Callable[[], object]
    ) -> None:
        if self._crash is None or len(self.log) != self._crash[0]:
            return
        self.crashed = True
        {"none": lambda: None, "torn": half, "whole": effect_whole}[self._crash[1]]()
        raise SimulatedCrash(f"{operation} {path!r}: operation {len(self.log)}, effect {self._crash[1]}")

    def _perhaps_fail(self, operation: str, path: str) -> None:
        for plan in self._plans:
            if plan.matches(operation, path):
                plan.times -= 1
                raise plan.error

    def _process_on(self, disk: _Disk, before: Callable[[str, str], None] | None) -> MemoryStorage:
        other = MemoryStorage(before=before)
        other._disk = disk
        return other


def _os_error(code: int) -> OSError:
    return OSError(code, os.strerror(code))


def _partly_written(data: bytearray, draw: random.Random) -> bytearray:
    """Return the first bytes of a file, up to a random position, with some pages replaced by zeros."""
    half = data[: draw.randint(0, len(data))]
    for page in range(0, len(half), PAGE):
        if draw.random() < 0.3:
            end = min(page + PAGE, len(half))
            half[page:end] = bytes(end - page)
    return half
