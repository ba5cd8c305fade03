"""JSON lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from allranks.data.base import Bad
from allranks.data.sources import compressed, line_file
from allranks.data.sources.file import FileBytes
from allranks.data.sources.files import FileSource, OpenFile, Scan
from allranks.data.sources.line_file import Lines
from allranks.data.sources.lines import BLOCK_BYTES
from allranks.data.sources.patterns import Pattern, place


def jsonl(pattern: Pattern, *, block_bytes: int = BLOCK_BYTES, cache: str | None = None) -> FileSource:
    """Return files of JSON lines, ``.gz`` and ``.zst`` too: a sample is the value of a line, nearly always a dict.

    Empty lines are no samples; a line that is no JSON is Bad. Integers beyond 64 bits come as floats.
    ``block_bytes`` is what is read at a time, and shuffled as a whole: in an object store, where each read has its
    price, take ``1 << 20``. Compressed files: see ``allranks.data.sources.compressed`` for what they cost.
    """
    return FileSource(place(pattern), JsonLines(block_bytes), cache)


@dataclass(frozen=True, slots=True)
class JsonLines:
    """The format of ``jsonl``."""

    block_bytes: int

    @property
    def kind(self) -> str:
        return "jsonl"

    @property
    def suffixes(self) -> tuple[str, ...]:
        lines = [name + more for name in (".jsonl", ".ndjson") for more in compressed.SUFFIXES]
        return (*lines, ".json.gz", ".json.zst")  # plain .json beside data is nearly always about the data

    @property
    def words(self) -> tuple[str, ...]:
        return (str(self.block_bytes),)

    def is_quick(self, name: str) -> bool:
        return compressed.codec_of(name) is None

    def scan(self, file: FileBytes) -> Scan:
        return line_file.scan(file, size=self.block_bytes, blanks=False)

    def open(self, file: FileBytes, stamp: str) -> OpenFile:  # noqa: ARG002  every block has its own check
        return line_file.LineFile(file, False, JsonRows)


@dataclass(frozen=True, slots=True)
class JsonRows:
    """Samples of a block, parsed when they are taken."""

    lines: Lines

    def take(self, rows: NDArray[np.int64]) -> list[Any]:
        try:
            return line_file.decoded(self.lines, rows, orjson.loads)
        except orjson.JSONDecodeError:
            return [self._one(row) for row in rows.tolist()]

    @staticmethod
    def gather(blocks: Mapping[int, JsonRows], pieces: NDArray[np.int64], rows: NDArray[np.int64]) -> list[Any]:
        try:
            return line_file.gathered(
                {piece: block.lines for piece, block in blocks.items()}, pieces, rows, orjson.loads
            )
        except orjson.JSONDecodeError:
            return [blocks[piece]._one(row) for piece, row in zip(pieces.tolist(), rows.tolist(), strict=True)]

    def _one(self, row: int) -> Any:
        try:
            return line_file.decoded(self.lines, np.array([row]), orjson.loads)[0]
        except orjson.JSONDecodeError as error:
            return Bad(f"{self.lines.where(row)} is no JSON: {error}")
