"""Store files in a folder of a local or shared file system."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from typing import BinaryIO

from allranks.errors import StorageError

from .base import PAGE, BlockSource, Entry
from .deletion import delete_empty_folder, delete_name, open_folder
from .new_file import NewFile
from .os_errors import (
    existing_file_error,
    not_a_file_error,
    split_path,
    storage_error,
    too_large_error,
    truncated_file_error,
)
from .pull import pull_blocks

_MOST_BUFFERS = os.sysconf("SC_IOV_MAX")
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)
_NOT_DIRECT = (errno.EINVAL, errno.EOPNOTSUPP)  # refused by the file system, or for an unaligned address
_NO_SUCH_FILE = (FileNotFoundError, NotADirectoryError)
_NO_FILES = {errno.ENXIO: "socket or a pipe", errno.ELOOP: "link that leads to itself"}
_NOTHING_THERE = (errno.ENOENT, errno.ELOOP)  # removed since the folder was read; a link that leads nowhere
_KINDS = {stat.S_IFDIR: "folder", stat.S_IFIFO: "pipe", stat.S_IFCHR: "device", stat.S_IFBLK: "device"}
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class LocalStorage:
    """A folder of a local or shared file system, created by the first write.

    ``writers``: the number of threads that write one file.
    ``direct``: read full pages past the page cache into page-aligned memory, if the file system allows it. The bytes
    then come from the disk, and the page cache keeps its content.
    ``buffered``: why the last file was written through the page cache (durable, but slower); None if it was not.

    A process that is killed in ``put`` may leave a file ``.<name>.<8 hex>.tmp``.
    """

    def __init__(self, root: str | os.PathLike[str], *, writers: int = 6, direct: bool = False) -> None:
        self._root = Path(root).absolute()
        self._real_root = os.path.realpath(root)
        self._writers = writers
        self._direct = direct
        self.buffered: str | None = None

    @property
    def url(self) -> str:
        return str(self._root)

    def write(self, path: str, source: BlockSource) -> None:
        where = self._full_path(path)
        with self._translate_errors("write", path, needs=source.size):
            self._make_folders(where)
            file = NewFile(str(where), source.size)

        def sink(offset: int, data: memoryview) -> None:
            with self._translate_errors("write", path):
                file.write(offset, data)

        try:
            try:
                pull_blocks(source, sink, thread_count=self._writers)
                with self._translate_errors("write", path):
                    file.sync()
            finally:
                file.close()
            with self._translate_errors("write", path):
                _sync_folder(where.parent)
        except BaseException:
            with suppress(StorageError):
                self.delete(path)
            raise
        self.buffered = file.refused

    def put(self, path: str, data: bytes, *, replace: bool = False) -> None:
        where = self._full_path(path)
        temporary = where.with_name(f".{where.name}.{secrets.token_hex(4)}.tmp")
        with self._translate_errors("write", path, needs=len(data)):
            self._make_folders(where)
            try:
                _write_small(temporary, data)
                if replace:
                    with self._open_folder(split_path(path)[:-1]) as folder:
                        os.replace(temporary, where.name, dst_dir_fd=folder)
                else:
                    self._give_name(temporary, where, path)
            finally:
                temporary.unlink(missing_ok=True)
            _sync_folder(where.parent)

    def get(self, path: str, *, most: int | None = None) -> bytes:
        where = self._full_path(path)
        with self._translate_errors("read", path), open(self._open_file(str(where), path), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            data = b"" if most is not None and size > most else _read_all(file, size, most)
            if most is not None and max(size, len(data)) > most:
                raise too_large_error(str(where), "the file", max(size, len(data)), most)
            return data

    def read(self, path: str, offset: int, into: Sequence[memoryview]) -> None:
        split_path(path)
        left = [buffer.cast("B") for buffer in into if buffer.nbytes]
        with self._translate_errors("read", path):
            fd = self._open_file(f"{self._root}/{path}", path)  # a Path would take longer than the read
            try:
                if self._direct and left:
                    count = _read_direct(f"{self._root}/{path}", offset, left[0])
                    offset, left = offset + count, _buffers_after(left, count)
                while left:
                    count = os.preadv(fd, left[:_MOST_BUFFERS], offset)
                    if not count:
                        until = offset + sum(map(len, left))
                        raise truncated_file_error(path, self.url, requested_end=until, size=os.fstat(fd).st_size)
                    offset += count
                    left = _buffers_after(left, count)
            finally:
                os.close(fd)

    def read_ranges(self, path: str, offsets: Iterable[int], rows: Iterable[memoryview]) -> None:
        """Fill each row with the bytes of a file from its offset on. The file is opened once. Raises as ``read``."""
        with self._translate_errors("read", path), open(self._open_file(f"{self._root}/{path}", path), "rb") as file:
            fd = file.fileno()
            for offset, row in zip(offsets, rows, strict=True):
                if os.preadv(fd, [row], offset) != row.nbytes:
                    end = offset + row.nbytes
                    raise truncated_file_error(path, self.url, requested_end=end, size=os.fstat(fd).st_size)

    def prefetch_bytes(self, path: str, offset: int, count: int) -> None:
        """Ask the system to load bytes of a file into the page cache, without waiting. A missing file is no error."""
        with suppress(OSError):
            fd = os.open(f"{self._root}/{path}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # no wait for a pipe
            try:
                os.posix_fadvise(fd, offset, count, os.POSIX_FADV_WILLNEED)
            finally:
                os.close(fd)

    def size(self, path: str) -> int | None:
        where = self._full_path(path)
        with self._translate_errors("look at", path), suppress(*_NO_SUCH_FILE):
            try:
                about = where.stat()
            except OSError as error:
                if error.errno in _NOTHING_THERE:
                    return None
                raise
            return about.st_size if stat.S_ISREG(about.st_mode) else None
        return None

    def list(self, folder: str) -> tuple[Entry, ...]:
        where = self._full_path(folder) if folder else self._root
        found = []
        with self._translate_errors("list", folder), suppress(*_NO_SUCH_FILE), os.scandir(where) as entries:
            for entry in entries:
                try:
                    about, link = entry.stat(), entry.is_symlink()
                except OSError as error:
                    if error.errno in _NOTHING_THERE:
                        continue
                    raise
                size = None if stat.S_ISDIR(about.st_mode) else about.st_size
                special = size is not None and not stat.S_ISREG(about.st_mode)
                found.append(Entry(entry.name, size, about.st_mtime, link, special))
        return tuple(sorted(found, key=lambda entry: entry.name))

    def delete(self, path: str) -> None:
        *folders, name = split_path(path)
        with self._translate_errors("delete", path), suppress(*_NO_SUCH_FILE), self._open_folder(folders) as folder:
            delete_name(folder, name)
            _sync(folder)

    def remove_folder(self, folder: str) -> None:
        *folders, name = split_path(folder)
        with self._translate_errors("remove", folder), suppress(*_NO_SUCH_FILE), self._open_folder(folders) as above:
            if delete_empty_folder(above, name):
                _sync(above)

    def _open_folder(self, folders: Sequence[str]) -> AbstractContextManager[int]:
        """Return the open folder in which a name may be deleted or replaced: in it, no link or mount is followed.

        Links in the address of the storage are followed as they were when it was opened.
        """
        return open_folder(self._real_root, folders)

    def _open_file(self, where: str, path: str) -> int:
        """Return the descriptor of a regular file, open for reading. A pipe or a device would block, or never end."""
        try:
            fd = os.open(where, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            if error.errno in _NO_FILES:
                raise not_a_file_error(path, self.url, _NO_FILES[error.errno]) from error
            raise
        mode = os.fstat(fd).st_mode
        if not stat.S_ISREG(mode):
            os.close(fd)
            raise not_a_file_error(path, self.url, _KINDS.get(stat.S_IFMT(mode), "special file"))
        return fd

    def _full_path(self, path: str) -> Path:
        return self._root.joinpath(*split_path(path))

    @contextmanager
    def _translate_errors(self, doing: str, path: str, *, needs: int | None = None) -> Iterator[None]:
        """Raise StorageError in place of an OSError of the block.

        ``needs``: the bytes to be written; if the disk is full, the message compares them with the free space.
        """
        try:
            yield
        except OSError as error:
            found = ""
            if needs is not None and error.errno == errno.ENOSPC:
                found = f"{needs:,} bytes are needed"
                with suppress(OSError):
                    disk = os.statvfs(self._root)
                    found += f", {disk.f_bavail * disk.f_frsize:,} are free"
            raise storage_error(error, doing, path, self.url, found) from error

    def _make_folders(self, where: Path) -> None:
        """Create the folders of a file, and make their names durable.

        Existing folders below the root are synced too: the process that created them may have died before it synced
        them.
        """
        missing = list(takewhile(lambda folder: not folder.exists(), (self._root, *self._root.parents)))
        below = [folder for folder in where.parents if folder.is_relative_to(self._root) and folder != self._root]
        for folder in (*reversed(missing), *reversed(below)):
            with suppress(FileExistsError):
                folder.mkdir()
            _sync_folder(folder.parent)
        with self._open_folder(where.parent.relative_to(self._root).parts):
            pass  # each of them is a folder: what is behind a link may be somebody else's

    def _give_name(self, temporary: Path, where: Path, path: str) -> None:
        """Rename a complete temporary file to its final name. Raises AlreadyThere if a file of that name exists."""
        try:
            os.link(temporary, where)
        except FileExistsError:
            # A server (NFS) may have created the link, lost the answer, and received the request again.
            if temporary.stat().st_nlink != 2:
                raise
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            self._rename_under_claim(temporary, where, path)

    def _rename_under_claim(self, temporary: Path, where: Path, path: str) -> None:
        """Rename a file on a file system without hard links: only the creator of ``.<name>.claim`` may do so."""
        claim = where.with_name(f".{where.name}.claim")
        try:
            os.close(os.open(claim, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
        except FileExistsError:
            why = f", or a process is writing it: {claim} exists (if the process has died, remove it)"
            raise existing_file_error(path, self.url, why) from None
        try:
            if where.exists():
                raise existing_file_error(path, self.url)
            temporary.rename(where)
        finally:
            claim.unlink()


def _read_direct(where: str, offset: int, into: memoryview) -> int:
    """Fill ``into`` with full pages, read past the page cache; return the bytes read: 0 if the file system refuses."""
    pages = len(into) - len(into) % PAGE
    count = 0
    try:
        fd = os.open(where, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
        try:
            while count < pages and (more := os.preadv(fd, [into[count:pages]], offset + count)):
                count += more
        finally:
            os.close(fd)
    except OSError as error:
        if error.errno not in _NOT_DIRECT:
            raise
    return count


def _write_small(where: Path, data: bytes) -> None:
    with open(where, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, _FOLDER)
    try:
        _sync(fd)
    finally:
        os.close(fd)


def _sync(folder: int) -> None:
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network file systems have no fsync of folders: names are durable at once
            raise


def _read_all(file: BinaryIO, size: int, most: int | None) -> bytes:
    """Return the content of a file of ``size`` bytes; if it grows meanwhile, at most a little more than ``most``.

    ``file.read(most)`` would first take ``most`` bytes of memory.
    """
    parts = []
    left = None if most is None else most + 1
    while part := file.read(max(size, 1 << 16) + 1 if left is None else min(max(size, 1 << 16) + 1, left)):
        parts.append(part)
        left = None if left is None else left - len(part)
    return b"".join(parts)


def _buffers_after(buffers: Sequence[memoryview], count: int) -> list[memoryview]:
    """Return the buffers without their first ``count`` bytes, counted over all buffers."""
    for index, buffer in enumerate(buffers):
        if count < len(buffer):
            return [buffer[count:], *buffers[index + 1 :]]
        count -= len(buffer)
    return []
