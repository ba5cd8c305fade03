"""Read safetensors: one file, or the files in an index of Hugging Face. The format has no checksums."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from allranks.checkpoint.dtypes import DTYPES
from allranks.checkpoint.json_value import parse_json
from allranks.errors import Damaged, Unsafe
from allranks.loading.fit import StoredArray
from allranks.loading.formats.base import FileBlob, SourceDescription, checked_shape, shorten
from allranks.loading.formats.catalog import ByteCatalog, ByteSource, contiguous_shard
from allranks.storage import limits
from allranks.storage.base import Storage

# As in the format's own library.
_MOST_HEADER = 100_000_000
_DTYPES = {dtype.stored_as: name for name, dtype in reversed(DTYPES.items()) if not dtype.tail}
_CONFIG, _MOST_CONFIG = "config.json", 8 << 20
CHECKED = "not at all: safetensors has no checksums"


def open_files(storage: Storage, names: Iterable[str], *, index: Mapping[str, str] | None = None) -> ByteSource:
    """Return the source for safetensors files; ``index`` has the file of each tensor. Raises Damaged."""
    catalog = ByteCatalog()
    names = list(names)
    for name in names:
        _add_tensors(catalog, FileBlob.of_file(storage, name))
    if index is not None:
        _check_index(storage, catalog, index)
    files = "1 file" if len(names) == 1 else f"{len(names)} files"
    return ByteSource(
        storage,
        catalog,
        SourceDescription(f"safetensors, {files}", CHECKED, quantization=_quantization_config(storage)),
    )


def _quantization_config(storage: Storage) -> dict[str, Any]:
    """Return the ``quantization_config`` of the config.json beside a file; {} if there is none."""
    size = storage.size(_CONFIG)
    if size is None or size > _MOST_CONFIG:
        return {}
    try:
        found = parse_json(storage.get(_CONFIG, most=_MOST_CONFIG))["quantization_config"]
    except (ValueError, KeyError, TypeError, Unsafe):
        return {}
    return found if isinstance(found, dict) else {}


def read_header(blob: FileBlob) -> tuple[dict[str, Any], int]:
    """Return the header of a file, and the position at which the file's data begins. Raises Damaged, Unsafe."""
    length = int.from_bytes(blob.read(0, 8, content="the length of the header"), "little")
    if length > _MOST_HEADER:
        raise Unsafe(
            f"{blob.url}: its header would have {length:,} bytes: expected at most {_MOST_HEADER:,}.", path=blob.name
        )
    text = blob.read(8, length, content="the header")
    try:
        header = parse_json(text)
    except ValueError as error:
        raise blob.damaged_error(f"its header is not a JSON object ({error!s:.200})") from error
    if not isinstance(header, dict):
        raise blob.damaged_error("its header is not a JSON object")
    return header, 8 + length


def _add_tensors(catalog: ByteCatalog, blob: FileBlob) -> None:
    header, begin = read_header(blob)
    metadata = header.pop("__metadata__", None)
    if isinstance(metadata, dict) and "DCP_SHARDING_INFO" in metadata:
        raise blob.damaged_error("it is a shard of DCP's HuggingFaceStorageWriter: consolidate the files first")
    file = catalog.add_file(blob.name, blob.size)
    at = 0
    tensors = [(name, *_describe_tensor(blob, name, entry)) for name, entry in header.items()]
    for name, stored, first, last in sorted(tensors, key=lambda one: (one[2], one[3])):
        if first != at:
            raise blob.damaged_error(
                f"tensor {name!r:.200} begins at byte {first} of the data: expected {at}, the end of the tensor before"
            )
        if name in catalog.leaves:
            raise blob.damaged_error(f"tensor {name!r:.200} is in another file, too")
        catalog.add_leaf(name, stored, contiguous_shard(file, begin + first, stored.shape))
        at = last
    if begin + at != blob.size:
        raise blob.damaged_error(f"its tensors end at byte {begin + at}: expected {blob.size}, the size of the file")


def _describe_tensor(blob: FileBlob, name: str, entry: Any) -> tuple[StoredArray, int, int]:
    match entry:
        case {"dtype": str(kind), "shape": shape, "data_offsets": [first, last]} if _are_positions(first, last):
            pass
        case _:
            raise blob.damaged_error(
                f"tensor {name!r:.200} has the entry {shorten(entry)}: expected dtype, shape and data_offsets"
            )
    if kind not in _DTYPES:
        raise blob.damaged_error(f"tensor {name!r:.200} has the dtype {kind!r:.80}, which allranks does not know")
    try:
        stored = StoredArray(checked_shape(shape), _DTYPES[kind])
    except ValueError as error:
        raise blob.damaged_error(f"tensor {name!r:.200}: {error}") from error
    if last - first != math.prod(shape) * DTYPES[stored.dtype].size or first < 0:
        raise blob.damaged_error(f"tensor {name!r:.200} is {stored}, which does not fit its bytes {first}-{last}")
    return stored, first, last


def _are_positions(*numbers: Any) -> bool:
    return all(type(number) is int and abs(number) < limits.NUMBER for number in numbers)


def read_index(blob: FileBlob) -> dict[str, str]:
    """Return the file name of each tensor, from ``*.index.json``. Raises Damaged, Unsafe."""
    try:
        index = parse_json(blob.read(0, blob.size, content="the index"))["weight_map"]
    except (ValueError, KeyError, TypeError) as error:
        raise blob.damaged_error(f"it is not an index of Hugging Face ({error!s:.200})") from error
    if not isinstance(index, dict) or not all(isinstance(name, str) for name in index.values()):
        raise blob.damaged_error("its 'weight_map' does not map names to files")
    for name in dict.fromkeys(index.values()):
        if "/" in name or "\\" in name or name in ("", ".", ".."):
            raise Unsafe(f"{blob.url} names the file {name!r:.200}: expected a file in its folder.", path=blob.name)
    return index


def _check_index(storage: Storage, catalog: ByteCatalog, index: Mapping[str, str]) -> None:
    """Raise Damaged unless the files and the index have the same tensors."""
    if lost := [name for name in index if name not in catalog.leaves]:
        raise Damaged(
            f"{storage.url}: the index names {len(lost)} tensors that no file holds, first {lost[0]!r} of "
            f"{index[lost[0]]}.",
            path=index[lost[0]],
            leaf=lost[0],
        )
    if more := [name for name in catalog.leaves if name not in index]:
        raise Damaged(f"{storage.url}: {len(more)} tensors are not in the index, first {more[0]!r}.", leaf=more[0])
