"""Read complete files as samples: images, sounds, texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allranks.data.base import BlockRows, Progress, ignore_progress
from allranks.data.index import DatasetIndex, SourceFile
from allranks.data.sources.file import ByteCounter, FileBytes, data_changed_error, naming_file
from allranks.data.sources.listing import list_matching_files
from allranks.data.sources.patterns import FilePatterns, Pattern, parse_pattern
from allranks.errors import DataError, NotThere, Unsafe
from allranks.storage.base import Storage
from allranks.storage.detect import open_storage


def folder(pattern: Pattern, *, labels: bool = False) -> FolderSource:
    """Return files as a source. A sample is ``{"path": name below the folder, "bytes": its content}``, and a block.

    With ``labels``, "label" is the number of the file's uppermost folder among the sorted folders of all files: 0 and 1
    for "cat/1.jpg" and "dog/7.jpg". The index is a listing of the files: nothing is read, and nothing is cached. A file
    counts as unchanged as long as its name and its size are the same. So a copy of the folder can be used, on each host
    or after a restart.
    """
    return FolderSource(parse_pattern(pattern), labels)


@dataclass(frozen=True, slots=True)
class FolderSource:
    """The source that ``folder`` returns."""

    place: FilePatterns
    labels: bool

    @property
    def where(self) -> str:
        return self.place.written

    def index(self, *, progress: Progress = ignore_progress) -> DatasetIndex:
        with naming_file(self.where, "listed"):
            found = list_matching_files(self.place, open_storage(self.place.root))
        total = sum(one.nbytes for one in found)
        progress(total, total)
        nbytes = np.array([one.nbytes for one in found], np.int64)
        none, one = np.zeros(len(found), np.int32), np.ones(len(found), np.int64)
        files = tuple(SourceFile(each.name, each.nbytes, "") for each in found)
        number = np.arange(len(found), dtype=np.int32)
        return DatasetIndex("folder", files, number, np.zeros_like(nbytes), nbytes, none, one, none.astype(np.uint64))

    def open(self, index: DatasetIndex) -> FolderReader:
        """Open the files. Raises DataError if labels are requested and a file is in no folder."""
        return FolderReader(open_storage(self.place.root), index, _class_numbers(index) if self.labels else None)


class FolderReader:
    """Reads complete files, each as one block."""

    def __init__(self, storage: Storage, index: DatasetIndex, classes: dict[str, int] | None) -> None:
        self._storage, self._index, self._classes = storage, index, classes
        self._counter = ByteCounter()

    @property
    def bytes_read(self) -> int:
        return self._counter.total

    def read(self, block: int) -> BlockRows:
        about = self._index.files[int(self._index.file[block])]
        file = FileBytes(self._storage, about.name, about.nbytes, self._counter)
        with naming_file(file.path, "read"):
            try:
                data = self._storage.get(about.name, most=about.nbytes)
            except (NotThere, Unsafe) as error:
                actual = "no such file" if isinstance(error, NotThere) else f"{self._storage.size(about.name):,} bytes"
                raise data_changed_error(file.path, f"{about.nbytes:,} bytes", actual) from error
        self._counter.add_bytes(len(data))
        if len(data) != about.nbytes:
            raise data_changed_error(file.path, f"{about.nbytes:,} bytes", f"{len(data):,} bytes")
        sample: dict[str, Any] = {"path": about.name, "bytes": data}
        if self._classes is not None:
            sample["label"] = self._classes[_class_of(about.name)]
        return FileContentRow(sample)


@dataclass(frozen=True, slots=True)
class FileContentRow:
    """A block with a single sample."""

    sample: dict[str, Any]

    def take(self, rows: NDArray[np.int64]) -> list[Any]:
        return [dict(self.sample) for _ in range(len(rows))]


def _class_of(name: str) -> str:
    return name.partition("/")[0]


def _class_numbers(index: DatasetIndex) -> dict[str, int]:
    loose = next((file.name for file in index.files if "/" not in file.name), None)
    if loose is not None:
        raise DataError(
            f"{loose} is not in the folder of a class, so the file has no label.",
            path=loose,
            remedy="Name the folder that holds the classes' folders, or leave labels=True out.",
        )
    return {name: number for number, name in enumerate(sorted({_class_of(file.name) for file in index.files}))}
