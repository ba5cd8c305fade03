"""Parse the target of an export. If it is a bucket, write to a temporary folder and upload the files."""

from __future__ import annotations

import argparse
import mmap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from allranks.cli.local_path import local_path
from allranks.errors import AlreadyThere
from allranks.storage.base import BLOCK, Storage
from allranks.storage.detect import CLOUDS, open_storage
from allranks.storage.temporary_folder import temporary_folder


def export_place(text: str) -> Path | str:
    """Convert the text of an argument to a path, or keep the address of a bucket. For argparse, as ``type=``."""
    scheme, separator, rest = text.partition("://")
    if not separator or scheme not in CLOUDS:
        return local_path(text)
    if "/" not in rest.rstrip("/"):
        raise argparse.ArgumentTypeError(f"expected {scheme}://bucket/name, found {text!r}")
    return text.rstrip("/")


def fill(where: Path | str, write: Callable[[Path], tuple[Path, ...]], *, force: bool) -> tuple[str, ...]:
    """Let ``write`` write to a path; return where the files are.

    ``write`` returns its files; the main file must be last. For a bucket, the path is a temporary one, and its files
    are uploaded. Raises AlreadyThere, StorageError.
    """
    if isinstance(where, Path):
        return tuple(map(str, write(where)))
    parent, _, name = where.rpartition("/")
    storage = open_storage(parent)
    with temporary_folder("export") as folder:
        out = Path(folder, name)
        written = write(out)
        below = written if all(path.is_file() for path in written) else [out / one for one in files_below(out)]
        return upload(Path(folder), [str(path.relative_to(folder)) for path in below], storage, force=force)


class _File:
    """A local file that is read block by block (a BlockSource)."""

    def __init__(self, content: Any, size: int) -> None:
        self._content, self.size = memoryview(content), size

    def block(self, number: int) -> memoryview:
        return self._content[number * BLOCK : (number + 1) * BLOCK]

    def done(self, number: int) -> None:
        """Do nothing: the file is mapped into memory, so a block need not be released."""

    def close(self) -> None:
        self._content.release()


def upload(folder: Path, names: Sequence[str], storage: Storage, *, force: bool = False) -> tuple[str, ...]:
    """Upload files below a folder to a storage, in this order; return their addresses. **One rank calls.**

    If one of the names exists already, raise AlreadyThere before anything is written; with ``force``, replace it. The
    last file exists only when all files do. Raises StorageError.
    """
    there = [name for name in names if storage.size(name) is not None]
    if there and not force:
        raise AlreadyThere(
            f"{storage.url} already contains {', '.join(there)}.", remedy="Name another OUT, or pass --force."
        )
    for name in reversed(there):
        storage.delete(name)
    for name in names:
        _upload(folder / name, name, storage)
    return tuple(f"{storage.url}/{name}" for name in names)


def _upload(local: Path, name: str, storage: Storage) -> None:
    size = local.stat().st_size
    if size < BLOCK:
        storage.put(name, local.read_bytes())
        return
    with open(local, "rb") as file, mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as content:
        source = _File(content, size)
        try:
            storage.write(name, source)
        finally:
            source.close()


def files_below(folder: Path) -> tuple[str, ...]:
    """Return the files below a folder. Files that describe the others (their names start with a dot or _) are last."""
    names = [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]
    return tuple(sorted(names, key=lambda name: (name.rpartition("/")[2][0] in "._", name)))
