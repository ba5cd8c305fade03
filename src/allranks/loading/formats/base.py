"""Define what a reader of a format provides: the leaves of a file, and their bytes part by part.

No file is read as a whole.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from allranks.arrays.base import FillTarget
from allranks.arrays.leaves.numpy import DTYPES
from allranks.errors import Damaged, Unsafe
from allranks.loading.fit import StoredArray
from allranks.storage import limits
from allranks.storage.base import Storage
from allranks.storage.os_errors import too_large_error

Value = bool | int | float | str | None

_TOLD = 8
AGAIN = "Copy or save the file again, or load another one."


@dataclass(frozen=True, slots=True)
class SourceDescription:
    """Information on a source for the user: its ``format``, how its bytes are ``checked``, and ``notes``.

    ``quantization`` is the ``quantization_config`` of the config.json beside the file.
    """

    format: str
    checked: str
    notes: tuple[str, ...] = ()
    quantization: Mapping[str, Any] = field(default_factory=dict)


def shorten(value: Any) -> str:
    """Return at most 80 characters that show a JSON value of an untrusted file. A large value is not formatted."""
    return reprlib.repr(value)[:80]


def checked_shape(values: Any) -> tuple[int, ...]:
    """Return the shape of an array, from an untrusted file. Raises ValueError, which says what it is instead.

    A shape has few dimensions, and fewer than 2**63 elements: so its product is little work.
    """
    if not isinstance(values, list | tuple):
        raise ValueError(f"the shape is a {type(values).__name__}: expected a list of integers")
    if len(values) > limits.DIMENSIONS:
        raise ValueError(f"the shape has {len(values):,} dimensions: expected at most {limits.DIMENSIONS}")
    if not all(type(many) is int and 0 <= many < limits.NUMBER for many in values):
        raise ValueError("the shape has a dimension that is not an integer from 0 to 2**63 - 1")
    if math.prod(filter(None, values)) >= limits.NUMBER:
        raise ValueError(f"the shape is {list(values)}: expected less than 2**63 elements")
    return tuple(values)


def new_array(name: str, stored: StoredArray) -> NDArray[Any]:
    """Return an empty array for a leaf. Raises Unsafe if NumPy cannot make it: a file may claim any shape."""
    try:
        return np.empty(stored.shape, DTYPES[stored.dtype])
    except (MemoryError, ValueError) as error:
        raise _no_memory_error(f"leaf {name!r:.200}", bytes_of(stored)) from error


def bytes_of(stored: StoredArray) -> int:
    return math.prod(stored.shape) * DTYPES[stored.dtype].itemsize


def check_memory(what: str, nbytes: int) -> None:
    """Raise Unsafe if ``what``, of so many bytes, does not fit into the memory of this host."""
    if nbytes > limits.memory_of_host():
        raise _no_memory_error(what, nbytes)


def _no_memory_error(what: str, nbytes: int) -> Unsafe:
    return Unsafe(
        f"{what} would have {nbytes:,} bytes: expected at most {limits.memory_of_host():,}, the memory of this host.",
        remedy="Load it with into=, on ranks of which each holds a part.",
    )


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

        Raises Damaged if they are not inside the blob, and Unsafe if they are more than the metadata limit.
        """
        if not 0 <= offset <= offset + size <= self.size:
            raise self.damaged_error(
                f"{content} would be bytes {offset}-{offset + size}: expected at most {self.size}, the size of the file"
            )
        if size > (most := limits.metadata_limit()):
            raise too_large_error(self.url, content, size, most)
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
        return Damaged(f"{self.url}: {fault.removesuffix('.')}.", path=self.name, remedy=AGAIN)
