"""WebDataset shards: tar files in which the files of a sample follow each other and share the name up to a dot."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allranks.data.base import Bad, Rows
from allranks.data.sources.file import FileBytes, changed
from allranks.data.sources.files import Block, FileSource, OpenFile, Scan
from allranks.data.sources.patterns import Pattern, place
from allranks.data.sources.tar import Member, NoTar, members
from allranks.digest import digest, show
from allranks.errors import DataError

_BLOCK_BYTES = 1 << 20
_AHEAD = 1 << 18  # headers are looked for in what was read; what is farther than this is jumped over


def webdataset(pattern: Pattern, *, decode: bool = False, cache: str | None = None) -> FileSource:
    """Return WebDataset shards (``shard-{000000..000099}.tar``): a sample is a dict from extension to bytes.

    The key of "a/b.seg.png" is "a/b", its extension "seg.png"; members that follow each other with one key are a
    sample, which has it as "__key__". Members without a dot, folders and links are passed over. With ``decode``, by the
    last part of the extension: json is parsed, txt and text become str, cls int; where that fails, the sample is Bad.
    A block is about 1 MiB of samples; indexing reads the headers, and jumps over what is larger than 256 KiB.
    """
    return FileSource(place(pattern), Shards(decode), cache)


@dataclass(frozen=True, slots=True)
class Shards:
    """The format of ``webdataset``."""

    decode: bool

    @property
    def kind(self) -> str:
        return "webdataset"

    @property
    def suffixes(self) -> tuple[str, ...]:
        return (".tar",)

    @property
    def words(self) -> tuple[str, ...]:
        return ()

    def scan(self, file: FileBytes) -> Scan:
        """Return runs of samples; begin and end are their bytes."""
        blocks: list[tuple[int, int, int, int]] = []
        begin, rows = 0, 0
        told = []
        try:
            for sample in _samples(members(_ahead(file), file.nbytes)):
                begin = sample[0].begin if not rows else begin
                rows += 1
                told += [f"{one.name}\0{one.content}\0{one.size}" for one in sample]
                if sample[-1].end - begin >= _BLOCK_BYTES:
                    blocks.append((begin, sample[-1].end, rows, 0))
                    rows = 0
        except NoTar as error:
            remedy = "Was it cut off, or is it compressed? Shards must be plain tar files."
            raise DataError(f"{file.path} is no whole tar: {error}.", path=file.path, remedy=remedy) from error
        if rows:
            blocks.append((begin, sample[-1].end, rows, 0))
        return Scan(tuple(blocks), show(digest(*told))[:16])

    def open(self, file: FileBytes, stamp: str) -> OpenFile:  # noqa: ARG002  of all headers: too many to read again
        return Shard(file, self.decode)


@dataclass(frozen=True, slots=True)
class Shard:
    """An open shard."""

    file: FileBytes
    decode: bool

    def rows(self, block: Block) -> Rows:
        data = self.file.read(block.begin, block.end - block.begin)
        where = f"bytes {block.begin:,} to {block.end:,}"
        try:
            samples = list(_samples(members(lambda offset, count: data[offset : offset + count], len(data))))
        except NoTar as error:
            raise changed(self.file.path, f"{block.stop} samples in {where}", f"no headers ({error})") from error
        if len(samples) < block.stop:
            raise changed(self.file.path, f"{block.stop} samples in {where}", f"{len(samples)}")
        return ShardRows(data, samples, self.decode, f"{self.file.path}, {where}")


@dataclass(frozen=True, slots=True)
class ShardRows:
    """Samples of a run."""

    data: bytes
    samples: list[list[Member]]
    decode: bool
    where: str

    def take(self, rows: NDArray[np.int64]) -> list[Any]:
        return [self._one(self.samples[row]) for row in rows.tolist()]

    def _one(self, sample: list[Member]) -> Any:
        found: dict[str, Any] = {"__key__": _key(sample[0])}
        for member in sample:
            name = _extension(member)
            content = self.data[member.content : member.content + member.size]
            try:
                found[name] = _decoder(name)(content) if self.decode else content
            except ValueError as error:
                return Bad(f"{self.where}: {member.name} cannot be decoded: {error}")
        return found


def _samples(found: Iterator[Member]) -> Iterator[list[Member]]:
    with_dot = (member for member in found if "." in _base(member))
    return (list(group) for _, group in groupby(with_dot, _key))


def _base(member: Member) -> str:
    return member.name.rpartition("/")[2]


def _key(member: Member) -> str:
    return member.name[: len(member.name) - len(_extension(member)) - 1]


def _extension(member: Member) -> str:
    return _base(member).partition(".")[2]


def _decoder(extension: str) -> Callable[[bytes], Any]:
    return _DECODERS.get(extension.rpartition(".")[2], bytes)


_DECODERS: dict[str, Callable[[bytes], Any]] = {
    "json": json.loads,
    "txt": bytes.decode,
    "text": bytes.decode,
    "cls": int,
}


def _ahead(file: FileBytes) -> Callable[[int, int], bytes]:
    """Return what reads bytes by offset and count, and some on behind them, so that near headers are one read."""
    at, data = 0, b""

    def read(offset: int, count: int) -> bytes:
        nonlocal at, data
        if not at <= offset <= offset + count <= at + len(data):
            at, data = offset, file.read(offset, min(max(count, _AHEAD), file.nbytes - offset))
        return data[offset - at : offset - at + count]

    return read
