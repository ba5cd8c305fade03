"""Checkpoints as any number of ranks would have written them, made in this process, for tests of the commands."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from allranks.arrays.base import CellBytes, DeclaredArray, RankSplit
from allranks.arrays.grid import cell_extent
from allranks.checkpoint import manifest_encode, paths
from allranks.checkpoint.manifest import Manifest, StoredFile
from allranks.checkpoint.planner import SavePlanner
from allranks.digest import digest, hasher_by_name, show
from allranks.storage.base import Storage


class Said(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


@dataclass
class Tree:
    """Whole arrays, of which the ranks hold parts: row by row where ``cuts`` say nothing else."""

    arrays: Mapping[str, np.ndarray]
    ranks: int = 1
    cuts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    kinds: Mapping[str, str] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)

    @property
    def declared_arrays(self) -> tuple[DeclaredArray, ...]:
        return tuple(
            DeclaredArray(path, array.shape, array.dtype.name, self._split(path), self.kinds.get(path, ""))
            for path, array in self.arrays.items()
        )

    @property
    def hash_key(self) -> object:
        return self.declared_arrays

    @property
    def tied_arrays(self) -> dict[int, int]:
        return {}

    def cell_bytes(self, array: int, number: int) -> CellBytes:
        path, whole = list(self.arrays.items())[array]
        part = whole[cell_extent(number, whole.shape, self._split(path).cuts).slices]
        return CellBytes(np.ascontiguousarray(part).reshape(-1).view(np.uint8), mutable=False)

    def _split(self, path: str) -> RankSplit:
        shape = self.arrays[path].shape
        cuts = self.cuts.get(path, (self.ranks, *(1,) * (len(shape) - 1)) if shape else ())
        count = int(np.prod(cuts, dtype=int))
        replicas = self.ranks // count
        return RankSplit(cuts, tuple(tuple(range(n * replicas, (n + 1) * replicas)) for n in range(count)))


def four_ranks(arrays: dict[str, np.ndarray], **options: Any) -> Tree:
    """A state as four ranks hold it: ``wq`` is cut by columns, the small ones are everywhere, the rest cut by rows."""
    return Tree(arrays, ranks=4, cuts={"model/wq": (1, 4), "model/bias": (1,)}, **options)


def save(
    storage: Storage,
    step: int,
    tree: Tree,
    *,
    extra: Any = None,
    metrics: Mapping[str, float] | None = None,
    unfinished: bool = False,
) -> None:
    """Save a step; ``unfinished``, all ranks have written when they die."""
    nonce, files = show(digest(storage.url, str(step), str(id(tree)))), []
    prepared = [SavePlanner(rank, tree.ranks).prepare_save(tree) for rank in range(tree.ranks)]
    for rank, planned in ((rank, file) for rank, mine in enumerate(prepared) for file in mine.files):
        about = {"allranks": json.dumps({"step": step, "nonce": nonce, "rank": rank})}
        parts = [
            tree.cell_bytes(one.leaf, one.cell).data[one.start :][: one.nbytes].tobytes() for one in planned.plan.parts
        ]
        data = planned.file_layout.make_header(about) + b"".join(parts)
        ends = planned.file_layout.ends
        digests = [hasher_by_name("xxh3-128")(data[begin:end]) for begin, end in pairwise((0, *ends))]
        name = paths.shard_file_name(rank, tree.ranks, nonce)
        storage.put(f"{paths.step_folder(step)}/{name}", data)
        files.append(StoredFile(name, len(data), ends, tuple(digests)))
    checkpoint_layout = prepared[0].checkpoint_layout
    assert checkpoint_layout is not None
    manifest = Manifest(
        step=step,
        nonce=nonce,
        created="2026-01-01T00:00:00+00:00",
        world_size=tree.ranks,
        integrity="xxh3-128",
        files=tuple(files),
        leaves=checkpoint_layout.leaves,
        values=tree.values,
        extra=extra,
        metrics=metrics or {},
        versions={"allranks": "0.1.0"},
    )
    if not unfinished:
        storage.put(paths.manifest_path(step), manifest_encode.encode_manifest(manifest))
