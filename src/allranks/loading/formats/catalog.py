"""Read formats that store arrays as raw bytes: record which bytes of which file belong to which leaf.

A manifest records the same. So a catalog of a foreign file is a manifest, and is read like allranks' own files: in
chunks, with two threads, straight into the arrays; each rank reads its part.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from allranks.arrays.base import FillTarget
from allranks.checkpoint.chunk_reader import Check, ChunkReader
from allranks.checkpoint.dtypes import DTYPES
from allranks.checkpoint.manifest import Manifest, Shard, ShardRun, StoredFile, StoredLeaf
from allranks.checkpoint.restore_plan import boxes_of_range
from allranks.errors import Damaged, Unsafe
from allranks.extent import Extent
from allranks.loading.fit import StoredArray
from allranks.loading.formats.base import SourceDescription, Value
from allranks.storage import limits
from allranks.storage.base import BLOCK, Storage

# The least bytes of a leaf that are read at once.
_LEAST = 64 << 10
# One chunk for so many of the metadata limit's bytes: 4 million, which are 32 TiB of large arrays.
_BYTES_PER_CHUNK = 64


class ByteCatalog:
    """Records at which bytes of which files leaves are, and converts that into a manifest."""

    def __init__(self) -> None:
        self._files: dict[str, int] = {}
        self._sizes: list[int] = []
        self._marks: list[set[int]] = []
        self.leaves: dict[str, StoredLeaf] = {}
        self._room = limits.metadata_limit() // _BYTES_PER_CHUNK

    def add_file(self, name: str, size: int) -> int:
        """Return the number of a file; a new file is added with its size in bytes."""
        if name not in self._files:
            self._files[name] = len(self._sizes)
            self._sizes.append(size)
            self._marks.append({size})
        return self._files[name]

    def divide_into_chunks(self, file: int, begin: int, size: int) -> None:
        """Divide a range of a file into chunks, the units of reading."""
        step = max(_LEAST, min(BLOCK, size // 16)) // 4096 * 4096
        self._take_room(file, size // step + 1)
        self._marks[file].update(range(begin, begin + size, step), (begin + size,))

    def add_leaf(self, name: str, stored: StoredArray, runs: Iterable[ShardRun]) -> None:
        """Record a leaf and its shards. Raises Damaged if its bytes are not inside their files."""
        if len(name) > limits.NAME:
            raise Unsafe(f"the name {name[:80]!r}... has {len(name):,} characters: expected at most {limits.NAME:,}.")
        kept = tuple(runs)
        item = DTYPES[stored.dtype].size
        for run in kept:
            size = run.first.extent.size * item
            for k in {0, run.count - 1}:
                begin = run.first.begin + k * run.begin_step
                if not 0 <= begin <= begin + size <= self._sizes[run.first.file]:
                    path = list(self._files)[run.first.file]
                    where = f"bytes {begin}-{begin + size} of {path}, which has {self._sizes[run.first.file]}"
                    raise Damaged(
                        f"leaf {name!r} would be {where}: expected bytes inside the file.", path=path, leaf=name
                    )
                if size:
                    self.divide_into_chunks(run.first.file, begin, size)
            self._take_room(run.first.file, run.count)
            for k in range(1, run.count - 1):
                begin = run.first.begin + k * run.begin_step
                self._marks[run.first.file].update((begin, begin + size))
        self.leaves[name] = StoredLeaf(stored.shape, stored.dtype, stored.kind, kept)

    def _take_room(self, file: int, chunks: int) -> None:
        self._room -= chunks
        if self._room < 0:
            name = list(self._files)[file]
            raise Unsafe(
                f"{name}: its arrays have more than {limits.metadata_limit() // _BYTES_PER_CHUNK:,} chunks or rows.",
                path=name,
                remedy=limits.advice_on_limit(),
            )

    def make_manifest(self) -> Manifest:
        """Return a manifest with all recorded files and leaves."""
        files = tuple(
            StoredFile(name, self._sizes[number], tuple(sorted(self._marks[number] - {0})), ())
            for name, number in self._files.items()
        )
        return Manifest(0, "", "", 1, "", files, self.leaves, {}, None, {}, {})


def contiguous_shard(file: int, begin: int, shape: tuple[int, ...]) -> tuple[ShardRun, ...]:
    """Return the only shard of a leaf whose bytes are contiguous."""
    return (ShardRun(Shard(file, begin, Extent.of_shape(shape))),)


def shards_of_range(
    file: int, begin: int, shape: tuple[int, ...], first_element: int, last_element: int, itemsize: int
) -> Iterable[ShardRun]:
    """Yield the shards of a leaf whose elements ``first_element`` to ``last_element``, in row-major order, begin at
    byte ``begin``.
    """
    for box in boxes_of_range(shape, first_element, last_element):
        yield ShardRun(Shard(file, begin, box))
        begin += box.size * itemsize


class ByteSource:
    """A Source over a catalog.

    ``dimension_orders``: for leaves whose dimensions have another order in the file, that order.
    """

    def __init__(
        self,
        storage: Storage,
        catalog: ByteCatalog,
        description: SourceDescription,
        *,
        values: Mapping[str, Value] | None = None,
        dimension_orders: Mapping[str, tuple[int, ...]] | None = None,
        folder: str = "",
    ) -> None:
        self._storage = storage
        self.manifest = catalog.make_manifest()
        self._dimension_orders = dimension_orders or {}
        self._folder = folder
        self.description = description
        self.values = values or {}
        self.leaves = {name: self._stored(name, leaf) for name, leaf in self.manifest.leaves.items()}

    def _stored(self, name: str, leaf: StoredLeaf) -> StoredArray:
        order = self._dimension_orders.get(name)
        shape = leaf.shape if order is None else tuple(leaf.shape[order.index(d)] for d in range(len(order)))
        return StoredArray(shape, leaf.dtype, leaf.kind)

    def read(self, targets_by_leaf: Sequence[tuple[str, FillTarget]]) -> None:
        reader = ChunkReader(self._storage, self.manifest, cast=True, folder=self._folder, check=self.check)
        reader.fill_targets([(name, self._permute(name, target)) for name, target in targets_by_leaf])

    def _permute(self, name: str, target: FillTarget) -> FillTarget:
        order = self._dimension_orders.get(name)
        if order is None:
            return target
        offset, shape = (tuple(of[d] for d in order) for of in (target.extent.offset, target.extent.shape))
        return replace(target, extent=Extent(offset, shape), buffer=target.buffer.transpose(order))

    @property
    def check(self) -> Check:
        """The function that verifies chunks. In most formats chunks cannot be verified; it then accepts every chunk."""
        return lambda _file, _chunk, _data: ""

    def are_known_equal(self, name: str, other_name: str) -> bool:
        leaves = self.manifest.leaves
        return leaves[name].runs == leaves[other_name].runs and self._dimension_orders.get(
            name
        ) == self._dimension_orders.get(other_name)

    def partial_checksums(self) -> Any:
        return None

    def check_partial(self, partial_checksums: Sequence[Any]) -> None:
        pass
