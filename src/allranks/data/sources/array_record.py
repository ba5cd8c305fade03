"""Read ArrayRecord files, with the package ``array_record``, and the ``tf.train.Example`` messages in them."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, field
from typing import Any

from array_record.python import array_record_module  # type: ignore[import-untyped]

from allranks.data.base import BlockRows
from allranks.data.index import SourceFile
from allranks.data.sources.file import (
    FileBytes,
    data_changed_error,
    digest_of_places,
    incomplete_file_error,
    wrong_index_error,
)
from allranks.data.sources.files import FileBlocks, FileFormat, FileScan, FileSource, IndexBlock, OpenFile
from allranks.data.sources.limits import check_rows
from allranks.data.sources.patterns import Pattern, parse_pattern
from allranks.data.sources.records import BLOCK_BYTES, decode_records
from allranks.data.sources.tfrecord import as_record, parse_example
from allranks.errors import DataError

_NOUN = "ArrayRecord file"
_OPTIONS = "readahead_buffer_size:0,max_parallelism:0"  # for records anywhere in the file; no threads of its own
_GROUP = re.compile(r"group_size:(\d+)")


def array_record(pattern: Pattern, *, examples: bool = False, cache: str | None = None) -> FileSource:
    """Return ArrayRecord files on a local disk as a source. A sample is ``{"record": bytes}``.

    With ``examples``, a sample is a dict of the features of a ``tf.train.Example``, as of ``tfrecord``. A block is
    about 1 MiB of the file. For files whose names have other ends (``a.array_record-00000-of-00010``), give a pattern:
    ``folder/*.array_record*``. Raises DataError for files in an object store.
    """
    return FileSource(parse_pattern(pattern), ArrayRecordFormat(bool(examples)), cache)


@dataclass(frozen=True, slots=True)
class ArrayRecordFormat(FileFormat):
    """The file format of the source ``array_record``. Begin and end of a block are numbers of records."""

    examples: bool
    kind = "array_record"
    suffixes = (".array_record", ".arrayrecord")

    def scan_file(self, file: FileBytes) -> FileScan:
        """Return runs of records as blocks; a run has complete groups of records, which are compressed together."""
        if not file.nbytes:
            return FileScan((), digest_of_places(file))
        reader = _open_reader(file)
        records = int(reader.num_records())
        group = _GROUP.match(str(reader.writer_options_string()))
        reader.close()
        together = int(group[1]) if group else 1
        groups = max(1, records * BLOCK_BYTES // (file.nbytes * together))
        step = together * groups
        check_rows(file.path, f"a block of {BLOCK_BYTES:,} bytes", min(step, records), BLOCK_BYTES, None)
        begins = range(0, records, step)
        blocks = tuple((begin, min(begin + step, records), min(step, records - begin), 0) for begin in begins)
        return FileScan(blocks, digest_of_places(file))

    def covers(self, file: SourceFile, blocks: FileBlocks) -> bool:
        joined = blocks.begin[0] == 0 and (blocks.begin[1:] == blocks.end[:-1]).all()
        return bool(file.nbytes and joined and (blocks.rows == blocks.end - blocks.begin).all())

    def open(self, file: FileBytes, stamp: str, blocks: FileBlocks | None) -> OpenFile:
        found = digest_of_places(file)
        if found != stamp:
            raise data_changed_error(file.path, f"bytes with the digest {stamp}", found)
        reader = _open_reader(file)
        if blocks is not None and blocks.end[-1] != reader.num_records():
            raise wrong_index_error(file.path, f"{blocks.end[-1]:,} records", f"{reader.num_records():,}")
        return ArrayRecordFile(file, self, reader)


@dataclass(frozen=True, slots=True)
class ArrayRecordFile:
    """An ArrayRecord file that is open for reading blocks."""

    file: FileBytes
    format: ArrayRecordFormat
    reader: Any
    lock: threading.Lock = field(default_factory=threading.Lock)

    def read_block(self, block: IndexBlock) -> BlockRows:
        where = f"records {block.begin:,} to {block.end:,}"
        with self.lock:
            try:
                records = self.reader.read(block.begin, block.end)
            except RuntimeError as error:  # the only error of the package: a checksum, or a place outside of the file
                raise DataError(
                    f"{self.file.path}: {where} cannot be read: {str(error).splitlines()[0]:.300}",
                    path=self.file.path,
                    remedy="The file is damaged: write or fetch it again.",
                ) from error
        self.file.count_bytes(sum(map(len, records)))
        block.check_rows(len(records), self.file.path, where)
        decode = parse_example if self.format.examples else as_record
        return decode_records(records, decode, f"{self.file.path}: record", first=block.begin)


def _open_reader(file: FileBytes) -> Any:
    """Return the package's reader of a file. Raises DataError for a file that is cut off, and for one at an address."""
    if file.local_path is None:
        raise DataError(
            f"{file.path}: ArrayRecord files can be read from a local disk only.",
            path=file.path,
            remedy="Mount or copy the files, or use TFRecord or Parquet files.",
        )
    try:
        reader = array_record_module.ArrayRecordReader(file.local_path, _OPTIONS)
        whole = reader.ok()
    except (RuntimeError, ValueError) as error:
        raise incomplete_file_error(file, _NOUN, 0, f"its reader says {str(error).splitlines()[0]:.300}") from error
    if not whole:
        raise incomplete_file_error(file, _NOUN, file.nbytes, "there is no footer in its last 64 KiB")
    return reader
