"""Probe a folder, print JSON lines, and remove all written files; run as a script: ``disk_probe.py FOLDER BYTES``.

It tries the operations that checkpoints and caches need, and measures how fast the folder is.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import mmap
import os
import re
import shutil
import statistics
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

_BLOCK = 1 << 22
_MOST_SECONDS = 1.5
_REPLACED, _DURABLE = 0.15, 7


def print_json(**words: object) -> None:
    print(json.dumps(words), flush=True)


def file_system_of(folder: Path) -> tuple[str, str]:
    """Return the kind and the source of the file system that contains a folder."""
    found = ("?", "?", "")
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        point = re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), before.split()[4])
        kind, source = after.split()[:2]
        inside = str(folder) == point or str(folder).startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(found[2]):
            found = (kind, source, point)
    return found[0], found[1]


def try_rename(folder: Path) -> str:
    """Replace a file many times while a thread reads it; raise OSError if the reader saw a missing or mixed file."""
    target, stop, seen = folder / "replaced", threading.Event(), [0]
    odd: list[str] = []
    target.write_bytes(b"\0" * 8192)

    def read() -> None:
        while not stop.is_set() and not odd:
            try:
                data = target.read_bytes()
            except OSError as error:
                odd.append(f"the reader had {error.strerror}")
                return
            if len(data) != 8192 or len(set(data)) != 1:
                odd.append("the reader saw parts of two files")
            seen[0] += 1

    reader = threading.Thread(target=read)
    reader.start()
    turns, began = 0, time.monotonic()
    while time.monotonic() - began < _REPLACED or turns < 20:
        turns += 1
        (folder / "next").write_bytes(bytes([turns % 256]) * 8192)
        (folder / "next").replace(target)
    stop.set()
    reader.join()
    if odd:
        raise OSError(0, odd[0])
    return f"rename replaces a file whole ({turns} times, under {seen[0]} reads)"


def try_exclusive_create(folder: Path) -> str:
    os.close(os.open(folder / "one", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    with contextlib.suppress(FileExistsError):
        os.close(os.open(folder / "one", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        raise OSError(0, "a file was made twice")
    return "a new file is made once"


def try_link(folder: Path) -> str:
    (folder / "linked").write_bytes(b"x")
    os.link(folder / "linked", folder / "link")
    if (folder / "link").stat().st_nlink != 2:
        raise OSError(0, "the link is not counted")
    return "hard links"


def try_fsync(folder: Path) -> str:
    with (folder / "synced").open("wb") as file:
        file.write(b"x" * 4096)
        file.flush()
        os.fsync(file.fileno())
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return "fsync of files and folders"


def try_direct_io(folder: Path) -> str:
    fd = os.open(folder / "direct", os.O_CREAT | os.O_WRONLY | os.O_DIRECT)
    try:
        with mmap.mmap(-1, 1 << 16) as page:
            os.write(fd, page)
    finally:
        os.close(fd)
    return "O_DIRECT"


def try_flock(folder: Path) -> str:
    with (folder / "flock").open("w") as one, (folder / "flock").open("w") as other:
        fcntl.flock(one, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            raise OSError(0, "two hold the same lock")
    return "flock"


def record_lock(folder: Path) -> str:
    lock = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    with (folder / "record").open("w") as one, (folder / "record").open("w") as other:
        fcntl.fcntl(one, fcntl.F_OFD_SETLK, lock)
        with contextlib.suppress(BlockingIOError):
            fcntl.fcntl(other, fcntl.F_OFD_SETLK, lock)
            raise OSError(0, "two hold the same lock")
    return "record locks"


def try_memory_map(folder: Path) -> str:
    with (folder / "mapped").open("w+b") as file:
        file.write(b"x" * 4096)
        file.flush()
        with mmap.mmap(file.fileno(), 4096) as data:
            data[:1] = b"y"
            data.flush()
    return "mmap"


TRIALS: dict[str, Callable[[Path], str]] = {
    "rename": try_rename,
    "fsync": try_fsync,
    "exclusive": try_exclusive_create,
    "link": try_link,
    "O_DIRECT": try_direct_io,
    "flock": try_flock,
    "record lock": record_lock,
    "mmap": try_memory_map,
}


def attempt_trial(trials: dict[str, Callable[[Path], str]], folder: Path) -> None:
    for name, trial in trials.items():
        print_json(doing=name)
        try:
            print_json(tried=[name, True, trial(folder)])
        except OSError as error:
            print_json(tried=[name, False, error.strerror or str(error)])


def measure_speeds(folder: Path, nbytes: int) -> None:
    """Write and read a file, past the page cache if possible, for at most a second or two each; print the speeds."""
    print_json(doing="write")
    with mmap.mmap(-1, _BLOCK) as block:
        block.write(os.urandom(_BLOCK))
        flags = os.O_CREAT | os.O_RDWR
        try:
            fd, cached = os.open(folder / "speed", flags | os.O_DIRECT), False
            os.pwrite(fd, block, 0)
        except OSError:
            fd, cached = os.open(folder / "speed", flags), True
        try:
            written, seconds = measure_moves(nbytes, lambda at: os.pwrite(fd, block, at), lambda: os.fdatasync(fd))
            write = written / seconds
            if cached:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            print_json(doing="read")
            read, seconds = measure_moves(written, lambda at: os.preadv(fd, [block], at), lambda: None)
        finally:
            os.close(fd)
    print_json(speed={"write": write, "read": read / seconds}, cached=cached, measured=written)
    print_json(doing="small files")
    print_json(durable=statistics.median(measure_durable_write(folder, at) for at in range(_DURABLE)))


def measure_moves(nbytes: int, move_bytes: Callable[[int], int], finish: Callable[[], None]) -> tuple[int, float]:
    """Call ``move_bytes`` until ``nbytes`` are moved or time is up, then ``finish``. Return (bytes moved, seconds)."""
    began, at = time.perf_counter(), 0
    while at < nbytes and time.perf_counter() - began < _MOST_SECONDS:
        at += move_bytes(at)
    finish()
    return at, time.perf_counter() - began


def measure_durable_write(folder: Path, at: int) -> float:
    """Return how many seconds it takes until a small file is durable under its name."""
    began = time.perf_counter()
    with (folder / f"small-{at}.tmp").open("wb") as file:
        file.write(b"x" * 4096)
        file.flush()
        os.fsync(file.fileno())
    (folder / f"small-{at}.tmp").replace(folder / f"small-{at}")
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return time.perf_counter() - began


@contextlib.contextmanager
def folder_in(place: Path) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix=".allranks-doctor-", dir=place))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def examine_folder(place: Path, nbytes: int) -> None:
    print_json(doing="stat")
    place = place.resolve(strict=True)
    kind, source = file_system_of(place)
    found = os.statvfs(place)
    inodes = found.f_favail if found.f_files else None
    print_json(
        where=str(place),
        kind=kind,
        source=source,
        total=found.f_frsize * found.f_blocks,
        free=found.f_frsize * found.f_bavail,
    )
    print_json(inodes=inodes, doing="mkdir")
    with folder_in(place) as folder:
        attempt_trial(TRIALS, folder)
        if found.f_frsize * found.f_bavail > 4 * nbytes:
            measure_speeds(folder, nbytes)


def main(arguments: list[str]) -> int:
    try:
        examine_folder(Path(arguments[0]), int(arguments[1]))
    except OSError as error:
        print_json(trouble=error.strerror or str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
