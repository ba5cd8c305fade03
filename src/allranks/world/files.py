"""Implement a key-value store in a folder that all ranks of one machine see. It needs no framework and no server."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from allranks.errors import StoreError
from allranks.world.store import no_key

# Seconds between two checks for a key: a quarter of the time waited so far, within this range.
_SHORTEST_NAP, _LONGEST_NAP = 20e-6, 0.05
_HIDDEN = "."  # files that are no values


class FileStore:
    """A KeyValueStore in which each key is a file, written atomically. Safe for threads and processes of one machine.

    A key must not be the folder of another key: ``hang/1`` and ``hang/1/judge`` exclude each other. Every method raises
    StoreError once the folder has been removed.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def set(self, key: str, value: bytes) -> None:
        with self._written(key, value) as (new, path):
            new.replace(path)

    def get(self, key: str) -> bytes | None:
        try:
            return (self._folder / key).read_bytes()
        except FileNotFoundError:
            return None

    def wait(self, key: str, timeout: float) -> bytes:
        start = time.monotonic()
        while (value := self.get(key)) is None:
            waited = time.monotonic() - start
            if waited >= timeout:
                raise no_key(key, timeout)
            self._check_folder(key)
            time.sleep(min(max(waited / 4, _SHORTEST_NAP), _LONGEST_NAP, timeout - waited))
        return value

    def claim(self, key: str, value: bytes) -> bytes:
        with self._written(key, value) as (new, path):
            try:
                os.link(new, path)
            except FileExistsError:
                return path.read_bytes()
            finally:
                new.unlink()
        return value

    def add(self, key: str, amount: int) -> int:
        self._check_folder(key)
        with open(self._folder / f"{_HIDDEN}lock", "wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            total = int(self.get(key) or 0) + amount
            self.set(key, str(total).encode())
        return total

    def delete(self, key: str) -> None:
        (self._folder / key).unlink(missing_ok=True)

    def list(self, prefix: str) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        for path in sorted((self._folder / prefix).rglob("*")):
            if path.is_file() and not path.name.startswith(_HIDDEN):
                key = path.relative_to(self._folder).as_posix()
                if (value := self.get(key)) is not None:
                    found[key] = value
        return found

    def _check_folder(self, key: str) -> None:
        if not self._folder.is_dir():
            raise StoreError(
                f"{key!r}: the folder {self._folder} of the job's store does not exist any more: the job has ended."
            )

    @contextmanager
    def _written(self, key: str, value: bytes) -> Iterator[tuple[Path, Path]]:
        """Yield a new file that holds the value, and its final path."""
        path = self._folder / key
        new = path.with_name(f"{_HIDDEN}{path.name}.{os.getpid()}.{threading.get_ident()}")
        try:
            if not path.parent.is_dir():
                self._check_folder(key)
                path.parent.mkdir(parents=True, exist_ok=True)
            new.write_bytes(value)
            yield new, path
        except FileNotFoundError as error:
            raise StoreError(
                f"{key!r}: {error.filename} does not exist any more. Check whether the job has ended."
            ) from error
