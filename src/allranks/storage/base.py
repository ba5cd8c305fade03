"""Define what a checkpoint needs of a storage: durable files, blocks, and errors with a path."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

# A file is written in blocks of this many bytes, and the memory of a block begins at a page.
BLOCK = 8 << 20
PAGE = 4096


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in a folder: a file with its size in bytes, or a folder (``size`` None).

    ``modified`` is when it was last changed, in seconds since 1970 by the clock of the storage; None if that is not
    known. ``link``: it is a symbolic link, and ``size`` and ``modified`` are those of its target.
    """

    name: str
    size: int | None
    modified: float | None = field(default=None, compare=False)
    link: bool = field(default=False, compare=False)


class BlockSource(Protocol):
    """The content of a file, block by block. Methods are called from any thread; an exception ends the write."""

    @property
    def size(self) -> int:
        """The bytes of the file."""

    def block(self, number: int) -> memoryview:
        """Return the bytes from ``number * BLOCK`` on: BLOCK of them, fewer in the last block; page-aligned in memory.

        May wait until they exist. Each block is requested once, in ascending order.
        """

    def done(self, number: int) -> None:
        """Note that the block's memory is no longer needed."""


class Storage(Protocol):
    """A folder, bucket or memory that stores files. Paths are relative, with ``/``. Thread-safe, and any rank may call
    any method on its own.

    What was written is durable when the method returns: it survives a power cut. Every error of the file system or the
    service is raised as StorageError (its kinds are below). The message names the path and the place.
    """

    @property
    def url(self) -> str:
        """The address, as a person would write it."""

    def write(self, path: str, source: BlockSource) -> None:
        """Write a new file and its folders. A write that fails leaves no complete file. Raises AlreadyThere."""

    def put(self, path: str, data: bytes, *, replace: bool = False) -> None:
        """Write a small file and its folders, completely or not at all. Replace an existing file only with ``replace``.

        Without ``replace``, exactly one of several writers of one path succeeds; the others raise AlreadyThere.
        """

    def get(self, path: str) -> bytes:
        """Return the content of a file. Raises NotThere."""

    def read(self, path: str, offset: int, into: Sequence[memoryview]) -> None:
        """Fill the buffers, one after the other, from ``offset`` on. Raises NotThere, or Truncated if the file has too
        few bytes.
        """

    def size(self, path: str) -> int | None:
        """Return the bytes of a file, None if there is no such file."""

    def list(self, folder: str) -> tuple[Entry, ...]:
        """Return the entries of a folder ("" for the top), sorted by name; an empty list if there is no such folder."""

    def delete(self, path: str) -> None:
        """Remove a file, or a symbolic link itself, if it exists.

        Raises StorageError, and removes nothing, if a folder of the path is a symbolic link: its target may belong to
        somebody else.
        """

    def remove_folder(self, folder: str) -> None:
        """Remove a folder if it exists, is empty, and is no symbolic link; object stores have no folders."""
