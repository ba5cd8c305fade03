"""Read pickled pytrees. A pickle is a program that is run in memory, so this needs ``allow_pickle=True``."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

from allranks.arrays.base import FillTarget
from allranks.arrays.cast import cast_into
from allranks.arrays.detect import open_tree
from allranks.arrays.leaves.numpy import DTYPES
from allranks.loading.fit import StoredArray
from allranks.loading.formats.base import FileBlob, SourceDescription, note_on_skipped
from allranks.storage.base import Storage

_UNSAFE = "unsafe: a pickle can run any code. Save it again in another format"


def open_file(storage: Storage, name: str) -> TreeSource:
    """Unpickle a file, which runs the code in it; return the source for its content. Raises Damaged."""
    blob = FileBlob.of_file(storage, name)
    try:
        tree = pickle.loads(storage.get(name))
    except Exception as error:  # a pickle's code may raise anything
        raise blob.damaged_error(f"it cannot be unpickled ({type(error).__name__}: {error})") from error
    return TreeSource(tree)


class TreeSource:
    """A Source over a tree in memory, which was unpickled."""

    def __init__(self, tree: object) -> None:
        self._tree = open_tree(tree, rank=0, size=1, skip_unknown=True)
        notes = (_UNSAFE, *note_on_skipped(self._tree.skipped_leaves, introduction="not loaded"))
        self.description = SourceDescription("pickle", "not at all: pickles have no checksums", notes)
        self.leaves = {one.path: StoredArray(one.shape, one.dtype, one.kind) for one in self._tree.declared_arrays}
        self.values = self._tree.values
        self._numbers = {one.path: number for number, one in enumerate(self._tree.declared_arrays)}

    def read(self, targets_by_leaf: Sequence[tuple[str, FillTarget]]) -> None:
        for name, target in targets_by_leaf:
            number = self._numbers[name]
            one = self._tree.declared_arrays[number]
            whole = self._tree.cell_bytes(number, 0).data.view(DTYPES[one.dtype]).reshape(one.shape)
            cast_into(target.buffer, whole[target.extent.slices], leaf_path=name)

    def are_known_equal(self, name: str, other_name: str) -> bool:
        return name == other_name

    def partial_checksums(self) -> Any:
        return None

    def check_partial(self, partial_checksums: Sequence[Any]) -> None:
        pass
