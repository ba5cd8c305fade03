"""Read Orbax directories with TensorStore, the library on which Orbax is built. Each rank reads its part of an array.

Orbax verifies the nodes of its database, but not the bytes of arrays, and it reads a missing chunk as zeros. Here a
missing chunk is an error if Orbax has recorded that it writes all chunks.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import tensorstore as ts

from allranks.arrays.base import FillTarget
from allranks.arrays.cast import cast_into
from allranks.arrays.leaves.numpy import DTYPES
from allranks.checkpoint.json_value import parse_json
from allranks.errors import Damaged, NotAFile, UnknownFormat, Unsafe
from allranks.loading.fit import StoredArray
from allranks.loading.formats.base import AGAIN, SourceDescription, Value, bytes_of, check_memory, checked_shape
from allranks.storage import limits
from allranks.storage.base import Storage

METADATA = "_METADATA"
# The bytes of an array that are read at once.
_AT_ONCE = 64 << 20
# What TensorStore raises for files that it cannot read.
_REFUSED = (ValueError, OSError, LookupError, RuntimeError, TypeError, OverflowError)


def open_folder(storage: Storage, folder: str) -> OrbaxSource:
    """Return the source for an Orbax item; ``folder`` is the path of its directory. Raises Damaged."""
    try:
        tree = parse_json(storage.get(METADATA, most=limits.metadata_limit()))
        entries = [_decode_entry(entry) for entry in tree["tree_metadata"].values()]
    except (NotAFile, ValueError, LookupError, TypeError, AttributeError) as error:
        raise Damaged(
            f"{storage.url}/{METADATA} is not valid metadata of Orbax ({error!s:.200}).", path=METADATA, remedy=AGAIN
        ) from error
    arrays: dict[str, str] = {}
    values: dict[str, Value] = {}
    driver = _ArrayOpener(os.path.abspath(folder), tree)
    for name, kind in entries:
        path = "/".join(name)
        if path in arrays or path in values:
            raise Damaged(f"{storage.url}/{METADATA}: two leaves have the path {path!r:.200}.", path=METADATA)
        if kind.get("value_type") == "None":
            values[path] = None
        elif not kind.get("skip_deserialize") and kind.get("value_type") != "string":
            arrays[path] = _checked_name(storage, ".".join(name))
    return OrbaxSource(driver, arrays, values)


def _decode_entry(entry: Any) -> tuple[list[str], dict[str, Any]]:
    """Return the keys and the metadata of a leaf. Raises ValueError, LookupError, TypeError."""
    keys, kind = [one["key"] for one in entry["key_metadata"]], entry["value_metadata"]
    if not all(isinstance(key, str | int) for key in keys) or not isinstance(kind, dict):
        raise ValueError("an entry of tree_metadata has no keys, or no metadata")
    return [str(key) for key in keys], kind


def _checked_name(storage: Storage, name: str) -> str:
    """Return the name of an array. Raises Unsafe if it leads out of the checkpoint."""
    if not name or name.startswith("/") or "\0" in name or {"", ".", ".."} & set(name.split("/")):
        raise Unsafe(
            f"{storage.url}/{METADATA} names the array {name!r:.200}: expected an array in its folder.",
            path=METADATA,
            remedy=AGAIN,
        )
    return name


class _ArrayOpener:
    """Opens the arrays of an Orbax directory with TensorStore."""

    def __init__(self, folder: str, tree: Mapping[str, Any]) -> None:
        self.folder = folder
        self._ocdbt = bool(tree.get("use_ocdbt"))
        self._zarr = "zarr3" if tree.get("use_zarr3") else "zarr"
        self._all_written = bool(tree.get("store_array_data_equal_to_fill_value"))
        self._context = ts.Context({"cache_pool": {"total_bytes_limit": 0}})

    def open_array(self, name: str) -> Any:
        """Start to open an array; return TensorStore's future of it."""
        base = {"driver": "file", "path": f"{self.folder}/"}
        if self._ocdbt:
            store: dict[str, Any] = {"driver": "ocdbt", "base": base, "path": f"{name}/"}
        else:
            store = {"driver": "file", "path": f"{self.folder}/{name}/"}
        spec: dict[str, Any] = {"driver": self._zarr, "kvstore": store}
        if self._all_written:
            spec["fill_missing_data_reads"] = False
        return ts.open(spec, read=True, open=True, context=self._context)


class OrbaxSource:
    """A Source over TensorStore. ``arrays``: TensorStore's name of each array, by the name in the tree."""

    def __init__(self, driver: _ArrayOpener, arrays: Mapping[str, str], values: Mapping[str, Value]) -> None:
        self._driver = driver
        self.description = SourceDescription(
            "Orbax", "the database's nodes, not the arrays: Orbax has no checksums of them"
        )
        self.values = values
        try:
            opened = {name: driver.open_array(at) for name, at in arrays.items()}
        except _REFUSED as error:
            raise Damaged(
                f"{driver.folder}: its arrays cannot be opened: {error!s:.200}.", path=METADATA, remedy=AGAIN
            ) from error
        self._opened = {name: self._result(future, name) for name, future in opened.items()}
        self.leaves = {name: self._stored(name, array) for name, array in self._opened.items()}

    def _stored(self, name: str, array: Any) -> StoredArray:
        dtype = array.dtype.name
        if dtype not in DTYPES:
            raise UnknownFormat(
                f"{self._driver.folder}: array {name!r} has the dtype {dtype}, which allranks does not know."
            )
        shape, chunk = tuple(array.shape), array.chunk_layout.read_chunk.shape or ()
        if any(by > max(many, 1) for many, by in zip(shape, chunk, strict=False)):
            # TensorStore would end the process if there is no memory for a chunk.
            raise Damaged(
                f"{self._driver.folder}: array {name!r:.200} has chunks of {list(chunk)}: expected at most its shape, "
                f"{list(shape)}.",
                leaf=name,
                remedy=AGAIN,
            )
        check_memory(f"a chunk of array {name!r:.200}", bytes_of(StoredArray(tuple(chunk), dtype)))
        return StoredArray(checked_shape(shape), dtype)

    def _result(self, future: Any, name: str) -> Any:
        try:
            return future.result()
        except _REFUSED as error:
            text = str(error).partition(" [")[0]
            raise Damaged(f"{self._driver.folder}: array {name!r} cannot be read: {text}.", leaf=name) from error

    def read(self, targets_by_leaf: Sequence[tuple[str, FillTarget]]) -> None:
        running: list[tuple[str, Any]] = []
        pending = 0
        for name, target in targets_by_leaf:
            source = (
                self._opened[name][target.extent.slices].translate_to[0] if target.extent.shape else self._opened[name]
            )
            plain = target.buffer.dtype == source.dtype.numpy_dtype
            if plain and target.buffer.nbytes:
                running.append((name, ts.array(target.buffer).write(source)))
                pending += target.buffer.nbytes
            elif target.buffer.size:
                self._read_with_cast(name, source, target)
            if pending > _AT_ONCE:
                self._finish(running)
                pending = 0
        self._finish(running)

    def _finish(self, running: list[tuple[str, Any]]) -> None:
        while running:
            name, future = running.pop(0)
            self._result(future, name)

    def _read_with_cast(self, name: str, source: Any, target: FillTarget) -> None:
        """Fill a target of another dtype: read and cast it in pieces, each of a limited number of rows."""
        rows = target.buffer.shape[0] if target.buffer.ndim else 1
        step = max(1, rows * _AT_ONCE // max(1, target.buffer.size * source.dtype.numpy_dtype.itemsize))
        for at in range(0, rows, step):
            cut = (slice(at, min(rows, at + step)),) if target.buffer.ndim else ...
            cast_into(target.buffer[cut], self._result(source[cut].read(), name), leaf_path=name)

    def are_known_equal(self, name: str, other_name: str) -> bool:
        return name == other_name

    def partial_checksums(self) -> Any:
        return None

    def check_partial(self, partial_checksums: Sequence[Any]) -> None:
        pass
