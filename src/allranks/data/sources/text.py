"""Lines of text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allranks.data.base import Bad
from allranks.data.sources import compressed, line_file
from allranks.data.sources.file import FileBytes
from allranks.data.sources.files import FileSource, OpenFile, Scan
from allranks.data.sources.line_file import Lines
from allranks.data.sources.lines import BLOCK_BYTES
from allranks.data.sources.patterns import Pattern, place


def text(pattern: Pattern, *, block_bytes: int = BLOCK_BYTES, cache: str | None = None) -> FileSource:
    """Return files of UTF-8 text, ``.gz`` and ``.zst`` too: a sample is a line, a str without its line end.

    Empty lines are samples, so that of a single file sample i is line i; a line that is no UTF-8 is Bad. Lines end with
    ``\\n`` or ``\\r\\n``. A whole file as a sample: ``folder``. ``block_bytes`` as for ``jsonl``.
    """
    return FileSource(place(pattern), TextLines(block_bytes), cache)


@dataclass(frozen=True, slots=True)
class TextLines:
    """The format of ``text``."""

    block_bytes: int

    @property
    def kind(self) -> str:
        return "text"

    @property
    def suffixes(self) -> tuple[str, ...]:
        return tuple(name + more for name in (".txt", ".text", ".md") for more in compressed.SUFFIXES)

    @property
    def words(self) -> tuple[str, ...]:
        return (str(self.block_bytes),)

    def is_quick(self, name: str) -> bool:
        return compressed.codec_of(name) is None

    def scan(self, file: FileBytes) -> Scan:
        return line_file.scan(file, size=self.block_bytes, blanks=True)

    def open(self, file: FileBytes, stamp: str) -> OpenFile:  # noqa: ARG002  every block has its own check
        return line_file.LineFile(file, True, TextRows)


@dataclass(frozen=True, slots=True)
class TextRows:
    """Samples of a block, decoded when they are taken."""

    lines: Lines

    def take(self, rows: NDArray[np.int64]) -> list[Any]:
        try:
            return line_file.decoded(self.lines, rows, bytes.decode)
        except UnicodeDecodeError:
            return [self._one(row) for row in rows.tolist()]

    @staticmethod
    def gather(blocks: Mapping[int, TextRows], pieces: NDArray[np.int64], rows: NDArray[np.int64]) -> list[Any]:
        try:
            return line_file.gathered(
                {piece: block.lines for piece, block in blocks.items()}, pieces, rows, bytes.decode
            )
        except UnicodeDecodeError:
            return [blocks[piece]._one(row) for piece, row in zip(pieces.tolist(), rows.tolist(), strict=True)]

    def _one(self, row: int) -> Any:
        try:
            return line_file.decoded(self.lines, np.array([row]), bytes.decode)[0]
        except UnicodeDecodeError as error:
            return Bad(f"{self.lines.where(row)} is no UTF-8: {error}")
