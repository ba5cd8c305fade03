"""Files of this machine into a storage: what an export wrote goes into a bucket."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from allranks.errors import AlreadyThere
from allranks.storage.base import BLOCK, Storage


class _File:
    """A local file, block by block (a BlockSource)."""

    def __init__(self, content: Any, size: int) -> None:
        self._content, self.size = memoryview(content), size

    def block(self, number: int) -> memoryview:
        return self._content[number * BLOCK : (number + 1) * BLOCK]

    def done(self, number: int) -> None:
        """Nothing is to be given back: the file is mapped."""

    def close(self) -> None:
        self._content.release()


def upload(folder: Path, names: Sequence[str], storage: Storage, *, force: bool = False) -> tuple[str, ...]:
    """Write files below a folder into a storage, in this order; return their addresses. **One rank calls.**

    What has the name of one of them is in the way (AlreadyThere), before anything is written; with ``force`` it is
    replaced. So the last file is there only when all are. Raises StorageError.
    """
    there = [name for name in names if storage.size(name) is not None]
    if there and not force:
        raise AlreadyThere(f"{storage.url} has {', '.join(there)} already.", remedy="Name another place, or --force.")
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
    """Return the files below a folder; those that say what the others are (names with a dot or _ first) come last."""
    names = [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]
    return tuple(sorted(names, key=lambda name: (name.rpartition("/")[2][0] in "._", name)))
