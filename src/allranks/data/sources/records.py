"""Read files that begin with a table of their records, as MDS shards and LitData chunks do; and decode records."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from allranks.data.base import BadSample, BlockRows
from allranks.data.block_columns import BlockColumns
from allranks.data.index import DECODE_ERRORS, SourceFile
from allranks.data.sample_columns import compact_values
from allranks.data.sources.compressed import unpack_file
from allranks.data.sources.file import FileBytes, data_changed_error, incomplete_file_error, wrong_index_error
from allranks.data.sources.files import FileBlocks, FileFormat, FileScan, IndexBlock, OpenFile
from allranks.data.sources.limits import check_block
from allranks.digest import digest, show
from allranks.errors import DataError

BLOCK_BYTES, MOST_RECORDS = 1 << 20, 1 << 18  # of a block; a record may be empty
_RECORD_BYTES = 256  # that a decoded record needs at least
Decode = Callable[[bytes], dict[str, Any]]


class Unsupported(ValueError):
    """The settings of a file are known, and not supported: the file is not damaged."""

    def __init__(
        self,
        why: str,
        remedy: str = "Write the samples without it; or read them with their library, and "
        "divide them with allranks.shard.",
    ) -> None:
        super().__init__(why)
        self.remedy = remedy


def unsupported_error(file: FileBytes, error: Unsupported) -> DataError:
    """Return the error for the file that has these settings."""
    return DataError(f"{file.path}: {error}.", path=file.path, remedy=error.remedy)


@dataclass(frozen=True, slots=True)
class RecordTable:
    """The table of a file: ``bounds`` are the starts of its records, and then the end of the last one, in bytes."""

    bounds: NDArray[np.int64]
    header: bytes  # between the table and the first record


def read_table(file: FileBytes, noun: str) -> RecordTable:
    """Read the table of a file: a uint32 with the number of records, and a uint32 for each bound.

    Raises DataError if the table does not fit the file. ``noun`` is what the file should be.
    """
    if file.nbytes < 4:
        raise incomplete_file_error(file, noun, 0, "expected the number of its records, in 4 bytes")
    count = int(np.frombuffer(file.read(0, 4), "<u4")[0])
    begin = 4 + 4 * (count + 1)
    if begin > file.nbytes:
        raise incomplete_file_error(file, noun, 0, f"a table of {count:,} records would end at byte {begin:,}")
    bounds = np.frombuffer(file.read(4, 4 * (count + 1)), "<u4").astype(np.int64)
    if bounds[0] < begin or bounds[-1] != file.nbytes or (np.diff(bounds) < 0).any():
        raise incomplete_file_error(file, noun, 4, f"its {count:,} records do not lie one after the other to the end")
    return RecordTable(bounds, file.read(begin, int(bounds[0]) - begin))


class RecordFormat(FileFormat, Protocol):
    """The base class of formats of files with a table. Begin and end of a block are numbers of records.

    A compressed file is one block, which is unpacked each time that it is read.
    """

    __slots__ = ()

    @property
    def noun(self) -> str:
        """What a file of this format is called in errors."""

    def find_decoder(self, file: FileBytes, table: RecordTable, /) -> tuple[Decode, bytes]:
        """Return the decoder of a file's records, and the bytes that describe it. Raises DataError."""

    @property
    def max_block_bytes(self) -> int | None:
        """The most bytes that a compressed file may need in memory; None for the default."""

    def codec_of(self, name: str, /) -> str | None:
        """Return the compression of the file of this name; None for a file that is not compressed."""

    def unpack(self, file: FileBytes) -> FileBytes:
        """Return the file itself, or what a compressed file contains."""
        codec = self.codec_of(file.name)
        return file if codec is None else unpack_file(file, codec, self.max_block_bytes)

    def scan_file(self, file: FileBytes) -> FileScan:
        """Return runs of records as blocks."""
        content = self.unpack(file)
        table = read_table(content, self.noun)
        _, words = self.find_decoder(content, table)
        records = len(table.bounds) - 1
        if content is not file:  # all of it is decoded at once
            check_block(
                file.path,
                f"the file of {records:,} records",
                _RECORD_BYTES * records,
                file.nbytes,
                self.max_block_bytes,
            )
        blocks = _blocks_of_records(table.bounds) if content is file else [(0, records, records, 0)] * bool(records)
        return FileScan(tuple(blocks), _stamp_of(table, words))

    def covers(self, file: SourceFile, blocks: FileBlocks) -> bool:
        joined = blocks.begin[0] == 0 and (blocks.begin[1:] == blocks.end[:-1]).all()
        fits = len(blocks.begin) == 1 if self.codec_of(file.name) else blocks.end[-1] <= file.nbytes
        return bool(joined and fits and (blocks.rows == blocks.end - blocks.begin).all())

    def open(self, file: FileBytes, stamp: str, blocks: FileBlocks | None) -> OpenFile:
        if self.codec_of(file.name) is not None:
            return PackedRecordFile(file, self, stamp, blocks)
        return self.open_content(file, stamp, blocks)

    def open_content(self, file: FileBytes, stamp: str, blocks: FileBlocks | None) -> RecordFile:
        """Open a file that is not compressed, or unpacked."""
        table = read_table(file, self.noun)
        decode, words = self.find_decoder(file, table)
        found = _stamp_of(table, words)
        if found != stamp:
            raise data_changed_error(file.path, f"a table with the digest {stamp}", found)
        if blocks is not None and blocks.end[-1] != len(table.bounds) - 1:
            raise wrong_index_error(file.path, f"{blocks.end[-1]:,} records", f"{len(table.bounds) - 1:,}")
        return RecordFile(file, table.bounds, decode)


def _blocks_of_records(bounds: NDArray[np.int64]) -> Iterator[tuple[int, int, int, int]]:
    at, last = 0, len(bounds) - 1
    while at < last:
        end = min(max(int(np.searchsorted(bounds, bounds[at] + BLOCK_BYTES)), at + 1), at + MOST_RECORDS, last)
        yield at, end, end - at, 0
        at = end


def _stamp_of(table: RecordTable, words: bytes) -> str:
    return show(digest(table.bounds.tobytes(), words))[:16]


@dataclass(frozen=True, slots=True)
class RecordFile:
    """A file with a table that is open for reading blocks."""

    file: FileBytes
    bounds: NDArray[np.int64]
    decode: Decode

    def read_block(self, block: IndexBlock) -> BlockRows:
        bounds = self.bounds[block.begin : block.end + 1]
        data = self.file.read(int(bounds[0]), int(bounds[-1] - bounds[0]))
        at = (bounds - bounds[0]).tolist()
        records = [data[begin:end] for begin, end in pairwise(at)]
        block.check_rows(len(records), self.file.path, f"records {block.begin:,} to {block.end:,}")
        return decode_records(records, self.decode, f"{self.file.path}: record", first=block.begin)


@dataclass(frozen=True, slots=True)
class PackedRecordFile:
    """A compressed file with a table, which is unpacked when its only block is read."""

    file: FileBytes
    format: RecordFormat
    stamp: str
    blocks: FileBlocks | None

    def read_block(self, block: IndexBlock) -> BlockRows:
        content = self.format.unpack(self.file)
        return self.format.open_content(content, self.stamp, self.blocks).read_block(block)


def decode_records(records: Sequence[bytes], decode: Decode, where: str, *, first: int) -> BlockRows:
    """Decode the records of a block; one that cannot be decoded is a BadSample.

    ``where`` and the number of a record, counted from ``first``, are for its error.
    """
    samples: list[Any] = []
    for number, record in enumerate(records, first):
        try:
            samples.append(decode(record))
        except (*DECODE_ERRORS, struct.error, ArithmeticError) as error:
            samples.append(BadSample(f"{where} {number:,} cannot be decoded: {type(error).__name__}: {error}"))
    names = tuple(samples[0]) if samples and isinstance(samples[0], dict) else ()
    if not names or any(not isinstance(sample, dict) or tuple(sample) != names for sample in samples):
        return DecodedRows(samples)
    return BlockColumns({name: compact_values([sample[name] for sample in samples]) for name in names}, len(samples))


@dataclass(frozen=True, slots=True)
class DecodedRows:
    """The samples of a block, which do not all have the same columns."""

    samples: list[Any]

    def take(self, rows: NDArray[np.int64]) -> list[Any]:
        return [self.samples[row] for row in rows.tolist()]
