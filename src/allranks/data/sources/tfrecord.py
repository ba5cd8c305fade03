"""Read TFRecord files, and the ``tf.train.Example`` messages in them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allranks.data.base import BlockRows
from allranks.data.index import SourceFile
from allranks.data.sources.crc32c import masked_crcs
from allranks.data.sources.file import FileBytes, data_changed_error, incomplete_file_error
from allranks.data.sources.files import FileBlocks, FileFormat, FileScan, FileSource, IndexBlock, OpenFile
from allranks.data.sources.patterns import Pattern, parse_pattern
from allranks.data.sources.records import BLOCK_BYTES, decode_records
from allranks.data.sources.webdataset import reader_ahead
from allranks.digest import digest, show
from allranks.errors import DataError

_NOUN = "TFRecord file"
_HEAD, _FOOT = 12, 4  # a length and its checksum; the checksum of the record


def tfrecord(pattern: Pattern, *, examples: bool = True, verify: bool = True, cache: str | None = None) -> FileSource:
    """Return TFRecord files as a source. A sample is a dict of the features of a ``tf.train.Example``.

    A feature of numbers is an array of one dimension, int64 or float32; a feature of bytes is a list. With
    ``examples=False``, a sample is ``{"record": bytes}``. A block is 1 MiB of records. ``verify``: compare the
    checksums of records; those of their lengths are always compared. Indexing reads the lengths. For files whose names
    have other ends (``a.tfrecord-00000-of-00010``), give a pattern: ``folder/*.tfrecord*``.
    """
    return FileSource(parse_pattern(pattern), TfRecordFormat(bool(examples), bool(verify)), cache)


@dataclass(frozen=True, slots=True)
class TfRecordFormat(FileFormat):
    """The file format of the source ``tfrecord``. Begin and end of a block are bytes."""

    examples: bool
    verify: bool
    kind = "tfrecord"
    suffixes = (".tfrecord", ".tfrecords")

    def scan_file(self, file: FileBytes) -> FileScan:
        """Return runs of records as blocks."""
        blocks: list[tuple[int, int, int, int]] = []
        heads: list[bytes] = []
        begin = rows = 0
        for end, head in _record_ends(file):
            rows += 1
            heads.append(head)
            if end - begin >= BLOCK_BYTES:
                blocks.append((begin, end, rows, 0))
                begin, rows = end, 0
        if rows:
            blocks.append((begin, file.nbytes, rows, 0))
        lengths = b"".join(heads)
        wrong = _wrong_checksums(lengths, np.arange(len(heads)) * _HEAD, np.full(len(heads), 8))
        if len(wrong):
            raise incomplete_file_error(file, _NOUN, 0, f"the length of record {wrong[0]:,} has another checksum")
        return FileScan(tuple(blocks), show(digest(lengths))[:16])

    def covers(self, file: SourceFile, blocks: FileBlocks) -> bool:
        rows_fit = (blocks.rows <= (blocks.end - blocks.begin) // (_HEAD + _FOOT)).all()
        return bool(rows_fit and blocks.are_ascending and blocks.gaps(file.nbytes) == [])

    def open(self, file: FileBytes, stamp: str, blocks: FileBlocks | None) -> OpenFile:  # noqa: ARG002
        return TfRecordFile(file, self)


@dataclass(frozen=True, slots=True)
class TfRecordFile:
    """A TFRecord file that is open for reading blocks."""

    file: FileBytes
    format: TfRecordFormat

    def read_block(self, block: IndexBlock) -> BlockRows:
        path, data = self.file.path, self.file.read(block.begin, block.end - block.begin)
        where = f"bytes {block.begin:,} to {block.end:,}"
        at, starts, sizes = 0, [], []
        while at < len(data):
            size = int.from_bytes(data[at : at + 8], "little")
            if at + _HEAD + size + _FOOT > len(data):
                raise data_changed_error(path, f"complete records in {where}", f"one that ends at {at + size:,}")
            starts.append(at)
            sizes.append(size)
            at += _HEAD + size + _FOOT
        block.check_rows(len(starts), path, where)
        heads, lengths = np.array(starts, np.int64), np.array(sizes, np.int64)
        wrong = _wrong_checksums(data, heads, np.full(len(heads), 8))
        if not len(wrong) and self.format.verify:
            wrong = _wrong_checksums(data, heads + _HEAD, lengths)
        if len(wrong):
            raise DataError(
                f"{path}: the record at byte {block.begin + starts[wrong[0]]:,} has another checksum than its bytes.",
                path=path,
                remedy="The file is damaged: write or fetch it again.",
            )
        records = [data[begin + _HEAD : begin + _HEAD + size] for begin, size in zip(starts, sizes, strict=True)]
        decode = parse_example if self.format.examples else as_record
        return decode_records(records, decode, f"{path}, {where}: record", first=0)


def as_record(record: bytes) -> dict[str, Any]:
    """Return the undecoded sample of a record."""
    return {"record": record}


def _record_ends(file: FileBytes) -> Iterator[tuple[int, bytes]]:
    """Yield the end of each record of a file, and its length with the checksum. Raises DataError if one is cut off."""
    read, at = reader_ahead(file), 0
    while at < file.nbytes:
        head = read(at, min(_HEAD, file.nbytes - at))
        end = at + _HEAD + int.from_bytes(head[:8], "little") + _FOOT
        if len(head) < _HEAD or end > file.nbytes:
            raise incomplete_file_error(file, _NOUN, at, f"a record would end at byte {end:,}")
        yield end, head
        at = end


def _wrong_checksums(data: bytes, begins: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the numbers of those pieces of the data that are followed by another checksum than theirs."""
    if not len(begins):
        return np.empty(0, np.int64)
    places = np.repeat(begins - (np.cumsum(sizes) - sizes), sizes) + np.arange(int(sizes.sum()))
    letters = np.frombuffer(data, np.uint8)
    bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    written = letters[(begins + sizes)[:, None] + np.arange(4)].copy().view("<u4")[:, 0]
    return np.flatnonzero(masked_crcs(letters[places].tobytes(), bounds) != written)


def parse_example(record: bytes) -> dict[str, Any]:
    """Return the features of a ``tf.train.Example`` by name, in the order of their names. Raises ValueError."""
    found: dict[str, Any] = {}
    for number, features in _fields(record):
        if number != 1:
            continue
        for _, entry in _fields(features):
            parts = dict(_fields(entry))
            found[parts.get(1, b"").decode()] = _parse_feature(parts.get(2, b""))
    return dict(sorted(found.items()))


def _parse_feature(feature: bytes) -> Any:
    """Return the values of a feature: a list of bytes, or an array of float32 or int64."""
    for kind, values in _fields(feature):
        if kind == 1:
            return [value for _, value in _fields(values)]
        if kind == 2:
            packed = b"".join(value for _, value in _fields(values))
            return np.frombuffer(packed, "<f4").copy()
        if kind == 3:
            return _varints(b"".join(value for _, value in _fields(values)))
    return []


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the fields of a message of Protocol Buffers: (number, bytes). A number is yielded as its bytes."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 0:
            begin = at
            _, end = _varint(data, at)
        elif kind in (1, 5):
            begin, end = at, at + (8 if kind == 1 else 4)
        elif kind == 2:
            size, begin = _varint(data, at)
            end = begin + size
        else:
            raise ValueError(f"a field of the kind {kind}")
        if end > len(data):
            raise ValueError(f"a field ends at byte {end:,} of {len(data):,}")
        yield key >> 3, data[begin:end]
        at = end


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError("a number that does not end")
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            return value, at


def _varints(data: bytes) -> NDArray[np.int64]:
    """Return the numbers that are written one after the other, each in up to ten bytes."""
    letters = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(letters < 0x80)
    begins = np.concatenate([np.zeros(1, np.int64), ends[:-1] + 1])
    sizes = ends - begins + 1 if len(ends) else np.zeros(0, np.int64)
    if (len(ends) and ends[-1] != len(letters) - 1) or (len(letters) and not len(ends)) or sizes.max(initial=0) > 10:
        raise ValueError("a number that does not end")
    found = np.zeros(len(ends), np.uint64)
    for byte in range(int(sizes.max(initial=0))):
        here = np.flatnonzero(sizes > byte)
        found[here] |= (letters[begins[here] + byte] & np.uint8(0x7F)).astype(np.uint64) << np.uint64(7 * byte)
    return found.view(np.int64)
