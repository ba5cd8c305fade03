"""Cut blocks of tokens into samples: windows of a length, or documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from allranks.data.base import BlockRows
from allranks.data.sample_columns import SampleColumns
from allranks.data.sources.file import FileBytes
from allranks.data.sources.token_file import TokenLayout
from allranks.errors import DataError

Ids = NDArray[np.int64]
Tokens = NDArray[np.integer[Any]]


@dataclass(frozen=True, slots=True)
class TokenValues:
    """The type of the tokens in a sample, and how many tokens exist (None: as many as the type holds)."""

    as_dtype: str
    vocab_size: int | None

    def check(self, tokens: Tokens, path: str, where: str) -> None:
        """Raise DataError if a token does not exist, or does not fit into the type. ``where`` is the place of them."""
        if not tokens.size or (self.vocab_size is None and np.can_cast(tokens.dtype, self.as_dtype)):
            return
        most = self.vocab_size - 1 if self.vocab_size else int(np.iinfo(self.as_dtype).max)
        least = 0 if self.vocab_size else int(np.iinfo(self.as_dtype).min)
        low, high = int(tokens.min()), int(tokens.max())
        if low < least or high > most:
            raise DataError(
                f"{path}: the token {low if low < least else high:,} is in {where}: expected {least:,} to {most:,}.",
                path=path,
                remedy="Is dtype= that of the file, and vocab_size= that of the tokenizer? Else the file is damaged.",
            )


@dataclass(frozen=True, slots=True)
class TokenWindows:
    """Windows of ``length`` tokens, which begin ``stride`` tokens apart. With ``targets``, a sample needs one more.

    The object also decodes windows of several blocks, ``WindowRows`` or ``WindowsOnDisk``. The position of a window is
    that of its first token in the block.
    """

    length: int
    stride: int
    targets: bool
    values: TokenValues

    @property
    def span(self) -> int:
        """The number of tokens that a sample needs."""
        return self.length + self.targets

    def divide(self, tokens: int, windows_per_block: int) -> tuple[tuple[int, int, int, int], ...]:
        """Divide a number of tokens into blocks, and return them as (first token, end, windows, 0)."""
        windows = max(0, (tokens - self.span) // self.stride + 1)
        begins = range(0, windows, windows_per_block)
        return tuple(
            (at * self.stride, (end - 1) * self.stride + self.span, end - at, 0)
            for at, end in ((at, min(at + windows_per_block, windows)) for at in begins)
        )

    def gather_columns(self, blocks: Mapping[int, BlockRows], keys: Ids, positions: Ids) -> SampleColumns:
        tokens = np.empty((len(keys), self.length), self.values.as_dtype)
        targets = np.empty_like(tokens) if self.targets else None
        held = cast(Mapping[int, WindowRows], blocks)
        length = self.length
        for row, (key, at) in enumerate(zip(keys.tolist(), positions.tolist(), strict=True)):
            found = held[key].tokens
            tokens[row] = found[at : at + length]
            if targets is not None:
                targets[row] = found[at + 1 : at + 1 + length]
        return _columns(tokens, targets)

    def gather_samples(self, blocks: Mapping[int, BlockRows], keys: Ids, positions: Ids) -> list[Any]:
        return list(self.gather_columns(blocks, keys, positions))


def _columns(tokens: Tokens, targets: Tokens | None) -> SampleColumns:
    return SampleColumns({"tokens": tokens} if targets is None else {"tokens": tokens, "targets": targets}, len(tokens))


@dataclass(frozen=True, slots=True, eq=False)
class WindowRows:
    """The windows of a block of tokens in memory."""

    tokens: Tokens
    gatherer: TokenWindows

    def positions_of(self, rows: Ids) -> Ids:
        return rows * self.gatherer.stride

    def take(self, rows: Ids) -> list[Any]:
        return self.gatherer.gather_samples({0: self}, np.zeros(len(rows), np.int64), self.positions_of(rows))


@dataclass(frozen=True, slots=True)
class WindowsOnDisk:
    """Decodes windows of files that are not held in memory: each window is read when it is needed."""

    windows: TokenWindows

    def gather_columns(self, blocks: Mapping[int, BlockRows], keys: Ids, positions: Ids) -> SampleColumns:
        windows, many = self.windows, len(keys)
        tokens = np.empty((many, windows.length), windows.values.as_dtype)
        targets = np.empty_like(tokens) if windows.targets else None
        for key in np.unique(keys).tolist():
            here = np.flatnonzero(keys == key)
            found = cast(FileRows, blocks[key]).read_windows(positions[here])
            tokens[here] = found[:, : windows.length]
            if targets is not None:
                targets[here] = found[:, 1:]
        return _columns(tokens, targets)

    def gather_samples(self, blocks: Mapping[int, BlockRows], keys: Ids, positions: Ids) -> list[Any]:
        return list(self.gather_columns(blocks, keys, positions))


@dataclass(frozen=True, slots=True, eq=False)
class FileRows:
    """All windows of a file, none of which is in memory."""

    file: FileBytes
    layout: TokenLayout
    gatherer: WindowsOnDisk

    def positions_of(self, rows: Ids) -> Ids:
        return rows * self.gatherer.windows.stride

    def take(self, rows: Ids) -> list[Any]:
        return self.gatherer.gather_samples({0: self}, np.zeros(len(rows), np.int64), self.positions_of(rows))

    def read_windows(self, begins: Ids) -> Tokens:
        """Return the tokens of the windows that begin at these tokens of the file, one window in a row."""
        layout, windows = self.layout, self.gatherer.windows
        found = np.empty((len(begins), windows.span), layout.dtype)
        self.file.read_rows((layout.offset + begins * layout.dtype.itemsize).tolist(), found.view(np.uint8))
        windows.values.check(found, self.file.path, f"windows from token {int(begins.min()):,} on")
        return found


@dataclass(frozen=True, slots=True, eq=False)
class DocumentRows:
    """The documents of a block of tokens in memory. ``bounds`` are their starts, and then the end of the last one."""

    tokens: Tokens
    bounds: Sequence[int]
    as_dtype: str

    def take(self, rows: Ids) -> list[Any]:
        bounds = self.bounds
        return [{"tokens": self.tokens[bounds[row] : bounds[row + 1]].astype(self.as_dtype)} for row in rows.tolist()]
