"""Define what a reader of a format provides: the leaves of a file, and their bytes part by part.

No file is read as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from allranks.arrays.base import FillTarget
from allranks.errors import Damaged
from allranks.loading.fit import StoredArray
from allranks.storage.base import Storage

Value = bool | int | float | str | None

# The most bytes of a header.
MOST_HEADER = 256 << 20
_TOLD = 8


@dataclass(frozen=True, slots=True)
class SourceDescription:
    """Information on a source for the user: its ``format``, how its bytes are ``checked``, and ``notes``.

    ``quantization`` is the ``quantization_config`` of the config.json beside the file.
    """

    format: str
    checked: str
    notes: tuple[str, ...] = ()
    quantization: Mapping[str, Any] = field(default_factory=dict)


def note_on_skipped(skipped_leaves: Mapping[str, str], *, introduction: str) -> tuple[str, ...]:
    """Return the note on leaves that are neither arrays nor JSON values; () if there are none.

    ``skipped_leaves``: a description of each such leaf, by path. ``introduction``: the text before the list.
    """
    told = [f"{path or 'the complete file'} ({kind})" for path, kind in list(skipped_leaves.items())[:_TOLD]]
    more = [f"and {len(skipped_leaves) - _TOLD} more"] if len(skipped_leaves) > _TOLD else []
    return (f"{introduction}: {'; '.join([*told, *more])}",) if skipped_leaves else ()


class CheckpointSource(Protocol):
    """A checkpoint that another program saved, opened by one rank. A leaf's name has components separated by ``/``."""

    @property
    def description(self) -> SourceDescription: ...

    @property
    def leaves(self) -> Mapping[str, StoredArray]:
        """The arrays in the file by name, in the file's order."""

    @property
    def values(self) -> Mapping[str, Value]:
        """The leaves that are JSON values, by name."""

    def read(self, targets_by_leaf: Sequence[tuple[str, FillTarget]]) -> None:
        """Fill each target with a part of the leaf of this name. Casts if the dtypes differ. Raises Damaged."""

    def are_known_equal(self, name: str, other_name: str) -> bool:
        """Return whether two leaves certainly have equal bytes, as far as it is known without reading them."""

    def partial_checksums(self) -> Any:
        """Return, as JSON, the checksums of what this rank has read of records that it has read only in part."""

    def check_partial(self, partial_checksums: Sequence[Any]) -> None:
        """Raise Damaged if the checksums of all ranks together show damage; ``partial_checksums`` are in rank order.

        Every rank gets the same result.
        """


@dataclass(frozen=True, slots=True)
class FileBlob:
    """The bytes ``begin`` to ``begin + size`` of a file."""

    storage: Storage
    name: str
    begin: int
    size: int

    @classmethod
    def of_file(cls, storage: Storage, name: str) -> FileBlob:
        """Return a FileBlob of the complete file. Raises Damaged if the file does not exist."""
        size = storage.size(name)
        if size is None:
            raise Damaged(f"{storage.url}/{name} does not exist.", path=name)
        return cls(storage, name, 0, size)

    @property
    def url(self) -> str:
        return f"{self.storage.url}/{self.name}"

    def read(self, offset: int, size: int, *, content: str) -> bytes:
        """Return ``size`` bytes from ``offset`` on. ``content`` names them in errors.

        Raises Damaged if they are not inside the blob, or more than MOST_HEADER.
        """
        if not 0 <= offset <= offset + size <= self.size:
            raise self.damaged_error(
                f"{content} would be bytes {offset}-{offset + size}: expected at most {self.size}, the size of the file"
            )
        if size > MOST_HEADER:
            raise self.damaged_error(f"{content} would have {size} bytes: expected at most {MOST_HEADER}")
        into = bytearray(size)
        self.storage.read(self.name, self.begin + offset, [memoryview(into)])
        return bytes(into)

    def sub_blob(self, offset: int, size: int, *, content: str) -> FileBlob:
        """Return a part of the blob as a FileBlob; ``content`` names it in errors.

        Raises Damaged if it is not inside it.
        """
        if not 0 <= offset <= offset + size <= self.size:
            raise self.damaged_error(
                f"{content} would be bytes {offset}-{offset + size}: expected at most {self.size}, the size of the file"
            )
        return FileBlob(self.storage, self.name, self.begin + offset, size)

    def damaged_error(self, fault: str) -> Damaged:
        """Return the Damaged error for a fault in this blob, described by ``fault``."""
        return Damaged(f"{self.url}: {fault}.", path=self.name)
