"""What a reader of a format provides: what a file holds, and its bytes, part by part. No file is read whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from allranks.arrays.base import Target
from allranks.errors import Damaged
from allranks.loading.fit import Stored
from allranks.storage.base import Storage

Value = bool | int | float | str | None

# What a header may have: more is no header.
MOST_HEADER = 256 << 20
_TOLD = 8


@dataclass(frozen=True, slots=True)
class SourceDescription:
    """``format`` names the format, ``checked`` what vouches for the bytes, ``notes`` what else a user should know.

    ``quantization`` is the ``quantization_config`` of the config.json beside the file.
    """

    format: str
    checked: str
    notes: tuple[str, ...] = ()
    quantization: Mapping[str, Any] = field(default_factory=dict)


def note_of_skipped(skipped: Mapping[str, str], *, how: str) -> tuple[str, ...]:
    """Return the note about what of a file is no array and no JSON value: by path, what it is."""
    told = [f"{path or 'the whole of it'} ({kind})" for path, kind in list(skipped.items())[:_TOLD]]
    more = [f"and {len(skipped) - _TOLD} more"] if len(skipped) > _TOLD else []
    return (f"{how}: {'; '.join([*told, *more])}",) if skipped else ()


class Source(Protocol):
    """A checkpoint that somebody saved, opened by one rank. Names nest by ``/``."""

    @property
    def description(self) -> SourceDescription: ...

    @property
    def leaves(self) -> Mapping[str, Stored]:
        """The arrays by name, in the file's order."""

    @property
    def values(self) -> Mapping[str, Value]:
        """The leaves that are JSON values, by name."""

    def read(self, wanted: Sequence[tuple[str, Target]]) -> None:
        """Fill targets, each a part of the leaf of this name; cast where their dtype is another. Raises Damaged."""

    def same(self, one: str, other: str) -> bool:
        """Return whether two leaves are known, without a read, to hold the same bytes."""

    def partial_checksums(self) -> Any:
        """Return as JSON what this rank's reads say of bytes that it read in part only."""

    def check_partial(self, partial_checksums: Sequence[Any]) -> None:
        """Raise Damaged if what all ranks witnessed shows damage. Every rank judges alike."""


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes ``begin`` to ``begin + size`` of a file."""

    storage: Storage
    name: str
    begin: int
    size: int

    @classmethod
    def of_file(cls, storage: Storage, name: str) -> Blob:
        """Return the whole file. Raises Damaged where there is none."""
        size = storage.size(name)
        if size is None:
            raise Damaged(f"{storage.url}/{name} is not there.", path=name)
        return cls(storage, name, 0, size)

    @property
    def url(self) -> str:
        return f"{self.storage.url}/{self.name}"

    def read(self, offset: int, size: int, *, what: str) -> bytes:
        """Return bytes of it; ``what`` they are. Raises Damaged where they are not all there, or too many."""
        if not 0 <= offset <= offset + size <= self.size:
            raise self.damaged(f"{what} would be bytes {offset}-{offset + size}, and there are {self.size}")
        if size > MOST_HEADER:
            raise self.damaged(f"{what} would have {size} bytes, more than {MOST_HEADER}")
        into = bytearray(size)
        self.storage.read(self.name, self.begin + offset, [memoryview(into)])
        return bytes(into)

    def part(self, offset: int, size: int, *, what: str) -> Blob:
        """Return a part of it. Raises Damaged where it is not all inside."""
        if not 0 <= offset <= offset + size <= self.size:
            raise self.damaged(f"{what} would be bytes {offset}-{offset + size}, and there are {self.size}")
        return Blob(self.storage, self.name, self.begin + offset, size)

    def damaged(self, what: str) -> Damaged:
        """Return the error for what is wrong with it."""
        return Damaged(f"{self.url}: {what}.", path=self.name)
