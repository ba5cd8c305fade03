"""Tensors out of a checkpoint, into safetensors files that other programs load. Every byte is verified on its way.

Bytes go from the checkpoint straight into the new file, which is mapped into memory; what is done is unmapped as it
goes along, so that an export takes a few blocks of memory, whatever it exports.
"""

from __future__ import annotations

import mmap
import os
import re
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allranks.arrays.base import Target
from allranks.arrays.leaves.numpy import DTYPES
from allranks.checkpoint.chunk_reader import Reader
from allranks.checkpoint.export_plan import INDEX, SINGLE, Export, OutFile
from allranks.errors import AlreadyThere, StorageError
from allranks.extent import Extent

CONFIG = "config.json"
_SHARD = re.compile(r"model-[0-9]+-of-[0-9]+\.safetensors")
# After this many bytes, what was written is unmapped.
_MAPPED = 16 << 20


def export(
    reader: Callable[[Callable[[int], None]], Reader],
    planned: Export,
    out: Path,
    *,
    config: bytes | None = None,
    force: bool = False,
    progress: Callable[[int], None] = lambda _: None,
) -> tuple[Path, ...]:
    """Write the planned files, and ``config`` as config.json, into the folder ``out``; return them.

    ``reader`` returns who reads the checkpoint and casts, for what is to be told of each piece.

    They get their names once all are whole and durable. A model that is there is in the way (AlreadyThere); with
    ``force`` it is replaced. ``progress`` is told the bytes of every piece that is read, from any thread. Raises
    Damaged, StorageError; CannotStore for a number that the new dtype does not hold.
    """
    small = {INDEX: planned.index, CONFIG: config}
    names = [*(file.name for file in planned.files), *(name for name, data in small.items() if data is not None)]
    with _translate_errors(out):
        old = _existing_files(out, names)
        if old and not force:
            raise AlreadyThere(f"{out} has {', '.join(old)} already.", remedy="Name another folder, or pass --force.")
        out.mkdir(parents=True, exist_ok=True)
        _check_room(out, planned.bytes)
        with _temporary_files(out, names) as temporary:
            for file in planned.files:
                _write(reader, file, temporary[file.name], progress)
            for name, data in small.items():
                if data is not None:
                    _write_small(temporary[name], data)
            for name in old:
                (out / name).unlink()
            for name in names:
                temporary[name].rename(out / name)
        _sync(out)
    return tuple(out / name for name in names)


def _existing_files(out: Path, names: list[str]) -> list[str]:
    """Return what a program that loads the new model would take for a part of it."""
    if not out.exists():
        return []
    return sorted(
        one.name for one in out.iterdir() if one.name in (*names, SINGLE, INDEX) or _SHARD.fullmatch(one.name)
    )


def _check_room(out: Path, needed: int) -> None:
    disk = os.statvfs(out)
    free = disk.f_bavail * disk.f_frsize
    if needed > free:
        raise StorageError(f"{out}: the export takes {needed:,} bytes, and {free:,} are free.", path=str(out))


@contextmanager
def _temporary_files(out: Path, names: list[str]) -> Iterator[Mapping[str, Path]]:
    """Give every file a temporary name; what still has it in the end is removed."""
    mark = secrets.token_hex(4)
    temporary = {name: out / f".{name}.{mark}.tmp" for name in names}
    try:
        yield temporary
    finally:
        for path in temporary.values():
            path.unlink(missing_ok=True)


def _write(
    reader: Callable[[Callable[[int], None]], Reader],
    file: OutFile,
    where: Path,
    progress: Callable[[int], None],
) -> None:
    with open(where, "x+b") as out:
        os.posix_fallocate(out.fileno(), 0, file.bytes)  # a full disk would otherwise be a SIGBUS
        mapped = mmap.mmap(out.fileno(), file.bytes)
        mapped[: len(file.header)] = file.header
        wanted = [
            (one.path, Target(Extent.of_shape(one.shape), _view(mapped, one.begin, one.dtype, one.shape)))
            for one in file.tensors
        ]
        reader(_Unmapping(mapped, progress)).fill(wanted)
        os.fsync(out.fileno())


def _view(mapped: mmap.mmap, begin: int, dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
    flat: NDArray[Any] = np.frombuffer(mapped, DTYPES[dtype], int(np.prod(shape, dtype=np.int64)), begin)
    return flat.reshape(shape)


class _Unmapping:
    """Passes progress on, and gives the memory of a mapping back as it goes. The bytes stay in the file."""

    def __init__(self, mapped: mmap.mmap, progress: Callable[[int], None]) -> None:
        self._mapped, self._progress = mapped, progress
        self._since = 0
        self._turn = threading.Lock()

    def __call__(self, nbytes: int) -> None:
        with self._turn:
            self._since += nbytes
            if self._since >= _MAPPED:
                self._since = 0
                self._mapped.madvise(mmap.MADV_DONTNEED)
        self._progress(nbytes)


def _write_small(where: Path, data: bytes) -> None:
    with open(where, "xb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextmanager
def _translate_errors(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(f"cannot write into {out}: {error.strerror} ({error.filename}).", path=str(out)) from error
