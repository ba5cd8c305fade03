"""Write a new file past the page cache.

The page cache costs a copy into fresh memory, which is slower than the disk. So full pages are written with O_DIRECT
into reserved space. The last bytes, less than a page, go through the cache. If the file system refuses O_DIRECT, when
the file is opened or at the first write, all bytes go through the cache.
"""

from __future__ import annotations

import ctypes
import errno
import os

from .base import PAGE

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_REFUSED = (errno.EINVAL, errno.EOPNOTSUPP)

# Not os.posix_fallocate: where a file system cannot reserve, glibc's writes a byte into every page instead.
_fallocate = ctypes.CDLL(None, use_errno=True).fallocate
_fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]


class NewFile:
    """A new file, open for writing. Raises OSError, as the system does, also if the file exists.

    ``refused``: why bytes went through the page cache; None if O_DIRECT was not refused.
    """

    def __init__(self, where: str, size: int) -> None:
        self.refused: str | None = None
        self._direct: int | None = None
        self._plain = os.open(where, _NEW, 0o666)
        try:
            _reserve(self._plain, size)
            self._direct = os.open(where, os.O_WRONLY | os.O_DIRECT | os.O_CLOEXEC)
        except OSError as error:
            if error.errno not in _REFUSED:
                self.close()
                os.unlink(where)
                raise
            self.refused = f"O_DIRECT is refused when the file is opened ({error.strerror})"

    def write(self, offset: int, data: memoryview) -> None:
        """Write bytes at an offset that is a multiple of PAGE. Thread-safe."""
        pages = 0
        if self._direct is not None and self.refused is None:
            pages = len(data) - len(data) % PAGE
            try:
                _write_all(self._direct, offset, data[:pages])
            except OSError as error:
                if error.errno not in _REFUSED:
                    raise
                self.refused = f"O_DIRECT is refused when the file is written ({error.strerror})"
                pages = 0
        _write_all(self._plain, offset + pages, data[pages:])

    def sync(self) -> None:
        """Make the bytes of the file durable. The caller makes the name durable with fsync of the folder."""
        os.fdatasync(self._plain)

    def close(self) -> None:
        os.close(self._plain)
        if self._direct is not None:
            os.close(self._direct)


def _reserve(fd: int, size: int) -> None:
    """Reserve disk space for a file, if the file system can: a full disk is then found before a byte is written."""
    if size and _fallocate(fd, 0, 0, size):
        code = ctypes.get_errno()
        if code not in (*_REFUSED, errno.ENOSYS, errno.EINTR):
            raise OSError(code, os.strerror(code))


def _write_all(fd: int, offset: int, data: memoryview) -> None:
    while data:
        written = os.pwrite(fd, data, offset)
        offset += written
        data = data[written:]
