"""Define what a reader of a format provides: a file's leaves, and their bytes part by part. No file is read as a
whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from allranks.arrays.base import Target
from allranks.errors import Damaged
from allranks.loading.fit import Stored
from allranks.storage.base import Storage

Value = bool | int | float | str | None

# The most bytes of a header.
MOST_HEADER = 256 << 20
_TOLD = 8


@dataclass(frozen=True, slots=True)
class SourceDescription:
    """The ``format`` of a source, how its bytes are ``checked``, and ``notes`` for the user.

    ``quantization`` is the ``quantization_config`` of the config.json beside the file.
    """

    format: str
    checked: str
    notes: tuple[str, ...] = ()
    quantization: Mapping[str, Any] = field(default_factory=dict)


def note_of_skipped(skipped: Mapping[str, str], *, how: str) -> tuple[str, ...]:
    """Return the note on leaves that are neither arrays nor JSON values: by path, what they are."""
    told = [f"{path or 'the complete file'} ({kind})" for path, kind in list(skipped.items())[:_TOLD]]
    more = [f"and {len(skipped) - _TOLD} more"] if len(skipped) > _TOLD else []
    return (f"{how}: {'; '.join([*told, *more])}",) if skipped else ()


class Source(Protocol):
    """A checkpoint that another program saved, opened by one rank. Names are nested with ``/``."""

    @property
    def description(self) -> SourceDescription: ...

    @property
    def leaves(self) -> Mapping[str, Stored]:
        """The arrays by name, in the file's order."""

    @property
    def values(self) -> Mapping[str, Value]:
        """The leaves that are JSON values, by name."""

    def read(self, wanted: Sequence[tuple[str, Target]]) -> None:
        """Fill targets, each with a part of the leaf of this name; cast if the dtypes differ. Raises Damaged."""

    def same(self, one: str, other: str) -> bool:
        """Return whether two leaves are known, without a read, to have equal bytes."""

    def partial_checksums(self) -> Any:
        """Return as JSON the checksums of records that this rank has read only in part."""

    def check_partial(self, partial_checksums: Sequence[Any]) -> None:
        """Raise Damaged if the checksums of all ranks together show damage. Every rank gets the same result."""


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes ``begin`` to ``begin + size`` of a file."""

    storage: Storage
    name: str
    begin: int
    size: int

    @classmethod
    def of_file(cls, storage: Storage, name: str) -> Blob:
        """Return a complete file. Raises Damaged if it does not exist."""
        size = storage.size(name)
        if size is None:
            raise Damaged(f"{storage.url}/{name} does not exist.", path=name)
        return cls(storage, name, 0, size)

    @property
    def url(self) -> str:
        return f"{self.storage.url}/{self.name}"

    def read(self, offset: int, size: int, *, what: str) -> bytes:
        """Return bytes; ``what`` describes them. Raises Damaged if they are not inside, or too many."""
        if not 0 <= offset <= offset + size <= self.size:
            raise self.damaged(
                f"{what} would be bytes {offset}-{offset + size}: expected at most {self.size}, the size of the file"
            )
        if size > MOST_HEADER:
            raise self.damaged(f"{what} would have {size} bytes: expected at most {MOST_HEADER}")
        into = bytearray(size)
        self.storage.read(self.name, self.begin + offset, [memoryview(into)])
        return bytes(into)

    def part(self, offset: int, size: int, *, what: str) -> Blob:
        """Return a part. Raises Damaged if it is not inside."""
        if not 0 <= offset <= offset + size <= self.size:
            raise self.damaged(
                f"{what} would be bytes {offset}-{offset + size}: expected at most {self.size}, the size of the file"
            )
        return Blob(self.storage, self.name, self.begin + offset, size)

    def damaged(self, what: str) -> Damaged:
        """Return the error for a fault."""
        return Damaged(f"{self.url}: {what}.", path=self.name)
