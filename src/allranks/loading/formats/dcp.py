"""Read a directory of torch.distributed.checkpoint: each rank reads the shards that it needs, and checks their CRCs.

``.metadata`` is a pickle, which torch's own reader executes. Here it is read as torch's other pickles are, and nothing
in it is executed. Each shard is a small zip archive inside a ``.distcp`` file.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from allranks.checkpoint.dtypes import DTYPES
from allranks.checkpoint.integrity import TooManyBoxes, is_leaf_filled_once
from allranks.checkpoint.manifest import Shard, ShardRun
from allranks.errors import Damaged, Unsafe
from allranks.extent import Extent
from allranks.loading.fit import StoredArray
from allranks.loading.formats.archive import ArchiveRecord, read_records
from allranks.loading.formats.base import AGAIN, FileBlob, SourceDescription, Value, checked_shape
from allranks.loading.formats.catalog import ByteCatalog
from allranks.loading.formats.pickle_machine import InertObject
from allranks.loading.formats.pt import CheckedSource, data_records, read_pickle
from allranks.loading.formats.unpickle import FlatLeaves, StridedTensor, unpickle_inertly
from allranks.storage import limits
from allranks.storage.base import Storage

METADATA = ".metadata"


def open_folder(storage: Storage) -> CheckedSource:
    """Return the source for a directory of torch.distributed.checkpoint. Raises Damaged, Unsafe."""
    metadata = _read_metadata(storage)
    planned = metadata.of("planner_data")
    places = _storage_places(storage, metadata)
    archives = _ShardArchives(storage, places)
    for fqn, entry in _metadata_entries(storage, metadata):
        name = _name_of_path(planned.get(fqn) if isinstance(planned, dict) else None) or fqn
        if entry.named.endswith(".TensorStorageMetadata"):
            archives.add_shard(name, _stored_array(storage, fqn, entry), _shards_of_entry(storage, fqn, entry, places))
        elif (where := places.get((fqn, None))) is not None:
            archives.add_value(name, where)
    return archives.make_source()


def _name_of_path(path: Any) -> str:
    """Return the name of a leaf whose keys DCP has recorded; "" if they are not texts and numbers."""
    is_plain = isinstance(path, tuple) and len(path) <= limits.DEPTH and all(isinstance(key, str | int) for key in path)
    return "/".join(map(str, path)) if is_plain else ""


def _read_metadata(storage: Storage) -> InertObject:
    blob = FileBlob.of_file(storage, METADATA)
    try:
        metadata = unpickle_inertly(blob.read(0, blob.size, content="the metadata"))
    except pickle.UnpicklingError as error:
        raise blob.damaged_error(str(error)) from error
    if not isinstance(metadata, InertObject) or not metadata.named.endswith(".Metadata"):
        raise blob.damaged_error("it has no Metadata of a checkpoint at its top")
    return metadata


def _damaged_error(storage: Storage, what: str) -> Damaged:
    return Damaged(f"{storage.url}/{METADATA}: {what}.", path=METADATA, remedy=AGAIN)


def _metadata_entries(storage: Storage, metadata: InertObject) -> Iterator[tuple[str, InertObject]]:
    entries = metadata.of("state_dict_metadata")
    if not isinstance(entries, dict):
        raise _damaged_error(storage, "it has no state_dict_metadata")
    for fqn, entry in entries.items():
        if not isinstance(fqn, str) or not isinstance(entry, InertObject):
            raise _damaged_error(storage, "an entry of state_dict_metadata is not the metadata of a name")
        yield fqn, entry


# The place of a shard, or of a value (without offset): file, first byte, number of bytes.
Places = Mapping[tuple[str, tuple[int, ...] | None], tuple[str, int, int]]


def _storage_places(storage: Storage, metadata: InertObject) -> Places:
    found: dict[tuple[str, tuple[int, ...] | None], tuple[str, int, int]] = {}
    data = metadata.of("storage_data")
    for index, info in data.items() if isinstance(data, dict) else ():
        where = tuple(info.of(name) for name in ("relative_path", "offset", "length")) if _is_info(info) else ()
        fqn = index.of("fqn") if isinstance(index, InertObject) else None
        match where:
            case (str(name), int(begin), int(size)) if isinstance(fqn, str):
                pass
            case _:
                raise _damaged_error(storage, "an entry of storage_data has no name, file, offset or length")
        if "/" in name or "\\" in name or "\0" in name or name in ("", ".", ".."):
            raise Unsafe(
                f"{storage.url}/{METADATA} names the file {name!r:.200}: expected a file in its folder.",
                path=METADATA,
                remedy=AGAIN,
            )
        if info.of("transform_descriptors"):
            raise _damaged_error(
                storage, "its data is compressed by an extension of DCP: save it without that extension"
            )
        offset = index.of("offset")
        place = _checked_integers(storage, offset) if isinstance(offset, tuple) else None
        found[fqn, place] = name, begin, size
    _refuse_overlaps(storage, found)
    return found


def _refuse_overlaps(storage: Storage, places: Places) -> None:
    """Raise Damaged if two shards have common bytes: each would be read as an archive of its own, again and again."""
    end, before = 0, ""
    for name, begin, size in sorted({*places.values()}):
        if name == before and begin < end:
            raise _damaged_error(storage, f"two shards have the bytes from {begin} on of {name!r:.200}")
        end, before = begin + size, name


def _is_info(info: Any) -> bool:
    return isinstance(info, InertObject) and info.named.endswith("._StorageInfo")


def _stored_array(storage: Storage, fqn: str, entry: InertObject) -> StoredArray:
    properties = entry.of("properties")
    state = properties.state if isinstance(properties, InertObject) else None
    dtype = state[0].named if isinstance(state, tuple) and state and isinstance(state[0], InertObject) else "unknown"
    name = dtype.removeprefix("torch.")
    if name not in DTYPES:
        raise _damaged_error(storage, f"tensor {fqn!r:.200} has the dtype {dtype:.80}, which allranks does not know")
    return StoredArray(_checked_integers(storage, entry.of("size")), name)


def _checked_integers(storage: Storage, values: Any) -> tuple[int, ...]:
    try:
        return checked_shape(values)
    except ValueError as error:
        raise _damaged_error(storage, str(error)) from error


def _shards_of_entry(
    storage: Storage, fqn: str, entry: InertObject, places: Places
) -> list[tuple[Extent, tuple[str, int, int]]]:
    found: dict[tuple[int, ...], tuple[Extent, tuple[str, int, int]]] = {}
    chunks = entry.of("chunks")
    for chunk in chunks if isinstance(chunks, list) else ():
        if not isinstance(chunk, InertObject):
            raise _damaged_error(storage, f"a shard of tensor {fqn!r:.200} has no offsets and sizes")
        extent = Extent(_checked_integers(storage, chunk.of("offsets")), _checked_integers(storage, chunk.of("sizes")))
        if len(extent.offset) != len(extent.shape):
            raise _damaged_error(storage, f"a shard of tensor {fqn!r:.200} has an offset and a shape of other lengths")
        where = places.get((fqn, extent.offset))
        if where is None and extent.size:
            raise _damaged_error(storage, f"the place of the shard {list(extent.offset)} of {fqn!r:.200} is missing")
        if where is not None and extent.size and extent.offset in found:
            raise _damaged_error(storage, f"two shards of {fqn!r:.200} begin at {list(extent.offset)}")
        if where is not None:
            found[extent.offset] = extent, where
    return list(found.values())


class _ShardArchives:
    """The shards that were found in a directory. Each shard is an archive of its own."""

    def __init__(self, storage: Storage, places: Places) -> None:
        self._storage = storage
        self._catalog = ByteCatalog()
        self._files: dict[str, FileBlob] = {}
        self._kept: dict[int, list[ArchiveRecord]] = {}
        self._values: dict[str, Value] = {}
        self._uses = Counter(places.values())
        self._read: dict[tuple[str, int, int], tuple[Mapping[str, ArchiveRecord], FlatLeaves]] = {}

    def add_shard(self, name: str, stored: StoredArray, shards: list[tuple[Extent, tuple[str, int, int]]]) -> None:
        runs = []
        for extent, (file, begin, size) in shards:
            blob = self._blob(file).sub_blob(begin, size, content=f"a shard of {name!r}")
            number = self._catalog.add_file(file, self._files[file].size)
            at = self._data_of(blob, number, name, stored, extent)
            runs.append(ShardRun(Shard(number, at, extent)))
        try:
            if not is_leaf_filled_once(stored.shape, tuple(runs)):
                raise _damaged_error(self._storage, f"the shards of {name!r:.200} do not fill it exactly once")
        except (TooManyBoxes, ValueError) as error:
            raise _damaged_error(self._storage, f"the shards of {name!r:.200} are not inside {stored}") from error
        self._catalog.add_leaf(name, stored, runs)

    def _data_of(self, blob: FileBlob, number: int, name: str, stored: StoredArray, extent: Extent) -> int:
        """Return the position in its file at which the data of a shard begins. Raises Damaged."""
        archive, flat = self._read_archive(blob)
        tensor = flat.tensors.get("")
        if tensor is None or (tensor.shape, tensor.dtype) != (extent.shape, stored.dtype) or not _is_plain(tensor):
            found = (
                "no tensor" if tensor is None else f"{tensor.dtype}{list(tensor.shape)} with strides {tensor.stride}"
            )
            what = f"a contiguous {stored.dtype}{list(extent.shape)}, found {found}"
            raise blob.damaged_error(f"the shard {list(extent.offset)} of {name!r}: expected {what}")
        record = archive.get(f"data/{tensor.of.key}")
        item = DTYPES[tensor.dtype].size
        if record is None or (tensor.offset + extent.size) * item > record.size:
            raise blob.damaged_error(f"the shard {list(extent.offset)} of {name!r} exceeds its record")
        begin = blob.begin + record.begin
        self._catalog.divide_into_chunks(number, begin, record.size)
        if data_records(archive):
            self._kept.setdefault(number, []).append(ArchiveRecord(begin, record.size, record.crc))
        return begin + tensor.offset * item

    def add_value(self, name: str, where: tuple[str, int, int]) -> None:
        file, begin, size = where
        blob = self._blob(file).sub_blob(begin, size, content=f"the value {name!r}")
        if blob.read(0, min(4, size), content="a value") != b"PK\3\4":
            return
        values = self._read_archive(blob)[1].values  # a list without tensors is a value
        self._values.update({f"{name}/{path}" if path else name: value for path, value in values.items()})

    def _read_archive(self, blob: FileBlob) -> tuple[Mapping[str, ArchiveRecord], FlatLeaves]:
        """Return the records of a shard, and its leaves. A shard of several leaves is read once."""
        place = (blob.name, blob.begin, blob.size)
        if place in self._read:
            return self._read[place]
        archive = read_records(blob)
        found = archive, read_pickle(blob, archive)
        if self._uses[place] > 1:
            self._read[place] = found
        return found

    def _blob(self, file: str) -> FileBlob:
        if file not in self._files:
            self._files[file] = FileBlob.of_file(self._storage, file)
        return self._files[file]

    def make_source(self) -> CheckedSource:
        files = f"{len(self._files)} file{'' if len(self._files) == 1 else 's'}"
        checked_by = "by the CRC-32 of every shard" if self._kept else "not at all: the files have no CRCs"
        description = SourceDescription(f"torch.distributed.checkpoint, {files}", checked_by)
        kept = {number: sorted(its, key=lambda record: record.begin) for number, its in self._kept.items()}
        return CheckedSource(self._storage, self._catalog, description, kept, values=self._values, dimension_orders={})


def _is_plain(tensor: StridedTensor) -> bool:
    expected = 1
    for many, by in zip(reversed(tensor.shape), reversed(tensor.stride), strict=True):
        if many > 1 and by != expected:
            return False
        expected *= many
    return True
