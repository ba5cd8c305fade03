"""Define the index of a data set: its files, divided into blocks, each with a known number of samples."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allranks.digest import digest, show
from allranks.errors import DataError

FORMAT = 1
_MOST_SAMPLES = 1 << 60
# What Python raises for JSON, or for values in it, that are not as they were written.
DECODE_ERRORS = (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError)
_COLUMNS = {
    "file": np.int32,
    "begin": np.int64,
    "end": np.int64,
    "skip": np.int32,
    "rows": np.int64,
    "check": np.uint64,
}


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file: its name below the source's root, its size in bytes, and a ``stamp`` that changes if its content does."""

    name: str
    nbytes: int
    stamp: str


@dataclass(frozen=True, eq=False)
class DatasetIndex:
    """The blocks of a data set, in order. Block i is the range ``begin[i]`` to ``end[i]`` of ``files[file[i]]``.

    - ``begin`` and ``end``: in the source's unit: bytes, row groups, or rows.
    - ``skip`` and ``rows``: ``rows`` samples of the block belong to the data set, after its first ``skip`` samples.
    - ``check``: XXH3-64 of the block's bytes; 0 if the format has its own checks.
    - ``partial``: the numbers of files of which ``slice`` has left out samples. Not encoded.
    - ``note``: what the source needs to open the index again, on every rank. It may contain paths, so the digest does
      not include it.

    A sample's *id* is its number in this order: 0 ... samples-1.
    """

    kind: str
    files: tuple[SourceFile, ...]
    file: NDArray[np.int32]
    begin: NDArray[np.int64]
    end: NDArray[np.int64]
    skip: NDArray[np.int32]
    rows: NDArray[np.int64]
    check: NDArray[np.uint64]
    note: str = ""
    partial: frozenset[int] = frozenset()

    @classmethod
    def from_blocks(
        cls, kind: str, files: Sequence[SourceFile], blocks: Sequence[tuple[int, int, int, int, int]]
    ) -> DatasetIndex:
        """Return an index of the blocks (file, begin, end, rows, check); blocks without rows are left out."""
        kept = [block for block in blocks if block[3]]
        file, begin, end, rows, check = zip(*kept, strict=True) if kept else ((),) * 5
        columns = {"file": file, "begin": begin, "end": end, "skip": (0,) * len(kept), "rows": rows, "check": check}
        arrays: Any = {name: np.array(values, _COLUMNS[name]) for name, values in columns.items()}
        return cls(kind, tuple(files), **arrays)

    def __len__(self) -> int:
        """Return the number of blocks."""
        return len(self.rows)

    @cached_property
    def first_ids(self) -> NDArray[np.int64]:
        """The id of each block's first sample, and at the end the number of all samples."""
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(self.rows)])

    @property
    def samples(self) -> int:
        return int(self.first_ids[-1])

    @property
    def nbytes(self) -> int:
        """The bytes of all files."""
        return sum(file.nbytes for file in self.files)

    @cached_property
    def digest(self) -> str:
        """A digest of the index without its note, as 32 hexadecimal digits."""
        return show(digest(replace(self, note="").encode()))

    def slice(self, start: int, stop: int) -> DatasetIndex:
        """Return an index of only the samples with numbers ``start`` to ``stop`` in the data set."""
        start, stop = max(0, min(start, self.samples)), max(0, min(stop, self.samples))
        low = np.clip(start - self.first_ids[:-1], 0, self.rows)
        high = np.clip(stop - self.first_ids[:-1], 0, self.rows)
        kept = high > low
        ends = self.file[np.flatnonzero(kept)[[0, -1]]].tolist() if kept.any() else [0, 0]
        cut = {file for file, is_cut in zip(ends, (start > 0, stop < self.samples), strict=True) if is_cut}
        return DatasetIndex(
            self.kind,
            self.files,
            self.file[kept],
            self.begin[kept],
            self.end[kept],
            (self.skip + low)[kept].astype(np.int32),
            (high - low)[kept],
            self.check[kept],
            self.note,
            self.partial | cut,
        )

    def encode(self) -> bytes:
        """Return the index as bytes: a line of JSON, then the columns."""
        head = {
            "format": FORMAT,
            "kind": self.kind,
            "blocks": len(self),
            "files": [[file.name, file.nbytes, file.stamp] for file in self.files],
            **({"note": self.note} if self.note else {}),
        }
        columns = [getattr(self, name).astype(np.dtype(kind).newbyteorder("<")) for name, kind in _COLUMNS.items()]
        line = json.dumps(head, separators=(",", ":")).encode() + b"\n"
        return line + b"".join(column.tobytes() for column in columns)

    @classmethod
    def decode(cls, data: bytes) -> DatasetIndex:
        """Return the index from the bytes of ``encode``. Raises DataError for any other bytes."""
        line, _, rest = data.partition(b"\n")
        try:
            head = json.loads(line)
            if head["format"] != FORMAT:
                raise DataError(
                    f"the index has the format {head['format']}: expected {FORMAT}, the format of this "
                    "version of allranks."
                )
            files = tuple(SourceFile(str(name), int(nbytes), str(stamp)) for name, nbytes, stamp in head["files"])
            columns: Any = {}
            for name, kind in _COLUMNS.items():
                little = np.dtype(kind).newbyteorder("<")
                size = head["blocks"] * little.itemsize
                columns[name], rest = np.frombuffer(rest[:size], little).astype(kind), rest[size:]
                if len(columns[name]) != head["blocks"]:
                    raise ValueError("its end is missing")
            if rest:
                raise ValueError("there are bytes after its end")
            index = cls(str(head["kind"]), files, **columns, note=str(head.get("note", "")))
            index._check_ranges()
        except DECODE_ERRORS as error:
            raise DataError(
                f"the file is not an index: {error}.",
                remedy="Delete the index file: allranks builds the index again.",
            ) from error
        return index

    def _check_ranges(self) -> None:
        """Raise ValueError unless the numbers can be those of an index. Formats check more: ``FileFormat.covers``."""
        file, rows = self.file, self.rows
        if len(file) and (file[0] < 0 or file[-1] >= len(self.files) or (np.diff(file) < 0).any()):
            raise ValueError("its blocks are not in the order of its files")
        if (np.minimum(self.begin, self.end) < 0).any() or (self.skip < 0).any() or (rows < 1).any():
            raise ValueError("a block has a negative position, or no sample")
        if len({one.name for one in self.files}) < len(self.files):
            raise ValueError("it names a file twice")
        if rows.sum(dtype=np.float64) > _MOST_SAMPLES or any(one.nbytes < 0 for one in self.files):
            raise ValueError("it counts more samples or bytes than a data set can have")
