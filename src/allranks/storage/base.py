"""Define the interface of a storage for checkpoints: durable files, written in blocks; errors name the path."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

# A file is written in blocks of this many bytes, and the memory of a block begins at a page.
BLOCK = 8 << 20
PAGE = 4096


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in a folder: a file with its size in bytes, or a folder (``size`` is None).

    ``modified``: the time of the last change, in seconds since 1970 by the clock of the storage; None if it is not
    known.
    ``link``: whether the name is a symbolic link. If so, the other values are those of the link's target.
    ``special``: whether it is neither a file nor a folder, but a pipe, a device or a socket.
    """

    name: str
    size: int | None
    modified: float | None = field(default=None, compare=False)
    link: bool = field(default=False, compare=False)
    special: bool = field(default=False, compare=False)


class BlockSource(Protocol):
    """The content of a file to write, in blocks. Methods are called from any thread; an exception ends the write."""

    @property
    def size(self) -> int:
        """The size of the file, in bytes."""

    def block(self, number: int) -> memoryview:
        """Return block ``number`` of the file: the BLOCK bytes (fewer in the last block) from ``number * BLOCK`` on.

        The memory begins at a multiple of PAGE. The call may wait until the bytes exist. Each block is requested once,
        in ascending order.
        """

    def done(self, number: int) -> None:
        """Release the memory of block ``number``. The storage calls this when it has written the block."""


class Storage(Protocol):
    """A folder, bucket or memory that stores files.

    Paths are relative, with ``/``. All methods are thread-safe, and a rank may call them without the other ranks.

    When a method that writes returns, its bytes are durable: they survive a power cut. Every error of the file system
    or the service is raised as StorageError (its kinds are below). The message names the path and the storage.
    """

    @property
    def url(self) -> str:
        """The address of the storage, as a user would write it."""

    def write(self, path: str, source: BlockSource) -> None:
        """Write a new file and create its folders. A write that fails leaves no complete file. Raises AlreadyThere."""

    def put(self, path: str, data: bytes, *, replace: bool = False) -> None:
        """Write a small file, completely or not at all, and create its folders. Replace a file only with ``replace``.

        Without ``replace``, exactly one of several writers of one path succeeds; the others raise AlreadyThere.
        """

    def get(self, path: str, *, most: int | None = None) -> bytes:
        """Return the content of a file. Raises NotThere; NotAFile for a folder, a pipe or a device.

        ``most``: raise Unsafe, and read nothing, if the file has more bytes.
        """

    def read(self, path: str, offset: int, into: Sequence[memoryview]) -> None:
        """Fill the buffers, one after the other, with the bytes of a file from ``offset`` on.

        Raises NotThere if there is no such file, and Truncated if it has too few bytes.
        """

    def size(self, path: str) -> int | None:
        """Return the size of a file in bytes; None if there is no such file, or it is a folder, a pipe or a device."""

    def list(self, folder: str) -> tuple[Entry, ...]:
        """Return the entries of a folder ("" for the top), sorted by name; an empty tuple if there is no folder."""

    def delete(self, path: str) -> None:
        """Remove a file, or a symbolic link (not its target). Does nothing if there is no such file.

        Raises StorageError, and removes nothing, if a folder of the path is a symbolic link: the target of the link may
        belong to another user.
        """

    def remove_folder(self, folder: str) -> None:
        """Remove a folder if it exists, is empty, and is not a symbolic link. Does nothing in object stores."""
