"""Perform one save on one rank in the background, when all ranks have agreed: write, publish, discard."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import accumulate
from typing import Any

import numpy as np

from allranks.arrays.base import OpenTree
from allranks.checkpoint import detect, json_value, manifest_decode, manifest_encode, paths
from allranks.checkpoint.commit_events import SaveId
from allranks.checkpoint.items import top_key
from allranks.checkpoint.manifest import Manifest, StoredFile
from allranks.checkpoint.planner import PlannedFile, PreparedSave
from allranks.checkpoint.stage import BlockPool, Bytes, ShardFileContent
from allranks.digest import hasher_by_name
from allranks.errors import AllranksError, CannotStore, Damaged, NotJsonable, NotThere, StorageError
from allranks.storage.base import Storage

_FRAMEWORKS = ("numpy", "jax", "torch")


@dataclass(frozen=True, slots=True)
class SaveContent:
    """The content of a save other than its arrays.

    ``values``: JSON values by path. ``rank_values``: JSON values that are rank-local.
    ``extra``, ``metrics``: the arguments of ``save``.
    """

    values: Mapping[str, Any]
    rank_values: Mapping[str, Any]
    extra: Any = None
    metrics: Mapping[str, float] = field(default_factory=dict)


def check_storable(values: Mapping[str, Any], extra: Any, *, rank: int) -> None:
    """Raise CannotStore for a value that JSON cannot hold without a change."""
    for path, value in {**values, "(extra)": extra}.items():
        try:
            json_value.pack_json(value, value_name=path)
        except NotJsonable as error:
            raise CannotStore(
                f"rank {rank}: a value of the state cannot be stored: {error}", ranks=(rank,), leaf=path
            ) from error


@dataclass(frozen=True, slots=True)
class SaveOperation:
    """One save on this rank. ``files``: the prepared files that this rank writes.

    ``replace``: the manifest replaces that of an existing step. ``compresses``: chunks are compressed.
    """

    storage: Storage
    identity: SaveId
    rank: int
    size: int
    integrity: str
    prepared: PreparedSave
    content: SaveContent
    files: tuple[ShardFileContent, ...]
    replace: bool
    compresses: bool = False

    @property
    def folder(self) -> str:
        return paths.step_folder(self.identity.step)

    @property
    def item_names(self) -> frozenset[str]:
        """The keys at the top of the state that is saved."""
        content, prepared = self.content, self.prepared
        arrays = [*(one.path for one in prepared.declared), *prepared.ties]
        return frozenset(map(top_key, (*arrays, *content.values, *content.rank_values)))

    def _file_name(self, item: str) -> str:
        return paths.shard_file_name(self.rank, self.size, self.identity.nonce, item, is_compressed=self.compresses)

    def write_files(self) -> Any:
        """Write this rank's files.

        Return what rank 0 needs for the manifest: the files by item, and the rank-local values.

        Returns None if there are neither.
        """
        own = {path: json_value.pack_json(value, value_name=path) for path, value in self.content.rank_values.items()}
        try:
            planned = zip(self.prepared.files, self.files, strict=True)
            files = {plan.item: self._write_file(plan, file) for plan, file in planned}
        except BaseException as error:
            for file in self.files:
                file.fail_write(error)
            raise
        return {"files": files, "values": own} if files or own else None

    def _write_file(self, plan: PlannedFile, file: ShardFileContent) -> Any:
        name = self._file_name(plan.item)
        frames = (
            detect.zstd_library("compression").compress_file(file, plan.file_layout.blocks) if self.compresses else None
        )
        self.storage.write(f"{self.folder}/{name}", file if frames is None else frames)
        stored = [] if frames is None else list(accumulate(frames.lengths))
        return {
            "name": name,
            "bytes": file.size,
            "ends": plan.file_layout.ends,
            "digests": file.chunk_digests,
            "stored": stored,
        }

    def write_manifest(self, acks: Sequence[Any]) -> None:
        """Write the manifest.

        From then on the checkpoint exists. ``acks``: the results of ``write_files``, by rank. On rank 0 only.
        """
        assert self.prepared.checkpoint_layout is not None
        there = [ack["files"] for ack in acks if ack is not None]
        files = [one[item] for item in self.prepared.items for one in there if item in one]
        rows = {
            path: [json_value.unpack_json(ack["values"][path]) for ack in acks] for path in self.content.rank_values
        }
        manifest = Manifest(
            step=self.identity.step,
            nonce=self.identity.nonce,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            world_size=self.size,
            integrity=self.integrity,
            files=tuple(
                StoredFile(
                    file["name"], file["bytes"], tuple(file["ends"]), tuple(file["digests"]), tuple(file["stored"])
                )
                for file in files
            ),
            leaves=self.prepared.checkpoint_layout.leaves,
            values={**self.content.values, **rows},
            extra=self.content.extra,
            metrics=self.content.metrics,
            versions=_library_versions(),
            ties=self.prepared.ties,
            rank_values=frozenset(rows),
        )
        data = manifest_encode.encode_manifest(manifest, leaves=self.prepared.leaves)
        self._check_readable(manifest, data)
        self.storage.put(paths.manifest_path(self.identity.step), data, replace=self.replace)

    def _check_readable(self, manifest: Manifest, data: bytes) -> None:
        """Raise AllranksError unless a reader can read the manifest back correctly.

        The manifest's text for the leaves is equal at every save of a plan, and takes long to read. It is read back
        only once.
        """
        prepared = self.prepared
        assert prepared.checkpoint_layout is not None
        path, planned = paths.manifest_path(self.identity.step), prepared.checkpoint_layout.bytes
        found = tuple(file.bytes for file in manifest.files)
        try:
            if planned != found:
                raise Damaged(f"the ranks' files have {found} bytes: expected {planned}")
            if prepared.read_back.done:
                data = manifest_encode.remove_leaves(data, prepared.leaves, integrity=self.integrity)
            manifest_decode.decode_manifest(data, path=path)
        except Damaged as error:
            raise AllranksError(
                f"the manifest of step {self.identity.step} cannot be read back, so it is not published: {error}",
                remedy="Please report this: it is a bug in allranks.",
            ) from error
        prepared.read_back.done = True

    def is_published(self) -> bool:
        """Return whether the step's manifest exists, and was written by this save."""
        path = paths.manifest_path(self.identity.step)
        try:
            return manifest_decode.decode_manifest(self.storage.get(path), path=path).nonce == self.identity.nonce
        except NotThere:
            return False

    def remove_files(self) -> None:
        """Remove this rank's files of a save that was aborted. ``allranks ckpt gc`` removes files that are left."""
        with suppress(StorageError):
            for plan in self.prepared.files:
                self.storage.delete(f"{self.folder}/{self._file_name(plan.item)}")
            self.storage.remove_folder(self.folder)


def open_shard_file(
    tree: OpenTree,
    planned_file: PlannedFile,
    save_information: Mapping[str, Any],
    *,
    integrity: str,
    pools: tuple[BlockPool, BlockPool],
    is_blocking: bool,
    check_abort: Callable[[], None],
) -> ShardFileContent:
    """Return the content of a file that this rank writes. It keeps its source arrays alive.

    ``save_information``: goes into the header of the file.
    ``pools``: the blocks for bytes in transit, and the blocks for copies.
    ``is_blocking``: the program waits for the end of the save, so that nothing must be copied.
    ``check_abort``: called before every block; it raises to end the write.
    """
    header = planned_file.file_layout.make_header({"allranks": json.dumps(save_information)})
    sources: list[Bytes] = [np.frombuffer(header, np.uint8)]
    mutable = [False]
    for part in planned_file.plan.parts:
        data, changes = tree.cell_bytes(planned_file.arrays[part.leaf], part.cell)
        sources.append(data if part.nbytes == data.size else data[part.start : part.start + part.nbytes])
        mutable.append(changes and not is_blocking)
    bounce, staging = pools
    return ShardFileContent(
        planned_file.file_layout,
        sources,
        digest=hasher_by_name(integrity),
        bounce=bounce,
        staging=staging,
        mutable=mutable,
        check_abort=check_abort,
    )


def count_blocks_to_copy(tree: OpenTree, planned_file: PlannedFile) -> int:
    """Return how many blocks of a file an asynchronous save copies: those that a program can change in place."""
    changes = [False]  # the header
    for part in planned_file.plan.parts:
        copies = tree.copies_of_array(planned_file.arrays[part.leaf])
        changes.append(any(copy.on_host and copy.framework != "jax" for copy in copies))
    return sum(any(changes[copy.source] for copy in block.copies) for block in planned_file.file_layout.blocks)


def _library_versions() -> dict[str, str]:
    loaded = {name: str(sys.modules[name].__version__) for name in _FRAMEWORKS if name in sys.modules}
    return {"allranks": version("allranks"), "python": sys.version.split()[0], **loaded}
