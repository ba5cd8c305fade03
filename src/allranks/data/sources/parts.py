"""Join, filter and reorder indexes by file, to update a cached index with newly indexed files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from allranks.data.index import DatasetIndex, SourceFile
from allranks.errors import DataError

_COLUMNS = ("begin", "end", "skip", "rows", "check")


def merge_indexes(kind: str, indexes: Iterable[DatasetIndex]) -> DatasetIndex:
    """Return one index from several indexes of the same kind; its files are sorted by name, each with its blocks.

    Raises DataError if two indexes contain the same file, or if one is of another kind.
    """
    files: dict[str, tuple[SourceFile, DatasetIndex, slice]] = {}
    for index in indexes:
        if index.kind != kind:
            raise DataError(f"an index of {index.kind} files cannot be joined with an index of {kind} files.")
        for file, blocks in zip(index.files, _blocks_by_file(index), strict=True):
            if file.name in files:
                raise DataError(
                    f"{file.name} is in two parts of the index: expected each file in one part.", path=file.name
                )
            files[file.name] = (file, index, blocks)
    ordered = [files[name] for name in sorted(files)]
    counts = [blocks.stop - blocks.start for _, _, blocks in ordered]
    columns = (
        {name: np.concatenate([getattr(index, name)[blocks] for _, index, blocks in ordered]) for name in _COLUMNS}
        if ordered
        else {name: np.zeros(0, np.int64) for name in _COLUMNS}
    )
    number = np.repeat(np.arange(len(ordered), dtype=np.int32), counts)
    return DatasetIndex(kind, tuple(file for file, _, _ in ordered), number, **columns)


def index_of_files(index: DatasetIndex, names: Iterable[str]) -> DatasetIndex:
    """Return the part of an index with these files; names that the index does not contain are ignored."""
    wanted = set(names)
    kept = np.array([file.name in wanted for file in index.files], bool)
    blocks = kept[index.file] if len(kept) else np.zeros(0, bool)
    number = (np.cumsum(kept) - 1).astype(np.int32)
    files = tuple(file for file, stays in zip(index.files, kept.tolist(), strict=True) if stays)
    columns = {name: getattr(index, name)[blocks] for name in _COLUMNS}
    return DatasetIndex(index.kind, files, number[index.file[blocks]] if len(kept) else index.file, **columns)


def order_files(index: DatasetIndex, names: Sequence[str]) -> DatasetIndex:
    """Return the index with its files, and their blocks, in the order of ``names``, which must name all files."""
    place = {name: at for at, name in enumerate(names)}
    moved = np.array([place[file.name] for file in index.files], np.int32)
    blocks = np.argsort(moved[index.file], kind="stable")
    files = tuple(sorted(index.files, key=lambda file: place[file.name]))
    columns = {name: getattr(index, name)[blocks] for name in _COLUMNS}
    return DatasetIndex(index.kind, files, moved[index.file][blocks], **columns, note=index.note)


def _blocks_by_file(index: DatasetIndex) -> list[slice]:
    """Return the range of blocks of each file; the blocks of a file must be consecutive."""
    ends = np.cumsum(np.bincount(index.file, minlength=len(index.files))).tolist()
    return [slice(begin, end) for begin, end in zip([0, *ends], ends, strict=False)]
