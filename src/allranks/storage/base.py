"""Bytes that survive: what a checkpoint asks of a file system, an object store, or a fake that fails on purpose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

# A file is written in blocks of this many bytes, and the memory of a block begins at a page.
BLOCK = 8 << 20
PAGE = 4096


@dataclass(frozen=True, slots=True)
class Entry:
    """What is in a folder: a file with its size in bytes, or a folder (``size`` None).

    ``modified`` is when it was last changed, in seconds since 1970 by the clock of the storage; None where that is not
    known. ``link``: it is a symbolic link, and ``size`` and ``modified`` are those of what it leads to.
    """

    name: str
    size: int | None
    modified: float | None = field(default=None, compare=False)
    link: bool = field(default=False, compare=False)


class BlockSource(Protocol):
    """The content of a file, block by block. Methods are called from any thread; those that raise end the write."""

    @property
    def size(self) -> int:
        """The bytes of the whole file."""

    def block(self, number: int) -> memoryview:
        """Return the bytes from ``number * BLOCK`` on: BLOCK of them, fewer in the last block; page-aligned in memory.

        May wait until they are there. Each block is asked for once, and asked for in ascending order.
        """

    def done(self, number: int) -> None:
        """Take note that the block's memory is needed no more."""


class Storage(Protocol):
    """Paths are relative, ``/``-separated. Safe for threads. Any rank may call any method, alone.

    What was written is durable when the method returns: it is there after a power cut. Raises StorageError (its kinds
    below) for whatever the file system or the service says; the message names the path and the place.
    """

    @property
    def url(self) -> str:
        """Where this is, as a person would write it."""

    def write(self, path: str, source: BlockSource) -> None:
        """Write a file that does not exist yet (AlreadyThere), and its folders. What fails leaves no whole file."""

    def put(self, path: str, data: bytes, *, replace: bool = False) -> None:
        """Write a small file whole or not at all, and its folders; over an existing one only with ``replace``.

        Without ``replace``, of several writers of one path exactly one succeeds; the others raise AlreadyThere.
        """

    def get(self, path: str) -> bytes:
        """Return a whole file. Raises NotThere."""

    def read(self, path: str, offset: int, into: Sequence[memoryview]) -> None:
        """Fill the buffers, one after the other, from ``offset`` on. Raises NotThere; Truncated where bytes lack."""

    def size(self, path: str) -> int | None:
        """Return a file's bytes, None if there is no such file."""

    def list(self, folder: str) -> tuple[Entry, ...]:
        """Return what stands in a folder ("" for the top), by name; nothing where there is no such folder."""

    def delete(self, path: str) -> None:
        """Remove a file, or a symbolic link itself, if it is there.

        Raises StorageError, and removes nothing, where a folder on the way is a symbolic link: what is behind it may
        be somebody else's.
        """

    def remove_folder(self, folder: str) -> None:
        """Remove a folder if it is there and empty, and no symbolic link; object stores have none."""
