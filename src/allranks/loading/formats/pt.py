"""Read files of ``torch.save`` (``.pt``, ``.ckpt``, ``.bin``): tensors are read in place, and their CRCs are checked.

torch is not needed. Its own loader reads the complete file into memory first. Here each rank reads what it needs,
straight into its arrays. The CRC-32 of every record, which ``torch.load`` ignores, is checked. For a record of which a
rank reads only a part, the CRCs of the parts of all ranks are combined.
"""

from __future__ import annotations

import math
import pickle
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from allranks.checkpoint.chunk_reader import Check
from allranks.checkpoint.dtypes import DTYPES
from allranks.checkpoint.manifest import Shard, ShardRun
from allranks.errors import Damaged
from allranks.extent import Extent
from allranks.loading.fit import StoredArray
from allranks.loading.formats.archive import ArchiveRecord, read_records
from allranks.loading.formats.base import FileBlob, SourceDescription, Value, note_on_skipped
from allranks.loading.formats.catalog import ByteCatalog, ByteSource, contiguous_shard
from allranks.loading.formats.crc import combine_crcs
from allranks.loading.formats.unpickle import FlatLeaves, StridedTensor, flatten_leaves, unpickle_inertly
from allranks.storage.base import Storage

Records = Mapping[int, Sequence[ArchiveRecord]]


def open_files(storage: Storage, names: Sequence[str]) -> CheckedSource:
    """Return the source for files of ``torch.save``; several files are shards, as Hugging Face writes them."""
    catalog, dimension_orders = ByteCatalog(), {}
    values: dict[str, Value] = {}
    kept: dict[int, list[ArchiveRecord]] = {}
    left: dict[str, str] = {}
    for name in names:
        blob = FileBlob.of_file(storage, name)
        archive = read_records(blob)
        flat = read_pickle(blob, archive)
        file = catalog.add_file(blob.name, blob.size)
        kept[file] = data_records(archive)
        values |= flat.values
        left |= flat.skipped
        for path, tensor in flat.tensors.items():
            if path in catalog.leaves:
                raise blob.damaged_error(f"tensor {path!r:.200} is in another file, too")
            if order := add_tensor(catalog, blob, file, path, tensor, record_of_tensor(blob, archive, tensor)):
                dimension_orders[path] = order
    description = _describe_source(
        "torch.save", names, kept, note_on_skipped(left, introduction="not loaded, and nothing of it was executed")
    )
    return CheckedSource(storage, catalog, description, kept, values=values, dimension_orders=dimension_orders)


def _describe_source(what: str, names: Sequence[str], kept: Records, notes: tuple[str, ...]) -> SourceDescription:
    crcs = any(kept.values())
    how = "by the CRC-32 of every record" if crcs else "not at all: torch was configured to write no CRCs"
    return SourceDescription(f"{what}, {len(names)} file{'s' if len(names) > 1 else ''}", how, notes)


def read_pickle(blob: FileBlob, archive: Mapping[str, ArchiveRecord]) -> FlatLeaves:
    """Return the leaves in an archive's pickle. Raises Damaged."""
    if "data.pkl" not in archive:
        what = "a TorchScript program" if "constants.pkl" in archive else "an archive of something else"
        raise blob.damaged_error(f"it has no data.pkl: it is {what}, not a checkpoint")
    order = archive.get("byteorder")
    if order is not None and blob.read(order.begin, min(order.size, 8), content="the byte order") != b"little":
        raise blob.damaged_error("its byte order is not little-endian")
    record = archive["data.pkl"]
    data = blob.read(record.begin, record.size, content="data.pkl")
    if record.crc and zlib.crc32(data) != record.crc:
        raise blob.damaged_error("the CRC-32 of data.pkl differs from the saved one")
    try:
        return flatten_leaves(unpickle_inertly(data), pickle_bytes=len(data))
    except pickle.UnpicklingError as error:
        raise blob.damaged_error(f"its data.pkl is not valid: {error}") from error


def data_records(archive: Mapping[str, ArchiveRecord]) -> list[ArchiveRecord]:
    """Return the data records in the order of the file; [] if the file was written without CRCs."""
    if not any(record.crc for record in archive.values()):
        return []
    return sorted((r for name, r in archive.items() if name.startswith("data/")), key=lambda record: record.begin)


def record_of_tensor(blob: FileBlob, archive: Mapping[str, ArchiveRecord], tensor: StridedTensor) -> ArchiveRecord:
    """Return the record of a tensor. Raises Damaged if it is missing, or smaller than the tensor."""
    record = archive.get(f"data/{tensor.of.key}")
    size = tensor.of.count * DTYPES[tensor.of.dtype].size
    if record is None or record.size < size:
        raise blob.damaged_error(f"the record data/{tensor.of.key:.80} is missing, or has less than {size} bytes")
    return record


def add_tensor(
    catalog: ByteCatalog, blob: FileBlob, file: int, path: str, tensor: StridedTensor, record: ArchiveRecord
) -> tuple[int, ...] | None:
    """Record a tensor in the catalog. Raises Damaged.

    Return the order of its dimensions in the file; None for the usual order.
    """
    if tensor.dtype not in DTYPES:
        raise blob.damaged_error(
            f"tensor {path!r:.200} has the dtype {tensor.dtype or 'unknown'}, which allranks does not know"
        )
    item = DTYPES[tensor.dtype].size
    last = tensor.offset + sum((many - 1) * by for many, by in zip(tensor.shape, tensor.stride, strict=True))
    if math.prod(tensor.shape) and (last + 1) * item > record.size:
        raise blob.damaged_error(f"tensor {path!r:.200} exceeds its record, which has {record.size} bytes")
    begin = blob.begin + record.begin
    catalog.divide_into_chunks(file, begin, record.size)
    order = tuple(sorted(range(len(tensor.shape)), key=lambda d: (-tensor.stride[d], d)))
    shape = tuple(tensor.shape[d] for d in order)
    stride = [tensor.stride[d] for d in order]
    runs = _shards_of_tensor(file, begin + tensor.offset * item, shape, stride, item)
    if runs is None:
        raise blob.damaged_error(
            f"tensor {path!r:.200} has the strides {tensor.stride}, which cannot be read: save its contiguous() copy "
            "instead"
        )
    usual = order == tuple(range(len(order))) or math.prod(shape) == 0
    catalog.add_leaf(path, StoredArray(tensor.shape if usual else shape, tensor.dtype), runs)
    return None if usual else order


def _shards_of_tensor(
    file: int, begin: int, shape: tuple[int, ...], stride: Sequence[int], item: int
) -> Sequence[ShardRun] | None:
    """Return the shards of a tensor with descending strides: one, or one for each row if rows are at equal distances.

    None if the tensor has neither layout.
    """
    expected, dense = 1, len(shape)
    while dense and (shape[dense - 1] == 1 or stride[dense - 1] == expected):
        expected *= shape[dense - 1]
        dense -= 1
    if not dense or 0 in shape:
        return contiguous_shard(file, begin, shape)
    if dense > 1 or stride[0] < expected:
        return None
    row = Shard(file, begin, Extent((0,) * len(shape), (1, *shape[1:])))
    return (ShardRun(row, shape[0], 0, stride[0] * item, (1, *(0,) * (len(shape) - 1))),)


class CheckedSource(ByteSource):
    """A ByteSource over records with CRCs.

    ``kept``: the records of each file, in the order of the file.
    """

    def __init__(
        self,
        storage: Storage,
        catalog: ByteCatalog,
        description: SourceDescription,
        kept: Records,
        *,
        values: Mapping[str, Value],
        dimension_orders: Mapping[str, tuple[int, ...]],
        folder: str = "",
    ) -> None:
        super().__init__(storage, catalog, description, values=values, dimension_orders=dimension_orders, folder=folder)
        self._records = kept
        self._seen: dict[tuple[int, int], int] = {}

    @property
    def check(self) -> Check:
        def take_note(file: int, chunk: int, data: memoryview) -> str:
            self._seen[file, chunk] = zlib.crc32(data)
            return ""

        return take_note

    def partial_checksums(self) -> Any:
        """Check the records that this rank has read completely; return the others as [file, record, {chunk: CRC}]."""
        parts = []
        for file, number, chunks in self._touched():
            crcs = {chunk: self._seen[file, chunk] for chunk in chunks if (file, chunk) in self._seen}
            if len(crcs) == len(chunks):
                self._check(file, number, chunks, crcs)
            else:
                parts.append([file, number, {str(chunk): crc for chunk, crc in crcs.items()}])
        return parts

    def check_partial(self, partial_checksums: Sequence[Any]) -> None:
        parts: dict[tuple[int, int], dict[int, int]] = {}
        for file, number, crcs in (one for its in partial_checksums for one in its):
            parts.setdefault((file, number), {}).update((int(chunk), crc) for chunk, crc in crcs.items())
        for (file, number), crcs in parts.items():
            chunks = self._chunks(file, self._records[file][number])
            if len(crcs) == len(chunks):
                self._check(file, number, chunks, crcs)

    def _touched(self) -> Iterator[tuple[int, int, range]]:
        seen: dict[int, list[int]] = {}
        for file, chunk in sorted(self._seen):
            seen.setdefault(file, []).append(chunk)
        for file, read in seen.items():
            for number, record in enumerate(self._records.get(file, ())):
                chunks = self._chunks(file, record)
                if bisect_left(read, chunks.start) < bisect_left(read, chunks.stop):
                    yield file, number, chunks

    def _chunks(self, file: int, record: ArchiveRecord) -> range:
        """Return the numbers of the chunks of a record, which begins and ends at borders of chunks."""
        ends = self.manifest.files[file].ends
        return range(bisect_right(ends, record.begin), bisect_left(ends, record.begin + record.size) + 1)

    def _check(self, file: int, number: int, chunks: range, crcs: Mapping[int, int]) -> None:
        stored, record = self.manifest.files[file], self._records[file][number]
        ends = [record.begin, *stored.ends[chunks.start : chunks.stop]]
        found = combine_crcs(
            (crcs[chunk], end - begin) for chunk, (begin, end) in zip(chunks, pairwise(ends), strict=True)
        )
        if found != record.crc:
            where = (record.begin, record.begin + record.size)
            raise Damaged(
                f"{self._storage.url}/{stored.name}: bytes {where[0]}-{where[1]} have the CRC-32 {found:08x}: expected "
                f"{record.crc:08x}. {', '.join(self._leaves_at(file, where)[:4])} is damaged.",
                path=stored.name,
                where=where,
            )

    def _leaves_at(self, file: int, where: tuple[int, int]) -> list[str]:
        return [
            repr(name)
            for name, leaf in self.manifest.leaves.items()
            if any(run.first.file == file and where[0] <= run.first.begin < where[1] for run in leaf.runs)
        ]
