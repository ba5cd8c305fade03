"""Read WebDataset shards: tar files in which consecutive files with one key are a sample."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from allranks.data.arguments import check_number
from allranks.data.base import BadSample, BlockRows
from allranks.data.index import SourceFile
from allranks.data.sources.file import CHUNK, FileBytes, data_changed_error, wrong_index_error
from allranks.data.sources.files import FileBlocks, FileFormat, FileScan, FileSource, IndexBlock, OpenFile
from allranks.data.sources.patterns import Pattern, parse_pattern
from allranks.data.sources.tar import HEADER, MAX_HEADER_BYTES, NotATarError, TarMember, iterate_members
from allranks.digest import digest, show
from allranks.errors import DataError

_BLOCK_BYTES = 1 << 20
_AHEAD = 1 << 18  # bytes that are read on behind a header, in which the next one is looked for


def webdataset(
    pattern: Pattern, *, decode: bool = False, max_header_bytes: int = MAX_HEADER_BYTES, cache: str | None = None
) -> FileSource:
    """Return WebDataset shards (``shard-{000000..000099}.tar``) as a source. A sample is a dict: extension to bytes.

    The key of "a/b.seg.png" is "a/b", and its extension is "seg.png". Consecutive files with one key are one sample,
    which has the key as "__key__". Files without a dot in their name, folders and links are skipped. With ``decode``,
    the last part of the extension decides: json is parsed, txt and text become str, cls becomes int. If that fails, or
    if two files have one extension, the sample is a BadSample. A block is about 1 MiB of samples. Indexing reads the
    headers: it seeks past large files, and reads small ones. ``max_header_bytes`` are the most bytes of a long name or
    a pax header.
    """
    check_number("max_header_bytes", max_header_bytes, "the most bytes of a name or a pax header", least=1)
    return FileSource(parse_pattern(pattern), WebDatasetFormat(decode, max_header_bytes), cache)


@dataclass(frozen=True, slots=True)
class WebDatasetFormat(FileFormat):
    """The file format of the source ``webdataset``."""

    decode: bool
    max_header_bytes: int = MAX_HEADER_BYTES
    kind = "webdataset"
    suffixes = (".tar",)

    def scan_file(self, file: FileBytes) -> FileScan:
        """Return runs of samples as blocks; begin and end are their bytes."""
        blocks: list[tuple[int, int, int, int]] = []
        begin, end, rows = 0, 0, 0
        told = []
        try:
            for sample in _group_members(self._members(reader_ahead(file), file.nbytes)):
                begin, end = begin if rows else sample[0].member.begin, sample[-1].member.end
                rows += 1
                told += [
                    f"{member.name}\0{member.content}\0{member.size}".encode("utf-8", "surrogateescape")
                    for _, _, member in sample
                ]
                if end - begin >= _BLOCK_BYTES:
                    blocks.append((begin, end, rows, 0))
                    rows = 0
        except NotATarError as error:
            remedy = "Was it cut off, or is it compressed? Shards must be plain tar files."
            raise DataError(f"{file.path} is not a complete tar: {error}.", path=file.path, remedy=remedy) from error
        if rows:
            blocks.append((begin, end, rows, 0))
        return FileScan(tuple(blocks), show(digest(*told))[:16])

    def covers(self, file: SourceFile, blocks: FileBlocks) -> bool:
        fits = blocks.begin[0] >= 0 and blocks.end[-1] <= file.nbytes
        return bool(fits and blocks.are_ascending and (blocks.rows <= (blocks.end - blocks.begin) // HEADER).all())

    def open(self, file: FileBytes, stamp: str, blocks: FileBlocks | None) -> OpenFile:  # noqa: ARG002  the headers are in blocks
        for begin, end in blocks.gaps(file.nbytes) if blocks else ():
            self._check_gap(file, begin, end)
        return TarShard(file, self.decode, self.max_header_bytes)

    def _check_gap(self, file: FileBytes, begin: int, end: int) -> None:
        """Raise DataChanged if a range of the file, which is in no block, has a sample."""
        try:
            odd = next(_member_parts(self._members(file.read, end, begin)), None)
        except NotATarError as error:
            raise wrong_index_error(file.path, f"no sample in bytes {begin:,} to {end:,}", str(error)) from error
        if odd is not None:
            raise wrong_index_error(file.path, f"no sample in bytes {begin:,} to {end:,}", repr(odd.member.name))

    def _members(self, read: Callable[[int, int], bytes], nbytes: int, begin: int = 0) -> Iterator[TarMember]:
        return iterate_members(read, nbytes, begin=begin, max_header_bytes=self.max_header_bytes)


@dataclass(frozen=True, slots=True)
class TarShard:
    """A shard that is open for reading blocks."""

    file: FileBytes
    decode: bool
    max_header_bytes: int

    def read_block(self, block: IndexBlock) -> BlockRows:
        data = self.file.read(block.begin, block.end - block.begin)
        where = f"bytes {block.begin:,} to {block.end:,}"
        try:
            members = iterate_members(
                lambda offset, count: data[offset : offset + count], len(data), max_header_bytes=self.max_header_bytes
            )
            samples = list(_group_members(members))
        except NotATarError as error:
            raise data_changed_error(
                self.file.path, f"{block.stop} samples in {where}", f"no headers ({error})"
            ) from error
        block.check_rows(len(samples), self.file.path, where)
        return ShardRows(data, samples, self.decode, f"{self.file.path}, {where}")


@dataclass(frozen=True, slots=True)
class ShardRows:
    """The samples of one block of a shard."""

    data: bytes
    samples: list[list[_SampleFile]]
    decode: bool
    where: str

    def take(self, rows: NDArray[np.int64]) -> list[Any]:
        return [self._decode_sample(self.samples[row]) for row in rows.tolist()]

    def _decode_sample(self, sample: list[_SampleFile]) -> Any:
        found: dict[str, Any] = {"__key__": sample[0].key}
        for _, extension, member in sample:
            if extension in found:
                return BadSample(f"{self.where}: {repr(member.name)[1:-1]} is the second {extension!r} of its sample")
            content = self.data[member.content : member.content + member.size]
            try:
                found[extension] = _decoder(extension)(content) if self.decode else content
            except (ValueError, RecursionError) as error:
                return BadSample(f"{self.where}: {repr(member.name)[1:-1]} cannot be decoded: {error}")
        return found


class _SampleFile(NamedTuple):
    """One file of a sample: the sample's key, the file's extension, and its range in the tar."""

    key: str
    extension: str
    member: TarMember


def _group_members(found: Iterable[TarMember]) -> Iterator[list[_SampleFile]]:
    return (list(parts) for _, parts in groupby(_member_parts(found), attrgetter("key")))


def _member_parts(found: Iterable[TarMember]) -> Iterator[_SampleFile]:
    for member in found:
        folders, slash, base = member.name.rpartition("/")
        stem, dot, extension = base.partition(".")
        if dot:
            yield _SampleFile(folders + slash + stem, extension, member)


def _decoder(extension: str) -> Callable[[bytes], Any]:
    return _DECODERS.get(extension.rpartition(".")[2], bytes)


_DECODERS: dict[str, Callable[[bytes], Any]] = {
    "json": json.loads,
    "txt": bytes.decode,
    "text": bytes.decode,
    "cls": int,
}


def reader_ahead(file: FileBytes) -> Callable[[int, int], bytes]:
    """Return a function ``read(offset, count)`` that also reads ahead, so that near headers need only one read."""
    at, data, ahead = 0, b"", _AHEAD

    def read(offset: int, count: int) -> bytes:
        nonlocal at, data, ahead
        if not at <= offset <= offset + count <= at + len(data):
            ahead = min(2 * ahead, CHUNK) if offset <= at + len(data) else _AHEAD  # nothing was jumped over
            at, data = offset, file.read(offset, min(max(count, ahead), file.nbytes - offset))
        return data[offset - at : offset - at + count]

    return read
