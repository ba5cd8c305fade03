"""Read bytes of one file, count them, and check them against the index."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import xxhash
from numpy.typing import NDArray

from allranks.digest import digest, show
from allranks.errors import DataChanged, DataError, NotThere, StorageError, Truncated
from allranks.failure import text_of
from allranks.storage.base import Storage
from allranks.storage.local import LocalStorage

T = TypeVar("T")
CHUNK = 4 << 20
_REMOTE_READS = 16
_PLACES, _PLACE_BYTES = 8, 1 << 12
_SHOWN = 10  # names of a folder in an error


class ByteCounter:
    """A thread-safe count of bytes. ``on_add`` is called with each number that is added."""

    def __init__(self, on_add: Callable[[int], None] | None = None) -> None:
        self.total = 0
        self._lock = threading.Lock()
        self._on_add = on_add

    def add_bytes(self, byte_count: int) -> None:
        with self._lock:
            self.total += byte_count
            if self._on_add:
                self._on_add(byte_count)


class SharedValues:
    """Values that the files of one scan, or of one reader, share. Each is made once, also by several threads.

    An error is not kept: the next file makes the value again.
    """

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._locks: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    def find_or_make(self, key: str, make: Callable[[], T]) -> T:
        """Return the value of this key, which ``make`` returns if there is none yet."""
        with self._lock:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            if key not in self._values:
                self._values[key] = make()
            found: T = self._values[key]
            return found


class FileBytes:
    """A file of a storage, which had ``nbytes`` bytes when it was listed or indexed.

    Several threads may use it at once. ``shared`` are values of other files of the same scan or reader.
    """

    def __init__(
        self, storage: Storage, name: str, nbytes: int, counter: ByteCounter, shared: SharedValues | None = None
    ) -> None:
        self.name, self.nbytes = name, nbytes
        self._storage, self._counter, self._shared = storage, counter, shared or SharedValues()

    @property
    def path(self) -> str:
        """The file's address, as a user would write it."""
        return f"{self._storage.url.rstrip('/')}/{self.name}"

    @property
    def local_path(self) -> str | None:
        """The path of the file for libraries that open it themselves; None if it is not on a local file system."""
        return self.path if isinstance(self._storage, LocalStorage) else None

    def section(self, offset: int, nbytes: int) -> FileBytes:
        """Return a part of the file, to be read as a file. Raises ValueError for a part outside of the file."""
        if not 0 <= offset <= offset + nbytes <= self.nbytes:
            raise ValueError(f"{nbytes:,} bytes at {offset:,} are outside of the file of {self.nbytes:,} bytes")
        return _FileSection(self, offset, nbytes)

    def with_content(self, content: bytes) -> FileBytes:
        """Return an object that reads this file, in the place of its bytes, as ``content``: what it has unpacked."""
        return _UnpackedFile(self, content)

    def count_bytes(self, byte_count: int) -> None:
        """Count bytes that a library has read itself."""
        self._counter.add_bytes(byte_count)

    def read(self, offset: int, count: int) -> bytes:
        """Return ``count`` bytes from ``offset``. Raises DataChanged if the file is shorter now, or deleted.

        Raises ValueError for a range outside of the file: a damaged file may tell any range.
        """
        if not 0 <= offset <= offset + count <= self.nbytes:
            raise ValueError(f"bytes {offset:,} to {offset + count:,} are outside of the file of {self.nbytes:,} bytes")
        buffer = np.empty(count, np.uint8)
        self._fill(offset, buffer.data)
        return buffer.tobytes()

    def read_rows(self, offsets: Sequence[int], rows: NDArray[np.uint8]) -> None:
        """Fill each row of a two-dimensional array with the bytes at its offset. Raises as ``read`` does."""
        width = rows.shape[1]
        if len(offsets) and not 0 <= min(offsets) <= max(offsets) <= self.nbytes - width:
            raise ValueError(f"{width:,} bytes at {max(offsets):,} are outside of the file of {self.nbytes:,} bytes")
        with self._reporting_changes(f"{width:,} bytes each at {len(offsets):,} places"):
            read_ranges(self._storage, self.name, offsets, rows)
        self._counter.add_bytes(rows.nbytes)

    def beside(self, name: str) -> FileBytes | None:
        """Return the file of that name in the same folder, to be read with this one; None if there is none."""
        path = self._path_beside(name)
        nbytes = self._storage.size(path)
        return None if nbytes is None else FileBytes(self._storage, path, nbytes, self._counter, self._shared)

    def show_folder(self) -> str:
        """Return the first names in the file's folder, for errors."""
        return show_names(self._storage, self.name.rpartition("/")[0])

    def parse_beside(self, name: str, parse: Callable[[FileBytes | None], T]) -> T:
        """Return ``parse(self.beside(name))``, which is called once for all files of a folder that share values.

        So all of them must give the same function.
        """
        return self._shared.find_or_make(self._path_beside(name), lambda: parse(self.beside(name)))

    def read_chunks(self, begin: int = 0, *, size: int = CHUNK) -> Iterator[bytearray]:
        """Yield the bytes from ``begin`` to the end in chunks; each chunk overwrites the memory of the previous one."""
        buffer = bytearray(min(size, self.nbytes - begin))
        for offset in range(begin, self.nbytes, size):
            if self.nbytes - offset < len(buffer):
                buffer = bytearray(self.nbytes - offset)
            self._fill(offset, memoryview(buffer))
            yield buffer

    def check_size(self) -> None:
        """Raise DataChanged if the file's size has changed, or the file is deleted."""
        found = self._storage.size(self.name)
        if found != self.nbytes:
            raise data_changed_error(
                self.path, f"{self.nbytes:,} bytes", "no such file" if found is None else f"{found:,} bytes"
            )

    def _path_beside(self, name: str) -> str:
        return self.name[: self.name.rfind("/") + 1] + name

    def _fill(self, offset: int, into: memoryview) -> None:
        with self._reporting_changes(f"bytes {offset:,} to {offset + into.nbytes:,}"):
            self._storage.read(self.name, offset, [into])
        self._counter.add_bytes(into.nbytes)

    @contextmanager
    def _reporting_changes(self, expected: str) -> Iterator[None]:
        """Raise DataChanged if the block finds that the file is shorter now, or deleted."""
        try:
            yield
        except (NotThere, Truncated) as error:
            found = "no such file" if isinstance(error, NotThere) else "a shorter file"
            raise data_changed_error(self.path, expected, found) from error


class _FileSection(FileBytes):
    """A part of a file."""

    def __init__(self, file: FileBytes, begin: int, nbytes: int) -> None:
        super().__init__(file._storage, file.name, nbytes, file._counter, file._shared)
        self._file, self._begin = file, begin

    def _fill(self, offset: int, into: memoryview) -> None:
        self._file._fill(self._begin + offset, into)


class _UnpackedFile(FileBytes):
    """A file whose content is in memory."""

    def __init__(self, file: FileBytes, content: bytes) -> None:
        super().__init__(file._storage, file.name, len(content), file._counter, file._shared)
        self._content = content

    def _fill(self, offset: int, into: memoryview) -> None:
        into[:] = self._content[offset : offset + into.nbytes]


def read_ranges(storage: Storage, path: str, offsets: Sequence[int], rows: NDArray[np.uint8]) -> None:
    """Fill each row with the bytes of a file at its offset; several threads ask a storage that is not local."""
    if isinstance(storage, LocalStorage):
        storage.read_ranges(path, offsets, rows)
        return
    with ThreadPoolExecutor(_REMOTE_READS, thread_name_prefix="allranks-ranges") as pool:
        list(pool.map(lambda offset, row: storage.read(path, offset, [row.data]), offsets, rows))


def show_names(storage: Storage, folder: str) -> str:
    """Return the first names in a folder as a text, for errors; an empty one if there are none, or no such folder."""
    entries = storage.list(folder)
    names = [entry.name + ("/" if entry.size is None else "") for entry in entries if not entry.name.startswith(".")]
    return ", ".join(names[:_SHOWN]) + (f", ... ({len(names)} entries)" if len(names) > _SHOWN else "")


def digest_of_places(*files: FileBytes) -> str:
    """Return a digest of a few places of each file, for formats without a checksum of the file."""
    words: list[str | bytes] = []
    for one in files:
        size = min(_PLACE_BYTES, one.nbytes)
        places = sorted({(one.nbytes - size) * at // (_PLACES - 1) for at in range(_PLACES)})
        words += [str(one.nbytes), *(one.read(at, size) for at in places)]
    return show(digest(*words))[:16]


def data_changed_error(path: str, expected: str, actual: str) -> DataChanged:
    """Return the error for a file that has changed since it was indexed."""
    return DataChanged(
        f"{path} has changed since it was indexed: expected {expected}, found {actual}.",
        path=path,
        remedy="Put the old file back; or start the job again, which indexes the new file.",
    )


def wrong_index_error(path: str, expected: str, actual: str) -> DataChanged:
    """Return the error for a file that differs from its index, although it was perhaps not changed."""
    return DataChanged(
        f"{path} differs from its index: expected {expected}, found {actual}.",
        path=path,
        remedy="If nobody has changed the file, delete its index (in .allranks-index beside the data or in cache=...) "
        "and start the job again.",
    )


def incomplete_file_error(
    file: FileBytes,
    noun: str,
    at: int,
    why: str,
    remedy: str = "Was it cut off, damaged or compressed? Write or fetch it again, or leave it out.",
) -> DataError:
    """Return the error for a file that is not a complete ``noun``: at byte ``at``, ``why``."""
    return DataError(
        f"{file.path} ({file.nbytes:,} bytes) is not a complete {noun}: at byte {at:,}, {why}.",
        path=file.path,
        remedy=remedy,
    )


def check_digest(path: str, data: bytes, digest: int, part: str) -> None:
    """Raise DataChanged if XXH3-64 of these bytes of a file is not the digest in the index."""
    found = xxhash.xxh3_64_intdigest(data)
    if found != digest:
        raise data_changed_error(path, f"the digest {digest:016x} in {part}", f"{found:016x}")


@contextmanager
def naming_file(path: str, operation: str) -> Iterator[None]:
    """Raise DataError with the path of the file in place of any other error of the block."""
    try:
        yield
    except DataError:
        raise
    except StorageError as error:
        raise DataError(f"{path} cannot be {operation}: {error}", path=path) from error
    except Exception as error:  # of the library that reads the format
        raise DataError(
            f"{path} cannot be {operation}: {text_of(error).rstrip('.')}.",
            path=path,
            remedy="Fetch or write the file again, or leave it out.",
        ) from error
