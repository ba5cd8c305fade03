"""Store steps in memory: shard files in the memory of hosts, the manifest in the run's folder.

A step in memory exists if its manifest exists, like every step. The manifest is one small file in the run,
``memory.json``. Rank 0 writes it when all ranks have written, and replaces it at the next step. It names its files by a
nonce. So the files of an earlier job, of an incomplete save, or of a step that was abandoned belong to no step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from allranks.checkpoint import inventory, paths
from allranks.checkpoint.memory.peers import HostMemory
from allranks.checkpoint.stage import BlockPool, Bytes
from allranks.errors import AlreadyThere, NotThere, StorageError
from allranks.storage.base import BLOCK, BlockSource, Entry, Storage


class ReplicatedMemory:
    """A Storage for steps in memory, as one rank sees it.

    ``run``: the run's storage. ``mine``: the memory of this rank's host, into which it writes. ``copy``: another host's
    memory for a copy, or None. ``holders``: by path, the memory that a restore reads.
    """

    def __init__(self, run: Storage, mine: HostMemory, copy: HostMemory | None) -> None:
        self._run, self._mine, self._copy = run, mine, copy
        self._places = (mine,) if copy is None else (mine, copy)
        self._blocks = BlockPool()
        self._written: list[str] = []
        self.holders: Mapping[str, HostMemory] = {}

    @property
    def url(self) -> str:
        return f"{self._run.url}, in memory"

    def write(self, path: str, source: BlockSource) -> None:
        self._written.append(path)
        self._mine.write(path, source)
        if self._copy is not None:
            self._copy.write(path, _StoredFile(self._mine, path, source.size, self._blocks))

    def put(self, path: str, data: bytes, *, replace: bool = False) -> None:
        where = self._manifest_path(path)
        if replace and inventory.has_foreign_memory_file(self._run):
            raise AlreadyThere(
                f"{self._run.url}/{where} is a file of another program: it is not replaced.",
                path=where,
                remedy="Move it, or choose another directory for the checkpoints.",
            )
        self._run.put(where, data, replace=replace)

    def get(self, path: str, *, most: int | None = None) -> bytes:
        return self._run.get(self._manifest_path(path), most=most)

    def read(self, path: str, offset: int, into: Sequence[memoryview]) -> None:
        self._memory_with_file(path).read(path, offset, into)

    def size(self, path: str) -> int | None:
        return self._memory_with_file(path).size(path)

    def list(self, folder: str) -> tuple[Entry, ...]:
        """Return (), because steps are listed in the run's storage."""
        del folder
        return ()

    def delete(self, path: str) -> None:
        with suppress(ValueError):
            self._written.remove(path)
        for one in self._places:
            one.delete(path)

    def remove_folder(self, folder: str) -> None:
        for one in self._places:
            one.remove_folder(folder)

    def written_paths(self) -> tuple[str, ...]:
        """Return the paths of files that this rank has written and not removed."""
        return tuple(self._written)

    def _memory_with_file(self, path: str) -> HostMemory:
        if path not in self.holders:
            raise NotThere(f"no host has {path!r} in its memory.", path=path)
        return self.holders[path]

    def _manifest_path(self, path: str) -> str:
        if not path.endswith(f"/{paths.MANIFEST}"):
            raise StorageError(
                f"cannot write {path!r}: only the manifest of a step in memory is written here.", path=path
            )
        return paths.MEMORY


class _StoredFile:
    """The content of an existing file in a host's memory (a BlockSource)."""

    def __init__(self, memory: HostMemory, path: str, size: int, blocks: BlockPool) -> None:
        self.size = size
        self._memory, self._path, self._pool = memory, path, blocks
        self._in_use: dict[int, Bytes] = {}

    def block(self, number: int) -> memoryview:
        block = self._in_use[number] = self._take_block()
        view = block.data[: min(BLOCK, self.size - number * BLOCK)]
        self._memory.read(self._path, number * BLOCK, [view])
        return view

    def done(self, number: int) -> None:
        if (block := self._in_use.pop(number, None)) is not None:
            self._pool.return_block(block)

    def _take_block(self) -> Bytes:
        block = self._pool.take_block()
        assert block is not None
        return block
