"""safetensors: one file, or those that an index of Hugging Face names. The format carries no checks of its bytes."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from allranks.checkpoint.dtypes import DTYPES
from allranks.errors import Damaged, Unsafe
from allranks.loading.fit import Stored
from allranks.loading.formats.base import Blob, SourceDescription
from allranks.loading.formats.catalog import ByteSource, Catalog, single_run
from allranks.storage.base import Storage

# As in the format's own library.
_MOST_HEADER = 100_000_000
_DTYPES = {dtype.stored_as: name for name, dtype in reversed(DTYPES.items()) if not dtype.tail}
_CONFIG, _MOST_CONFIG = "config.json", 8 << 20
CHECKED = "not at all: safetensors carries no checks"


def open_files(storage: Storage, names: Iterable[str], *, index: Mapping[str, str] | None = None) -> ByteSource:
    """Return what safetensors files hold together; ``index`` says which tensor is in which. Raises Damaged."""
    catalog = Catalog()
    names = list(names)
    for name in names:
        _add(catalog, Blob.of_file(storage, name))
    if index is not None:
        _check_index(storage, catalog, index)
    files = "1 file" if len(names) == 1 else f"{len(names)} files"
    return ByteSource(
        storage, catalog, SourceDescription(f"safetensors, {files}", CHECKED, quantization=_quantization(storage))
    )


def _quantization(storage: Storage) -> dict[str, Any]:
    """Return what the config.json beside a file says of quantised weights, {} where it says nothing."""
    size = storage.size(_CONFIG)
    if size is None or size > _MOST_CONFIG:
        return {}
    try:
        found = json.loads(storage.get(_CONFIG))["quantization_config"]
    except (ValueError, RecursionError, KeyError, TypeError):
        return {}
    return found if isinstance(found, dict) else {}


def header_of(blob: Blob) -> tuple[dict[str, Any], int]:
    """Return a file's header, and where its data begins. Raises Damaged, Unsafe."""
    length = int.from_bytes(blob.read(0, 8, what="the length of the header"), "little")
    if length > _MOST_HEADER:
        raise Unsafe(f"{blob.url}: its header would have {length:,} bytes; at most {_MOST_HEADER:,}.", path=blob.name)
    text = blob.read(8, length, what="the header")
    try:
        header = json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise blob.damaged(f"its header is no JSON object ({error})") from error
    if not isinstance(header, dict):
        raise blob.damaged("its header is no JSON object")
    return header, 8 + length


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands in it twice")
    return found


def _add(catalog: Catalog, blob: Blob) -> None:
    header, begin = header_of(blob)
    metadata = header.pop("__metadata__", None)
    if isinstance(metadata, dict) and "DCP_SHARDING_INFO" in metadata:
        raise blob.damaged("it is a shard that DCP's HuggingFaceStorageWriter wrote; consolidate its files first")
    file = catalog.file(blob.name, blob.size)
    at = 0
    tensors = [(name, *_tensor(blob, name, entry)) for name, entry in header.items()]
    for name, stored, first, last in sorted(tensors, key=lambda one: (one[2], one[3])):
        if first != at:
            raise blob.damaged(f"tensor {name!r} begins at byte {first} of the data, and the one before ends at {at}")
        if name in catalog.leaves:
            raise blob.damaged(f"tensor {name!r} stands in another file, too")
        catalog.add(name, stored, single_run(file, begin + first, stored.shape))
        at = last
    if begin + at != blob.size:
        raise blob.damaged(f"its tensors end at byte {begin + at}, and it has {blob.size} bytes")


def _tensor(blob: Blob, name: str, entry: Any) -> tuple[Stored, int, int]:
    match entry:
        case {"dtype": str(kind), "shape": [*shape], "data_offsets": [int(first), int(last)]}:
            pass
        case _:
            raise blob.damaged(f"tensor {name!r} is described by {entry!r:.80}")
    if kind not in _DTYPES:
        raise blob.damaged(f"tensor {name!r} is of dtype {kind}, which allranks does not know")
    if not all(type(many) is int and many >= 0 for many in shape):
        raise blob.damaged(f"tensor {name!r} has the shape {shape!r:.80}")
    stored = Stored(tuple(shape), _DTYPES[kind])
    if last - first != math.prod(shape) * DTYPES[stored.dtype].size or first < 0:
        raise blob.damaged(f"tensor {name!r} is {stored}, and bytes {first}-{last}")
    return stored, first, last


def read_index(blob: Blob) -> dict[str, str]:
    """Return which tensor is in which file, as ``*.index.json`` says. Raises Damaged, Unsafe."""
    try:
        index = json.loads(blob.read(0, blob.size, what="the index"), object_pairs_hook=_once)["weight_map"]
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        raise blob.damaged(f"it is no index of Hugging Face ({error})") from error
    if not isinstance(index, dict) or not all(isinstance(name, str) for name in index.values()):
        raise blob.damaged("its 'weight_map' does not name files")
    for name in dict.fromkeys(index.values()):
        if "/" in name or "\\" in name or name in ("", ".", ".."):
            raise Unsafe(f"{blob.url} names the file {name!r}, outside of its folder.", path=blob.name)
    return index


def _check_index(storage: Storage, catalog: Catalog, index: Mapping[str, str]) -> None:
    """Raise Damaged unless files and index name the same tensors."""
    if lost := [name for name in index if name not in catalog.leaves]:
        raise Damaged(
            f"{storage.url}: the index names {len(lost)} tensors that no file holds, first {lost[0]!r} of "
            f"{index[lost[0]]}.",
            path=index[lost[0]],
            leaf=lost[0],
        )
    if more := [name for name in catalog.leaves if name not in index]:
        raise Damaged(f"{storage.url}: {len(more)} tensors are not in the index, first {more[0]!r}.", leaf=more[0])
