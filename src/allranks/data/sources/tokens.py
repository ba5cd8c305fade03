"""Read files of tokens: windows of a length, or documents."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from allranks.data.arguments import check_number
from allranks.data.base import BlockRows, RandomAccess
from allranks.data.index import SourceFile
from allranks.data.sources.file import CHUNK, FileBytes, data_changed_error, digest_of_places, wrong_index_error
from allranks.data.sources.files import FileBlocks, FileFormat, FileScan, FileSource, IndexBlock, OpenFile
from allranks.data.sources.folder_index import ReadNames
from allranks.data.sources.litdata_tokens import find_litdata_tokens, read_named_token_chunks
from allranks.data.sources.megatron import MegatronIndex, open_megatron_index
from allranks.data.sources.patterns import Pattern, parse_pattern
from allranks.data.sources.token_file import SUFFIXES, TokenLayout, find_tokens, token_file_error
from allranks.data.sources.token_windows import (
    DocumentRows,
    FileRows,
    TokenValues,
    TokenWindows,
    WindowRows,
    WindowsOnDisk,
)
from allranks.errors import DataError

_BLOCK_BYTES = 1 << 16
_LONGEST_DOCUMENT = 1 << 28  # bytes
_DTYPES = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64")
DtypeName = str | type[np.integer] | np.dtype[np.integer]
_ONE_OF_THEM = "For windows that end where documents end: Dataset.tokens(files, eos_id=...).pack(length)."


def tokens(
    pattern: Pattern,
    *,
    length: int | None = None,
    stride: int | None = None,
    targets: bool = False,
    eos_id: int | None = None,
    dtype: DtypeName | None = None,
    as_dtype: DtypeName = "int64",
    vocab_size: int | None = None,
    block_bytes: int = _BLOCK_BYTES,
    cache: str | None = None,
) -> TokenSource:
    """Return files of tokens as a source. ``Dataset.tokens`` describes the options.

    A block is about ``block_bytes`` of tokens. Files are read, not memory-mapped, because a map of a truncated file
    kills the process.
    """
    if length is None and (stride is not None or targets):
        raise DataError("tokens: stride and targets belong to windows: expected a length.", remedy="Give length=...")
    if length is not None and eos_id is not None:
        raise DataError("tokens: length= gives windows, and eos_id= documents: expected one.", remedy=_ONE_OF_THEM)
    for name, number, meaning, least in (
        ("length", length, "the tokens of a window", 1),
        ("stride", stride, "the tokens from the start of a window to the start of the next one", 1),
        ("eos_id", eos_id, "the token that ends a document", 0),
        ("vocab_size", vocab_size, "the number of tokens that exist", 1),
        ("block_bytes", block_bytes, "the bytes of tokens that are read at a time", 1),
    ):
        if number is not None or name == "block_bytes":
            check_number(name, number, meaning, least=least)
    stored = None if dtype is None else _name_of_dtype("dtype", dtype)
    values = TokenValues(_name_of_dtype("as_dtype", as_dtype), vocab_size)
    windows = None if length is None else TokenWindows(length, stride or length, bool(targets), values)
    return TokenSource(parse_pattern(pattern), TokenFormat(windows, values, eos_id, stored, block_bytes), cache)


def _name_of_dtype(argument: str, value: DtypeName) -> str:
    """Return the name of an integer type. Raises DataError for another type, and for another byte order."""
    name: object = value
    if isinstance(value, np.dtype) and value == value.newbyteorder("<"):
        name = value.name
    elif isinstance(value, type) and issubclass(value, np.generic):
        name = value.__name__
    if not (isinstance(name, str) and name in _DTYPES):
        raise DataError(f"{argument}={value!r:.40}: expected one of {', '.join(_DTYPES)} (little-endian).")
    return name


@dataclass(frozen=True, slots=True)
class TokenSource(FileSource):
    """The source that ``tokens`` returns."""

    format: TokenFormat

    def random_access(self) -> RandomAccess:
        """Return the source of all windows, which are read one by one. A window may begin at any token.

        If a ``stride`` was given that is not the length, windows begin at its multiples.
        """
        windows = self.format.windows
        if windows is None:
            raise DataError("random draws windows of tokens: expected Dataset.tokens(files, length=...).")
        stride = 1 if windows.stride == windows.length else windows.stride
        form = replace(self.format, windows=replace(windows, stride=stride), on_disk=True)
        return RandomAccess(replace(self, format=form), max(1, windows.length // stride))


@dataclass(frozen=True, slots=True)
class TokenFormat(FileFormat):
    """The file format of the source ``tokens``. Without ``windows``, a sample is a document.

    ``on_disk``: a block is a whole file, of which each window is read when it is needed.
    """

    windows: TokenWindows | None
    values: TokenValues
    eos_id: int | None
    dtype: str | None
    block_bytes: int
    on_disk: bool = False
    kind = "tokens"
    suffixes = SUFFIXES

    @property
    def block_settings(self) -> tuple[str, ...]:
        cut = (self.windows.length, self.windows.stride, self.windows.targets) if self.windows else (self.eos_id,)
        return (*map(str, cut), str(self.dtype), str(self.block_bytes), str(self.on_disk))

    @property
    def read_names(self) -> ReadNames:
        return read_named_token_chunks

    def scan_file(self, file: FileBytes) -> FileScan:
        """Return windows or documents as blocks; begin and end are tokens, or documents of a file of Megatron."""
        if not file.nbytes:
            return FileScan((), _stamp_of(file, None))
        layout, megatron = self._find_tokens(file)
        if self.windows is not None:
            blocks = self.windows.divide(layout.count, self._windows_per_block(layout))
        elif megatron is not None:
            megatron.check()
            blocks = self._divide_documents(megatron.document_bounds(0, megatron.documents), layout, file)
        else:
            ends = self._document_ends(file, layout)
            bounds = np.concatenate([np.zeros(1, np.int64), ends])
            numbers = self._divide_documents(bounds, layout, file)
            blocks = tuple((int(bounds[begin]), int(bounds[end]), many, 0) for begin, end, many, _ in numbers)
        return FileScan(blocks, _stamp_of(file, megatron))

    def covers(self, file: SourceFile, blocks: FileBlocks) -> bool:
        """Return whether the blocks are inside of the file; ``open`` computes those of windows again."""
        return bool((blocks.begin < blocks.end).all() and blocks.begin[0] >= 0 and blocks.end[-1] <= file.nbytes)

    def open(self, file: FileBytes, stamp: str, blocks: FileBlocks | None) -> OpenFile:
        layout, megatron = self._find_tokens(file)
        found = _stamp_of(file, megatron)
        if found != stamp:
            raise data_changed_error(file.path, f"bytes with the digest {stamp}", found)
        if blocks is not None and self.windows is not None:
            expected = self.windows.divide(layout.count, self._windows_per_block(layout))
            if (blocks.begin.tolist(), blocks.end.tolist(), blocks.rows.tolist()) != tuple(
                [block[column] for block in expected] for column in range(3)
            ):
                raise wrong_index_error(file.path, f"{blocks.rows.sum():,} windows", "other windows")
        if blocks is not None and self.windows is None:
            last = layout.count if megatron is None else megatron.documents
            if blocks.begin[0] or blocks.end[-1] != last or (blocks.begin[1:] != blocks.end[:-1]).any():
                raise wrong_index_error(file.path, "documents to the end", "others")
        return TokenFile(file, layout, megatron, self)

    def _find_tokens(self, file: FileBytes) -> tuple[TokenLayout, MegatronIndex | None]:
        name = file.name.rpartition("/")[2]
        index = file.beside(name.removesuffix(".bin") + ".idx") if name.endswith(".bin") else None
        if index is not None:
            megatron = open_megatron_index(index, file)
            return megatron.tokens, megatron
        if self.windows is None and self.eos_id is None:
            raise DataError(
                f"{file.path} has no .idx file of Megatron beside it, so its documents are not known.",
                path=file.path,
                remedy="Give eos_id=..., the token that ends a document; or length=..., for windows.",
            )
        return find_litdata_tokens(file) or find_tokens(file, self.dtype, self.values.vocab_size), None

    def _windows_per_block(self, layout: TokenLayout) -> int:
        assert self.windows is not None
        if self.on_disk:
            return max(layout.count, 1)
        return max(1, self.block_bytes // (self.windows.stride * layout.dtype.itemsize))

    def _document_ends(self, file: FileBytes, layout: TokenLayout) -> NDArray[np.int64]:
        """Return the ends of the documents of a file: behind each ``eos_id``, and at the end of the file."""
        at_once = CHUNK // layout.dtype.itemsize
        found = [
            begin + 1 + np.flatnonzero(layout.read(file, begin, min(begin + at_once, layout.count)) == self.eos_id)
            for begin in range(0, layout.count, at_once)
        ]
        ends = np.concatenate([np.empty(0, np.int64), *found])
        return np.append(ends, layout.count) if layout.count > (ends[-1] if len(ends) else 0) else ends

    def _divide_documents(
        self, bounds: NDArray[np.int64], layout: TokenLayout, file: FileBytes
    ) -> tuple[tuple[int, int, int, int], ...]:
        """Divide documents into blocks of about ``block_bytes``; return them as (document, end, documents, 0)."""
        width = layout.dtype.itemsize
        if len(bounds) > 1 and (longest := int(np.diff(bounds).max()) * width) > _LONGEST_DOCUMENT:
            number = int(np.diff(bounds).argmax())
            raise token_file_error(
                file,
                layout.offset + int(bounds[number]) * width,
                f"document {number:,} has {longest:,} bytes: expected at most {_LONGEST_DOCUMENT:,}",
                "Is eos_id= the token that ends a document?",
            )
        return tuple(_blocks_of_documents(bounds, max(1, self.block_bytes // width)))


def _blocks_of_documents(bounds: NDArray[np.int64], tokens: int) -> Iterator[tuple[int, int, int, int]]:
    at, last = 0, len(bounds) - 1
    while at < last:
        end = min(max(int(np.searchsorted(bounds, bounds[at] + tokens)), at + 1), last)
        yield at, end, end - at, 0
        at = end


@dataclass(frozen=True, slots=True)
class TokenFile:
    """A file of tokens that is open for reading blocks."""

    file: FileBytes
    layout: TokenLayout
    megatron: MegatronIndex | None
    format: TokenFormat

    def read_block(self, block: IndexBlock) -> BlockRows:
        windows, path = self.format.windows, self.file.path
        if windows is not None and self.format.on_disk:
            return FileRows(self.file, self.layout, WindowsOnDisk(windows))
        begin, end, bounds = block.begin, block.end, None
        if windows is None and self.megatron is not None:
            bounds = self.megatron.document_bounds(begin, end)
            begin, end = int(bounds[0]), int(bounds[-1])
        found = self.layout.read(self.file, begin, end)
        where = f"tokens {begin:,} to {end:,}"
        self.format.values.check(found, path, where)
        if windows is not None:
            return WindowRows(found, windows)
        if bounds is None:
            ends = np.flatnonzero(found == self.format.eos_id) + 1
            inside = ends[: np.searchsorted(ends, len(found))]
            bounds = np.concatenate([[begin], begin + inside, [end]])
        block.check_rows(len(bounds) - 1, path, where)
        return DocumentRows(found, (bounds - begin).tolist(), self.format.values.as_dtype)


def _stamp_of(file: FileBytes, megatron: MegatronIndex | None) -> str:
    """Return a digest of the file, and of its index: these files have no checksums."""
    return digest_of_places(file) if megatron is None else digest_of_places(file, megatron.file)
