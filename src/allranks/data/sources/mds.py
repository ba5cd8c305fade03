"""Read MDS shards, which mosaicml-streaming writes."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np

from allranks.data.index import DECODE_ERRORS
from allranks.data.sources.file import FileBytes, incomplete_file_error
from allranks.data.sources.files import FileSource
from allranks.data.sources.folder_index import MOST_INDEX_BYTES, NamedFile, ReadNames
from allranks.data.sources.limits import check_limit
from allranks.data.sources.listing import ListedFile
from allranks.data.sources.patterns import Pattern, parse_pattern
from allranks.data.sources.records import Decode, RecordFormat, RecordTable, Unsupported, unsupported_error
from allranks.errors import DataError

_NOUN = "MDS shard"
_CODECS = {".zstd": "zstd", ".gz": "gzip"}
_SCALARS = {f"{kind}{bits}" for kind in ("int", "uint", "float") for bits in (8, 16, 32, 64)} - {"float8"}
_DTYPES = {8: "uint8", 9: "int8", 16: "uint16", 17: "int16", 18: "float16", 32: "uint32", 33: "int32", 34: "float32"}
_DTYPES |= {64: "uint64", 65: "int64", 66: "float64"}
_AS_STORED = ("bytes", "jpeg", "png", "pil")


def mds(pattern: Pattern, *, max_block_bytes: int | None = None, cache: str | None = None) -> MdsSource:
    """Return MDS shards (``.mds``) as a source. A sample is a dict of its columns. A block is 1 MiB of samples.

    Each shard describes itself. ``index.json`` is only read for the names of the shards, all of which must be there if
    they match the pattern. Values are those of mosaicml-streaming, but images stay
    as they are stored, as bytes. Columns that are pickled are refused.

    A shard that is compressed with Zstandard or gzip (``.mds.zstd``, ``.mds.gz``) is one block, with at most
    ``max_block_bytes`` when unpacked: by default 256 MiB, or 64 times its bytes if that is more.
    """
    return MdsSource(parse_pattern(pattern), MdsFormat(check_limit(max_block_bytes)), cache)


@dataclass(frozen=True, slots=True)
class MdsSource(FileSource):
    """The source that ``mds`` returns."""

    def list_files(self) -> tuple[ListedFile, ...]:
        """Return the shards. Raises DataError for a shard that is there twice, compressed and not."""
        found = FileSource.list_files(self)
        first: dict[str, str] = {}
        for one in found:
            shard = next((one.name.removesuffix(end) for end in _CODECS if one.name.endswith(end)), one.name)
            if (other := first.setdefault(shard, one.name)) != one.name:
                raise DataError(
                    f"{self.where}: {other} and {one.name} hold the same samples.",
                    path=self.where,
                    remedy="Give a pattern for one of the two: '*.mds', or '*.mds.zstd'.",
                )
        return found


@dataclass(frozen=True, slots=True)
class MdsFormat(RecordFormat):
    """The file format of the source ``mds``."""

    max_block_bytes: int | None = None
    kind = "mds"
    suffixes = (".mds", *(f".mds{end}" for end in _CODECS))
    noun = _NOUN

    @property
    def read_names(self) -> ReadNames:
        return _read_named_shards

    def codec_of(self, name: str) -> str | None:
        return next((codec for end, codec in _CODECS.items() if name.endswith(end)), None)

    def find_decoder(self, file: FileBytes, table: RecordTable) -> tuple[Decode, bytes]:
        try:
            config = json.loads(table.header)
            names, encodings, sizes = (
                list(config[name]) for name in ("column_names", "column_encodings", "column_sizes")
            )
            if len({*names}) != len(names) or not all(isinstance(name, str) for name in names):
                raise ValueError("the names of its columns are not different texts")
            if not names:
                raise ValueError("its samples have no columns")
            columns = tuple(_column_of(*about) for about in zip(names, encodings, sizes, strict=True))
        except Unsupported as error:
            raise unsupported_error(file, error) from error
        except DECODE_ERRORS as error:
            raise incomplete_file_error(
                file, _NOUN, 4 + 4 * len(table.bounds), f"its header is damaged: {error}"
            ) from error
        return MdsDecoder(columns), table.header


def _read_named_shards(index: FileBytes) -> list[NamedFile]:
    """Return the shards that an index names, which may be compressed or not. Raises DataError for a damaged index."""
    try:
        if index.nbytes > MOST_INDEX_BYTES:
            raise ValueError(f"expected at most {MOST_INDEX_BYTES:,} bytes")
        return [
            NamedFile(
                tuple(str(shard[form]["basename"]) for form in ("raw_data", "zip_data") if shard.get(form)),
                int(shard["samples"]),
            )
            for shard in json.loads(index.read(0, index.nbytes))["shards"]
        ]
    except DECODE_ERRORS as error:
        why = f"{type(error).__name__}: {error}"
        remedy = "Fetch it again; or delete it, if all shards are there: they describe themselves."
        raise incomplete_file_error(index, "index of MDS shards", 0, why, remedy) from error


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    size: int | None
    decode: Callable[[bytes], Any]


@dataclass(frozen=True, slots=True)
class MdsDecoder:
    """Decodes one sample: the sizes of those columns that have no fixed size, and then the values of all columns."""

    columns: Sequence[_Column]

    def __call__(self, record: bytes) -> dict[str, Any]:
        many = sum(column.size is None for column in self.columns)
        sizes = iter(np.frombuffer(record[: 4 * many], "<u4").tolist())
        at, found = 4 * many, {}
        if at > len(record):
            raise ValueError(f"the sizes of its columns would end at byte {at:,} of {len(record):,}")
        for column in self.columns:
            end = at + (next(sizes) if column.size is None else column.size)
            if end > len(record):
                raise ValueError(f"column {column.name!r} would end at byte {end:,} of {len(record):,}")
            found[column.name] = column.decode(record[at:end])
            at = end
        if at != len(record):
            raise ValueError(f"its columns end at byte {at:,} of {len(record):,}")
        return found


def _column_of(name: str, encoding: Any, size: Any) -> _Column:
    """Return how a column is decoded. Raises ValueError for an encoding that is not known, or a wrong size."""
    if not (size is None or (isinstance(size, int) and 0 < size < 1 << 32)):
        raise ValueError(f"column {name!r} has the size {size!r}")
    kind, _, options = str(encoding).partition(":")
    if kind == "ndarray":
        dtype, _, shape = options.partition(":")
        lengths = tuple(map(int, shape.split(","))) if shape else None
        if dtype and dtype not in _DTYPES.values():
            raise ValueError(f"column {name!r} has the encoding {encoding!r}")
        return _Column(name, size, ArrayDecoder(dtype, lengths))
    if kind in _SCALARS or kind == "int":
        return _Column(name, size, ScalarDecoder("int64" if kind == "int" else kind, is_int=kind == "int"))
    if kind not in _DECODERS:
        if kind == "pkl":
            raise Unsupported(f"column {name!r} has the encoding 'pkl': pickles can run any program, and are refused")
        raise ValueError(f"column {name!r} has the encoding {encoding!r}: expected a known one")
    return _Column(name, size, _DECODERS[kind])


_DECODERS: dict[str, Callable[[bytes], Any]] = {
    **dict.fromkeys(_AS_STORED, bytes),
    "str": bytes.decode,
    "json": json.loads,
    "str_int": int,
    "str_float": float,
    "str_decimal": lambda data: Decimal(data.decode()),
}


@dataclass(frozen=True, slots=True)
class ScalarDecoder:
    """Decodes a number, as one of NumPy, or of Python for the encoding ``int``."""

    dtype: str
    is_int: bool

    def __call__(self, data: bytes) -> Any:
        (value,) = np.frombuffer(data, self.dtype)
        return int(value) if self.is_int else value


@dataclass(frozen=True, slots=True)
class ArrayDecoder:
    """Decodes an array, whose dtype and shape are written before its values if they are not given."""

    dtype: str
    shape: tuple[int, ...] | None

    def __call__(self, data: bytes) -> Any:
        at, dtype, shape = 0, self.dtype, self.shape
        if not dtype:
            dtype, at = _DTYPES[data[0]], 1
        if shape is None:
            dimensions, width = data[at] >> 2, 1 << (data[at] & 3)
            end = at + 1 + dimensions * width
            shape = tuple(np.frombuffer(data[at + 1 : end], f"<u{width}").tolist())
            at = end
        values = np.frombuffer(data, dtype, offset=at)
        if math.prod(shape) != len(values):
            raise ValueError(f"an array of the shape {shape} has {len(values):,} values")
        return values.reshape(shape).copy()
