"""Read Flax's msgpack (``flax.serialization.to_bytes``). Arrays are read from the file in place, without checksums.

Arrays are msgpack extensions of type 1, whose content is msgpack again: [shape, dtype, bytes]. Type 2 is a complex
number; type 3 is a NumPy scalar, encoded as an array. Arrays of more than 2^30 bytes are dicts of pieces, each a flat
array.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from allranks.checkpoint.dtypes import DTYPES
from allranks.checkpoint.manifest import ShardRun
from allranks.errors import Unsafe
from allranks.loading.fit import StoredArray
from allranks.loading.formats.base import FileBlob, SourceDescription, checked_shape, shorten
from allranks.loading.formats.catalog import ByteCatalog, ByteSource, contiguous_shard, shards_of_range
from allranks.storage import limits
from allranks.storage.base import Storage

_AHEAD = 16 << 10
_LONGEST_TEXT = 1 << 20
# The part of the metadata limit that a value takes, beside the bytes of its text.
_BYTES_PER_VALUE = 64
_CHUNKED = "__msgpack_chunked_array__"
_FORMS = {form: struct.Struct(f">{form}") for form in "bBhHiIqQfd"}
_SIZES = {0xC4: "B", 0xC5: "H", 0xC6: "I", 0xD9: "B", 0xDA: "H", 0xDB: "I", 0xDC: "H", 0xDD: "I"}
_SIZES |= {0xDE: "H", 0xDF: "I", 0xC7: "B", 0xC8: "H", 0xC9: "I"}
_NUMBERS = {0xCA: "f", 0xCB: "d", 0xCC: "B", 0xCD: "H", 0xCE: "I", 0xCF: "Q"}
_NUMBERS |= {0xD0: "b", 0xD1: "h", 0xD2: "i", 0xD3: "q"}


@dataclass(frozen=True, slots=True)
class _SkippedBytes:
    """A range of bytes in the file that was skipped, not read."""

    begin: int
    size: int


@dataclass(frozen=True, slots=True)
class _ArrayBytes:
    shape: tuple[int, ...]
    dtype: str
    begin: int


def open_file(storage: Storage, name: str) -> ByteSource:
    """Return the source for a msgpack file of Flax. Raises Damaged."""
    blob = FileBlob.of_file(storage, name)
    scan = _MsgpackScanner(blob)
    tree = scan.next_value(0)
    if scan.at != blob.size:
        raise blob.damaged_error(f"its content ends at byte {scan.at}: expected {blob.size}, the size of the file")
    catalog, values = ByteCatalog(), {}
    file = catalog.add_file(name, blob.size)
    for path, leaf in _read_leaves(blob, tree, ""):
        if isinstance(leaf, _ArrayBytes):
            catalog.add_leaf(path, StoredArray(leaf.shape, leaf.dtype), contiguous_shard(file, leaf.begin, leaf.shape))
        elif isinstance(leaf, dict):
            stored, runs = _join_pieces(blob, file, leaf)
            catalog.add_leaf(path, stored, runs)
        elif leaf is None or isinstance(leaf, bool | int | float | str):
            values[path] = leaf
    return ByteSource(
        storage, catalog, SourceDescription("flax msgpack", "not at all: msgpack has no checksums"), values=values
    )


def _read_leaves(blob: FileBlob, node: Any, path: str) -> Iterator[tuple[str, Any]]:
    children: Iterator[tuple[Any, Any]]
    if isinstance(node, dict) and not node.get(_CHUNKED):
        children = iter(node.items())
    elif isinstance(node, list):
        children = iter(enumerate(node))
    else:
        yield path, node
        return
    if len(path) > limits.NAME:
        raise blob.damaged_error(f"a name has {len(path):,} characters: expected at most {limits.NAME:,}")
    for key, child in children:
        yield from _read_leaves(blob, child, f"{path}/{key}" if path else str(key))


def _join_pieces(blob: FileBlob, file: int, node: Mapping[str, Any]) -> tuple[StoredArray, tuple[ShardRun, ...]]:
    """Return an array that is stored in several pieces, as its description and its shards. Raises Damaged."""
    match node:
        case {"shape": dict(shape), "chunks": dict(chunks)} if chunks:
            sizes, pieces = tuple(shape.values()), list(chunks.values())
        case _:
            raise blob.damaged_error(f"a chunked array has the keys {shorten(list(node))}: expected shape and chunks")
    if not all(isinstance(piece, _ArrayBytes) for piece in pieces) or len({piece.dtype for piece in pieces}) != 1:
        raise blob.damaged_error("a chunked array has pieces that are not arrays of one dtype")
    try:
        checked_shape(sizes)
    except ValueError as error:
        raise blob.damaged_error(f"a chunked array: {error}") from error
    stored, at = StoredArray(sizes, pieces[0].dtype), 0
    runs: list[ShardRun] = []
    for piece in pieces:
        many = math.prod(piece.shape)
        if at + many > math.prod(sizes):
            raise blob.damaged_error(f"a chunked array has more elements in its pieces than its shape {sizes}")
        runs += shards_of_range(file, piece.begin, sizes, at, at + many, DTYPES[stored.dtype].size)
        at += many
    if at != math.prod(sizes):
        raise blob.damaged_error(f"a chunked array of shape {sizes} has {at} elements in its pieces")
    return stored, tuple(runs)


class _MsgpackScanner:
    """Reads msgpack from ``at`` on. It skips the bytes of arrays, so it reads only little of a large file."""

    def __init__(self, blob: FileBlob) -> None:
        self._blob = blob
        self.at, self._end = 0, blob.size
        self._ahead, self._begin = b"", 0
        self._room = limits.metadata_limit()

    def next_value(self, depth: int) -> Any:
        """Return the next value: a container, a JSON value, an _Array, or _SkippedBytes. Raises Damaged."""
        if depth > limits.DEPTH:
            raise self._blob.damaged_error(f"it is nested too deeply: expected at most {limits.DEPTH} levels")
        self._room -= _BYTES_PER_VALUE
        if self._room < 0:
            most = limits.metadata_limit() // _BYTES_PER_VALUE
            raise Unsafe(
                f"{self._blob.url}: it has more than {most:,} values, or long texts.",
                path=self._blob.name,
                remedy=limits.advice_on_limit(),
            )
        code = self._take(1)[0]
        if code < 0x80 or code >= 0xE0:
            return code if code < 0x80 else code - 0x100
        if code in (0xC0, 0xC2, 0xC3):
            return {0xC0: None, 0xC2: False, 0xC3: True}[code]
        if code in _NUMBERS:
            return self._number(_NUMBERS[code])
        if 0xD4 <= code <= 0xD8:
            return self._extension(1 << (code - 0xD4), depth)
        if code == 0xC1:
            raise self._blob.damaged_error(f"byte {self.at - 1} is not msgpack")
        return self._sized(code, depth)

    def _sized(self, code: int, depth: int) -> Any:
        size = self._number(_SIZES[code]) if code in _SIZES else code & (0x1F if 0xA0 <= code < 0xC0 else 0x0F)
        if 0xC4 <= code <= 0xC6:
            return self._skip(size)
        if 0xC7 <= code <= 0xC9:
            return self._extension(size, depth)
        if 0xA0 <= code < 0xC0 or 0xD9 <= code <= 0xDB:
            return self._text(size)
        if 0x90 <= code < 0xA0 or code in (0xDC, 0xDD):
            self._must_have(size)
            return [self.next_value(depth + 1) for _ in range(size)]
        self._must_have(2 * size)
        found: dict[Any, Any] = {}
        for _ in range(size):
            key = self.next_value(depth + 1)
            if not isinstance(key, str | int) or key in found:
                raise self._blob.damaged_error(f"a map has the invalid or repeated key {shorten(key)}")
            found[key] = self.next_value(depth + 1)
        return found

    def _extension(self, size: int, depth: int) -> Any:
        kind = self._number("b")
        inner = self._skip(size)
        if kind not in (1, 3):
            return inner
        match self._within(inner, depth):
            case [[*shape], str(dtype), _SkippedBytes() as data]:
                pass
            case _:
                raise self._blob.damaged_error(f"byte {inner.begin} is not an array of Flax")
        dtype = "bool" if dtype == "bool_" else dtype
        if dtype not in DTYPES:
            raise self._blob.damaged_error(f"an array has the dtype {dtype!r:.80}, which allranks does not know")
        try:
            checked_shape(shape)
        except ValueError as error:
            raise self._blob.damaged_error(f"an array at byte {inner.begin}: {error}") from error
        if data.size != math.prod(shape) * DTYPES[dtype].size:
            raise self._blob.damaged_error(
                f"an array {dtype}{shape} has {data.size} bytes: expected {math.prod(shape) * DTYPES[dtype].size}"
            )
        return _ArrayBytes(tuple(shape), dtype, data.begin)

    def _within(self, inner: _SkippedBytes, depth: int) -> Any:
        """Return the value that is encoded in a range of bytes. The scanner's position does not change."""
        outer = self.at, self._end
        self.at, self._end = inner.begin, inner.begin + inner.size
        value = self.next_value(depth + 1)
        self.at, self._end = outer
        return value

    def _text(self, size: int) -> str:
        if size > _LONGEST_TEXT:
            raise self._blob.damaged_error(f"a text has {size} bytes: expected at most {_LONGEST_TEXT}")
        self._room -= size
        try:
            return self._take(size).decode()
        except UnicodeDecodeError as error:
            raise self._blob.damaged_error(f"a text is not UTF-8 ({error.reason})") from error

    def _number(self, form: str) -> Any:
        packed = _FORMS[form]
        return packed.unpack(self._take(packed.size))[0]

    def _must_have(self, size: int) -> None:
        if self.at + size > self._end:
            raise self._blob.damaged_error(
                f"a value at byte {self.at} would have {size} bytes: expected at most {self._end - self.at}"
            )

    def _skip(self, size: int) -> _SkippedBytes:
        self._must_have(size)
        self.at += size
        return _SkippedBytes(self.at - size, size)

    def _take(self, size: int) -> bytes:
        self._must_have(size)
        begin, self.at = self.at, self.at + size
        if not self._begin <= begin <= self.at <= self._begin + len(self._ahead):
            more = min(max(size, _AHEAD), self._blob.size - begin)
            self._ahead, self._begin = self._blob.read(begin, more, content="the tree"), begin
        return self._ahead[begin - self._begin : self.at - self._begin]
