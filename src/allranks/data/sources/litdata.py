"""Read chunks that litdata writes (``chunk-0-0.bin``, described by ``index.json`` in the same folder)."""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from allranks.data.index import DECODE_ERRORS, SourceFile
from allranks.data.sources.detect import import_source_module
from allranks.data.sources.file import FileBytes, incomplete_file_error
from allranks.data.sources.files import FileBlocks, FileFormat, FileScan, FileSource, OpenFile
from allranks.data.sources.folder_index import INDEX, MOST_INDEX_BYTES, NamedFile, ReadNames
from allranks.data.sources.limits import check_limit
from allranks.data.sources.patterns import Pattern, parse_pattern
from allranks.data.sources.records import Decode, RecordFormat, RecordTable, Unsupported, unsupported_error
from allranks.errors import DataError

_PACKED = re.compile(r"\.zstd(:\d+)?\.bin$")
_ARROW_MARK = b"LDARW01\0"
_FOOT = 4 + len(_ARROW_MARK)
_TORCH = "float32 float32 float64 float64 complex64 complex64 complex128 complex128 float16 float16 - uint8 int8 int16 "
_TORCH_DTYPES = (_TORCH + "int16 int32 int32 int64 int64 bool uint16").split()
_NUMPY = "int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128 bool"
_NUMPY_DTYPES = _NUMPY.split()
_DEEPEST, _MOST_SPEC = 50, 1_000_000


def litdata(pattern: Pattern, *, max_block_bytes: int | None = None, cache: str | None = None) -> FileSource:
    """Return chunks of litdata as a source. A sample is what was given to ``optimize``. A block is 1 MiB of samples.

    Tensors become NumPy arrays; images and other media stay as they are stored, as bytes. A chunk of texts and numbers
    is stored as Arrow record batches, which are the blocks; its samples are as of ``parquet``. A chunk that is
    compressed as a file (``.zstd.bin``) is one block. ``max_block_bytes``: the most bytes of such a block in memory, as
    for ``parquet``. Refused are other compressions, encryption, other item loaders, and columns that are pickled.
    """
    return FileSource(parse_pattern(pattern), LitDataFormat(check_limit(max_block_bytes)), cache)


@dataclass(frozen=True, slots=True)
class LitDataFormat(RecordFormat):
    """The file format of the source ``litdata``. Begin and end of a block of Arrow rows are bytes of the Arrow file."""

    max_block_bytes: int | None = None
    kind = "litdata"
    suffixes = (".bin",)
    noun = "chunk of litdata"

    @property
    def read_names(self) -> ReadNames:
        return read_named_chunks

    def codec_of(self, name: str) -> str | None:
        return "zstd" if _PACKED.search(name) else None

    def scan_file(self, file: FileBytes) -> FileScan:
        read_index(file)  # without it, this is no chunk
        arrow = find_arrow_rows(file)
        if arrow is None:
            return RecordFormat.scan_file(self, file)
        scan = self._arrow_format.scan_file(arrow)
        read_index(file).check_samples(file, sum(rows for _, _, rows, _ in scan.blocks))
        return scan

    def covers(self, file: SourceFile, blocks: FileBlocks) -> bool:
        """Return whether the blocks can be runs of samples, or record batches; ``open`` reads which of them."""
        in_bytes = blocks.are_ascending and blocks.begin[0] >= 0 and blocks.end[-1] <= file.nbytes
        return bool(in_bytes) or RecordFormat.covers(self, file, blocks)

    def open(self, file: FileBytes, stamp: str, blocks: FileBlocks | None) -> OpenFile:
        if (arrow := find_arrow_rows(file)) is None:
            return RecordFormat.open(self, file, stamp, blocks)
        if blocks is not None:
            read_index(file).check_samples(file, int(blocks.rows.sum()))
        return self._arrow_format.open(arrow, stamp, blocks)

    def find_decoder(self, file: FileBytes, table: RecordTable) -> tuple[Decode, bytes]:
        index = read_index(file)
        index.check_samples(file, len(table.bounds) - 1)
        try:
            decoder = _decoder_of(index.config, is_packed=self.codec_of(file.name) is not None)
            return decoder, json.dumps([index.config["data_format"], index.config["data_spec"]]).encode()
        except Unsupported as error:
            raise unsupported_error(index.file, error) from error
        except DECODE_ERRORS as error:
            raise _index_error(index.file, error) from error

    @property
    def _arrow_format(self) -> FileFormat:
        form: FileFormat = import_source_module("arrow").ArrowFormat(None, max_block_bytes=self.max_block_bytes)
        return form


def find_arrow_rows(file: FileBytes) -> FileBytes | None:
    """Return the Arrow file at the end of a chunk, before its length and a mark; None if there is none.

    The index says that chunks have one: the last sample of any chunk may end with such bytes.
    """
    foot = file.read(file.nbytes - _FOOT, _FOOT) if file.nbytes >= _FOOT else b""
    if not foot.endswith(_ARROW_MARK):
        return None
    config = read_index(file).config
    if not isinstance(config, dict) or "types" not in config:
        return None
    (nbytes,) = struct.unpack_from("<I", foot)
    return file.section(file.nbytes - _FOOT - nbytes, nbytes)


@dataclass(frozen=True, slots=True, eq=False)
class LitDataIndex:
    """The index.json of a folder: the settings of its chunks, and the number of samples of each by its name."""

    file: FileBytes
    config: Any
    sizes: dict[str, Any]

    def check_samples(self, chunk: FileBytes, samples: int) -> None:
        """Raise DataError if the index counts other samples in a chunk than ``samples``."""
        name = chunk.name.rpartition("/")[2]
        if name not in self.sizes:
            raise DataError(
                f"{chunk.path} is not one of the {len(self.sizes):,} chunks that {INDEX} names.",
                path=chunk.path,
                remedy="Is it left from another data set, or is the index an old one? Delete the chunk, or give a list "
                "of the chunks to read; or fetch the index again.",
            )
        try:
            if self.sizes[name] != samples:
                raise ValueError(f"{name} has {samples:,} samples, and the index says {self.sizes[name]!r:.40}")
        except DECODE_ERRORS as error:
            raise _index_error(self.file, error) from error


def read_index(chunk: FileBytes) -> LitDataIndex:
    """Return the index of a chunk, which is read once for all chunks of a folder in a scan or a reader."""

    def parse(index: FileBytes | None) -> LitDataIndex:
        if index is None:
            raise DataError(
                f"{chunk.path}: expected an index.json in its folder, found {chunk.show_folder()}.",
                path=chunk.path,
                remedy="Has litdata written this folder, and is it complete? Other files of tokens: Dataset.tokens.",
            )
        if index.nbytes > MOST_INDEX_BYTES:
            raise DataError(
                f"{index.path}: expected at most {MOST_INDEX_BYTES:,} bytes, found {index.nbytes:,}.",
                path=index.path,
                remedy="Is it the index of litdata? Fetch or write it again.",
            )
        try:
            document = json.loads(index.read(0, index.nbytes))
            sizes = {one["filename"]: one["chunk_size"] for one in document["chunks"]}
            return LitDataIndex(index, document["config"], sizes)
        except DECODE_ERRORS as error:
            raise _index_error(index, error) from error

    return chunk.parse_beside(INDEX, parse)


def read_named_chunks(index: FileBytes) -> list[NamedFile]:
    """Return the chunks that the index of a folder names. Raises DataError for a damaged index."""
    found = read_index(index)
    try:
        return [NamedFile((str(name),), int(samples)) for name, samples in found.sizes.items()]
    except DECODE_ERRORS as error:
        raise _index_error(found.file, error) from error


def _index_error(index: FileBytes, error: Exception) -> DataError:
    return incomplete_file_error(index, "index of litdata", 0, f"{type(error).__name__}: {error}")


def _decoder_of(config: Any, *, is_packed: bool) -> LitDataDecoder:
    compression, level = config.get("compression"), config.get("compression_level")
    if level not in (None, "chunk"):
        raise Unsupported(f"compression_level is {str(level)[:40]!r}, which is not supported")
    if compression is not None and not is_packed:
        raise Unsupported(f"compression is {str(compression)[:40]!r}, which is not supported for chunks of this name")
    for name, expected in (("encryption", None), ("item_loader", "PyTreeLoader")):
        if config.get(name, expected) not in (expected, None):
            why = f"{name} is {str(config[name])[:40]!r}, which is not supported"
            of_tokens = config[name] == "TokensLoader"
            raise Unsupported(why, "Read it with Dataset.tokens.") if of_tokens else Unsupported(why)
    decoders = tuple(map(_decoder_of_leaf, config["data_format"]))
    if not decoders or len(config["data_spec"]) > _MOST_SPEC:
        raise ValueError(f"samples have no values, or need more than {_MOST_SPEC:,} characters to describe them")
    spec = json.loads(config["data_spec"])[1]
    if _count_leaves(spec) != len(decoders):
        raise ValueError(f"it describes {len(decoders)} values and {_count_leaves(spec)} places for them")
    return LitDataDecoder(decoders, spec)


@dataclass(frozen=True, slots=True)
class LitDataDecoder:
    """Decodes one sample: the sizes of its values, and then the values, which are put into the structure ``spec``."""

    decoders: tuple[Callable[[bytes], Any], ...]
    spec: Any

    def __call__(self, record: bytes) -> Any:
        many = len(self.decoders)
        ends = 4 * many + np.cumsum(np.frombuffer(record[: 4 * many], "<u4").astype(np.int64))
        if len(ends) != many or (many and ends[-1] != len(record)):
            raise ValueError(f"its values do not end at byte {len(record):,}")
        bounds = [4 * many, *ends.tolist()]
        values = (
            decode(record[begin:end]) for decode, begin, end in zip(self.decoders, bounds, bounds[1:], strict=False)
        )
        return _build(self.spec, values)


def _count_leaves(spec: Any, depth: int = 0) -> int:
    kind, children = spec["type"], spec["children_spec"]
    if depth > _DEEPEST or kind not in (None, "builtins.dict", "builtins.list", "builtins.tuple"):
        raise ValueError(f"samples are made of {kind!r}: expected dicts, lists and tuples, at most {_DEEPEST} deep")
    if kind == "builtins.dict" and len({*map(str, dict.fromkeys(json.loads(spec["context"])))}) != len(children):
        raise ValueError("a dict has not a value for each key, or a key twice")
    return 1 if kind is None else sum(_count_leaves(child, depth + 1) for child in children)


def _build(spec: Any, values: Iterator[Any]) -> Any:
    """Return a sample in the structure of torch's pytree ``spec``."""
    kind = spec["type"]
    if kind is None:
        return next(values)
    children = [_build(child, values) for child in spec["children_spec"]]
    if kind == "builtins.dict":
        return dict(zip(json.loads(spec["context"]), children, strict=True))
    return tuple(children) if kind == "builtins.tuple" else children


def _decoder_of_leaf(written: str) -> Callable[[bytes], Any]:
    """Return the decoder of a value. Raises ValueError for a format that is not supported."""
    kind = written.partition(":")[0]
    if kind in ("no_header_tensor", "no_header_numpy"):
        return FlatArrayDecoder(flat_dtype(written))
    if kind not in _DECODERS:
        if kind == "pickle":
            raise Unsupported(f"a value has the format {written!r}: pickles can run any program, and are refused")
        raise ValueError(f"a value has the format {written!r}: expected a known one")
    return _DECODERS[kind]


def flat_dtype(written: str) -> np.dtype[Any]:
    """Return the dtype of arrays of one dimension in the format ``no_header_tensor:16``, or that of NumPy."""
    kind, _, option = written.partition(":")
    if not option.isdecimal():
        raise ValueError(f"a value has the format {written!r:.40}: expected the number of a dtype")
    return np.dtype((_TORCH_DTYPES if kind == "no_header_tensor" else _NUMPY_DTYPES)[int(option)])


@dataclass(frozen=True, slots=True)
class FlatArrayDecoder:
    """Decodes an array of one dimension."""

    dtype: np.dtype[Any]

    def __call__(self, data: bytes) -> Any:
        return np.frombuffer(data, self.dtype).copy()


def _decode_tensor(data: bytes) -> Any:
    kind, dimensions = struct.unpack_from(">II", data)
    return _decode_array(data, _TORCH_DTYPES[kind], 8, dimensions, ">")


def _decode_numpy(data: bytes) -> Any:
    kind, dimensions = struct.unpack_from("<II", data)
    return _decode_array(data, _NUMPY_DTYPES[kind], 8, dimensions, "<")


def _decode_array(data: bytes, dtype: str, at: int, dimensions: int, order: str) -> Any:
    begin = at + 4 * dimensions
    if begin > len(data):
        raise ValueError(f"an array has {dimensions:,} dimensions")
    shape = tuple(np.frombuffer(data[at:begin], f"{order}u4").tolist())
    values = np.frombuffer(data, dtype, offset=begin) if begin < len(data) else np.empty(0, dtype)
    if math.prod(shape) != len(values):
        raise ValueError(f"an array of the shape {shape} has {len(values):,} values")
    return values.reshape(shape).copy()


_DECODERS: dict[str, Callable[[bytes], Any]] = {
    **dict.fromkeys(("bytes", "file", "image", "video", "audio", "jpeg", "pil"), bytes),
    **dict.fromkeys(("str", "text"), bytes.decode),
    "int": lambda data: struct.unpack("<q", data)[0],
    "float": lambda data: struct.unpack("<d", data)[0],
    "bool": lambda data: struct.unpack("?", data)[0],
    "json": json.loads,
    "tensor": _decode_tensor,
    "numpy": _decode_numpy,
}
