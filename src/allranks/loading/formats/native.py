"""Read allranks' own checkpoints. Every chunk of them has a digest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from allranks.arrays.base import FillTarget
from allranks.checkpoint import inventory, paths
from allranks.checkpoint.chunk_reader import ChunkReader
from allranks.checkpoint.compare import are_known_equal
from allranks.checkpoint.per_rank import manifest_for_rank
from allranks.errors import Damaged, StepRemoved
from allranks.loading.fit import StoredArray
from allranks.loading.formats.base import SourceDescription
from allranks.storage.base import Storage


class NativeSource:
    """A Source over one step of a run. With ``step`` None, the storage itself is the folder of one checkpoint.

    Raises NotThere, NewerFormat, Damaged.
    """

    def __init__(self, storage: Storage, step: int | None) -> None:
        self._storage, self._folder = storage, "" if step is None else None
        manifest = inventory.load_folder(storage, "") if step is None else inventory.load_manifest(storage, step)
        marked = [*(path for path, leaf in manifest.leaves.items() if leaf.per_rank), *sorted(manifest.rank_values)]
        own = [repr(path) for path in marked]
        notes = (
            (f"only rank 0's values are loaded of leaves that each rank has saved for itself: {', '.join(own)}",)
            if own
            else ()
        )
        self._manifest = manifest_for_rank(manifest, rank=0, size=manifest.world_size, choice_of=lambda _: "main")
        checked = f"by the {manifest.integrity} of every chunk"
        self.description = SourceDescription(f"allranks checkpoint, step {manifest.step}", checked, notes)
        self.values = self._manifest.values
        self.leaves = {
            name: StoredArray(leaf.shape, leaf.dtype, leaf.kind) for name, leaf in self._manifest.leaves.items()
        }

    def read(self, targets_by_leaf: Sequence[tuple[str, FillTarget]]) -> None:
        try:
            ChunkReader(self._storage, self._manifest, cast=True, folder=self._folder).fill_targets(targets_by_leaf)
        except Damaged as error:
            if inventory.is_current(self._storage, self._manifest, self._folder):
                raise
            raise StepRemoved(
                f"step {self._manifest.step} of {self._storage.url} was removed while it was read.",
                path=paths.step_folder(self._manifest.step),
                remedy="Load again. Checkpointer(..., read_only=True).hold() keeps a step while it is read.",
            ) from error

    def are_known_equal(self, name: str, other_name: str) -> bool:
        return are_known_equal(self._manifest, name, other_name)

    def partial_checksums(self) -> Any:
        return None

    def check_partial(self, partial_checksums: Sequence[Any]) -> None:
        pass
