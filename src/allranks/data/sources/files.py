"""Read a data set that consists of files of one format, and define what a format must implement."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from allranks.data.base import BlockRows, Progress, ignore_progress
from allranks.data.index import DatasetIndex, SourceFile
from allranks.data.sources import parts
from allranks.data.sources.cache import IndexCache
from allranks.data.sources.file import ByteCounter, FileBytes, SharedValues, naming_file, wrong_index_error
from allranks.data.sources.folder_index import ReadNames, list_named_files
from allranks.data.sources.listing import ListedFile, list_matching_files
from allranks.data.sources.patterns import FilePatterns
from allranks.storage.base import Storage
from allranks.storage.detect import open_storage
from allranks.storage.local import LocalStorage

T = TypeVar("T")
R = TypeVar("R")
_OPEN_FILES = 256  # whose footers and schemas are held
_REMOTE_THREADS = 16
_INDEX_BYTES, _INDEX_RATIO = 64 << 20, 64  # of a cached index, which is mostly a thousandth of the data


@dataclass(frozen=True, slots=True)
class FileScan:
    """The index of one file: its blocks as (begin, end, rows, check), and a stamp of its content."""

    blocks: tuple[tuple[int, int, int, int], ...]
    stamp: str


@dataclass(frozen=True, slots=True)
class IndexBlock:
    """A block of the index; ``stop`` is the row after the last row that belongs to the data set.

    ``partial``: the block may have more rows, because ``skip`` or ``take`` has cut its file.
    """

    begin: int
    end: int
    stop: int
    check: int
    partial: bool = False

    def check_rows(self, row_count: int, path: str, where: str) -> None:
        """Raise DataChanged if the block, at ``where`` in the file, has other rows than the index counts."""
        if row_count < self.stop or (row_count > self.stop and not self.partial):
            raise wrong_index_error(path, f"{self.stop:,} samples in {where}", f"{row_count:,}")


@dataclass(frozen=True, slots=True, eq=False)
class FileBlocks:
    """The blocks of one file in an index: their ranges, in the unit of the format, and their numbers of samples."""

    begin: NDArray[np.int64]
    end: NDArray[np.int64]
    rows: NDArray[np.int64]

    @property
    def are_ascending(self) -> bool:
        """Whether every block has a range, which begins at or behind the end of the block before."""
        return bool((self.begin < self.end).all() and (self.begin[1:] >= self.end[:-1]).all())

    def gaps(self, nbytes: int) -> list[tuple[int, int]]:
        """Return the ranges of a file of ``nbytes`` bytes that are in no block."""
        bounds = zip([0, *self.end.tolist()], [*self.begin.tolist(), nbytes], strict=True)
        return [(begin, end) for begin, end in bounds if begin < end]


class OpenFile(Protocol):
    """A file that is open for reading blocks. Several threads may use it at once."""

    def read_block(self, block: IndexBlock) -> BlockRows:
        """Read a block, and return its rows. Raises DataError."""


class FileFormat(Protocol):
    """The base class of file formats. A format is frozen and can be pickled."""

    __slots__ = ()

    @property
    def kind(self) -> str:
        """The format's name, which is part of the index."""

    @property
    def suffixes(self) -> tuple[str, ...]:
        """The ends of the names of its files, used if a folder is read."""

    @property
    def block_settings(self) -> tuple[str, ...]:
        """All settings that change how a file is divided into blocks: by default none."""
        return ()

    def is_quick(self, _name: str, /) -> bool:
        """Return whether blocks of this file are read so fast that no thread must read them ahead (by default no)."""
        return False

    def scanning(self) -> AbstractContextManager[Callable[[FileBytes], FileScan]]:
        """Return a context with ``scan_file``, for formats that need something while they scan many files."""
        return nullcontext(self.scan_file)

    @property
    def read_names(self) -> ReadNames | None:
        """The function that reads which files an ``index.json`` names: by default none, and no such file is read."""
        return None

    def scan_file(self, file: FileBytes) -> FileScan:
        """Divide a file into blocks. Several threads call this."""

    def covers(self, file: SourceFile, blocks: FileBlocks) -> bool:
        """Return whether blocks from a cache, at least one, can be all blocks of a file. Nothing is read.

        What only the content shows is left to ``open`` and ``read_block``.
        """

    def open(self, file: FileBytes, stamp: str, blocks: FileBlocks | None) -> OpenFile:
        """Open a file for reading.

        ``blocks`` are those of the index; None if they are not all that the file has. Raises DataChanged if the file
        has samples that are in no block, or if its stamp is cheap to read and has changed.
        """


@dataclass(frozen=True, slots=True)
class FileSource:
    """A source of files of one format."""

    place: FilePatterns
    format: FileFormat
    cache: str | None = None

    @property
    def where(self) -> str:
        return self.place.written

    def index(self, *, progress: Progress = ignore_progress) -> DatasetIndex:
        with naming_file(self.where, "listed"):
            files = self.list_files()
        known = self.cached_index(files)
        have = {file.name for file in known.files}
        missing = [one for one in files if one.name not in have]
        index = (
            parts.merge_indexes(self.format.kind, [known, self.scan_files(missing, progress=progress)])
            if missing
            else known
        )
        if missing:
            self.store_index(index, files)
        return index

    def list_files(self) -> tuple[ListedFile, ...]:
        """Return the files of this source, sorted by name. Raises DataError if there is no file, or one is missing."""
        if (read_names := self.format.read_names) is not None:
            return list_named_files(self.place, self._storage, self.format.suffixes, read_names)
        return list_matching_files(self.place, self._storage, self.format.suffixes)

    def cached_index(self, files: Sequence[ListedFile]) -> DatasetIndex:
        """Return the cached index, reduced to the files that have not changed since they were indexed."""
        most = _INDEX_BYTES + _INDEX_RATIO * sum(one.nbytes for one in files)
        kept = self._cache.load_index(most)
        if kept is None:
            return parts.merge_indexes(self.format.kind, [])
        index, then = kept
        if index.kind != self.format.kind:
            return parts.merge_indexes(self.format.kind, [])
        same = {one.name: one.nbytes for one in files if one.modified is not None and then.get(one.name) == one}
        kept_files = [
            file.name
            for number, file in enumerate(index.files)
            if same.get(file.name) == file.nbytes and self._is_complete(index, number)
        ]
        return parts.index_of_files(index, kept_files)

    def _is_complete(self, index: DatasetIndex, number: int) -> bool:
        """Return whether all blocks of a file can be in a cached index: somebody else may have written it."""
        file, blocks = index.files[number], blocks_of_file(index, number)
        return self.format.covers(file, blocks) if len(blocks.begin) else not file.nbytes

    def scan_files(self, files: Sequence[ListedFile], *, progress: Progress = ignore_progress) -> DatasetIndex:
        """Return an index of these files, which several threads read."""
        total = sum(one.nbytes for one in files)
        storage, kind, shared = self._storage, self.format.kind, SharedValues()
        done = ByteCounter(lambda _: progress(min(done.total, total), total))  # some bytes are read twice

        def one_of(scan_file: Callable[[FileBytes], FileScan], one: ListedFile) -> DatasetIndex:
            read = ByteCounter(done.add_bytes)
            file = FileBytes(storage, one.name, one.nbytes, read, shared)
            with naming_file(file.path, "indexed"):
                scan = scan_file(file)
            done.add_bytes(max(0, one.nbytes - read.total))  # of some formats, little must be read
            about = SourceFile(one.name, one.nbytes, scan.stamp)
            return DatasetIndex.from_blocks(kind, [about], [(0, *block) for block in scan.blocks])

        with self.format.scanning() as scan_file:
            return parts.merge_indexes(kind, map_in_threads(partial(one_of, scan_file), files, self._threads))

    def store_index(self, index: DatasetIndex, files: Sequence[ListedFile]) -> None:
        """Store an index of these files in the cache."""
        self._cache.store_index(index, files)

    def cached_place(self) -> tuple[str, int] | None:
        """Return (address, size in bytes) of the cached index; None if no index is cached."""
        return self._cache.stored_place()

    def open(self, index: DatasetIndex) -> FileReader:
        return FileReader(self._storage, self.format, index)

    @property
    def _storage(self) -> Storage:
        return open_storage(self.place.root)

    @property
    def _cache(self) -> IndexCache:
        patterns = ["/".join(steps) for steps in self.place.patterns]
        return IndexCache(self._storage, [self.format.kind, *self.format.block_settings, "of", *patterns], self.cache)

    @property
    def _threads(self) -> int:
        return _REMOTE_THREADS if "://" in self.place.root else min(_REMOTE_THREADS, os.cpu_count() or 1)


class FileReader:
    """Reads blocks of an index. It keeps the footers and schemas of the files that were used last."""

    def __init__(self, storage: Storage, form: FileFormat, index: DatasetIndex) -> None:
        self._storage, self._format, self._index = storage, form, index
        self._counter, self._shared = ByteCounter(), SharedValues()
        self._opened: OrderedDict[int, OpenFile] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def bytes_read(self) -> int:
        return self._counter.total

    def read(self, block: int) -> BlockRows:
        index = self._index
        stop = int(index.skip[block] + index.rows[block])
        begin, end, check = int(index.begin[block]), int(index.end[block]), int(index.check[block])
        file = int(index.file[block])
        with naming_file(f"{self._storage.url.rstrip('/')}/{index.files[file].name}", "read"):
            return self._open_file(file).read_block(IndexBlock(begin, end, stop, check, file in index.partial))

    def hint(self, block: int) -> bool:
        """Ask the system to prefetch a block, if it consists of lines of a local file; return whether it does."""
        name = self._index.files[int(self._index.file[block])].name
        if not isinstance(self._storage, LocalStorage) or not self._format.is_quick(name):
            return False
        begin, end = int(self._index.begin[block]), int(self._index.end[block])
        self._storage.prefetch_bytes(name, begin, end - begin)
        return True

    def _open_file(self, number: int) -> OpenFile:
        with self._lock:
            if number in self._opened:
                self._opened.move_to_end(number)
                return self._opened[number]
        about = self._index.files[number]
        file = FileBytes(self._storage, about.name, about.nbytes, self._counter, self._shared)
        file.check_size()
        blocks = None if number in self._index.partial else blocks_of_file(self._index, number)
        opened = self._format.open(file, about.stamp, blocks)  # by two threads at once: one of the two is dropped
        with self._lock:
            self._opened[number] = opened
            if len(self._opened) > _OPEN_FILES:
                self._opened.popitem(last=False)
        return opened


def blocks_of_file(index: DatasetIndex, number: int) -> FileBlocks:
    """Return the blocks of one file of an index."""
    here = slice(*np.searchsorted(index.file, (number, number + 1)).tolist())
    return FileBlocks(index.begin[here], index.end[here], index.rows[here])


def map_in_threads(function: Callable[[T], R], items: Iterable[T], threads: int) -> list[R]:
    """Call ``function`` for all items in threads; return the results in order. Raises the first error."""
    pool = ThreadPoolExecutor(threads, thread_name_prefix="allranks-index")
    try:
        return list(pool.map(function, items))
    finally:
        pool.shutdown(cancel_futures=True)
