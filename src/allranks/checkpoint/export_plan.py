"""Which tensors of a checkpoint go into which file, as Hugging Face's ``from_pretrained`` reads them. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from allranks.checkpoint.dtypes import DTYPES
from allranks.checkpoint.manifest import Manifest, StoredLeaf
from allranks.errors import AllranksError

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
# What a dtype may be changed into, and from.
FLOATS = ("float64", "float32", "float16", "bfloat16")
_ABOUT = "__metadata__"
_LENGTH = 8


@dataclass(frozen=True, slots=True)
class Tensor:
    """The leaf ``path`` as it will stand in a file: under ``name``, with ``dtype``, from byte ``begin`` on."""

    path: str
    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int = 0

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * DTYPES[self.dtype].size


@dataclass(frozen=True, slots=True)
class OutFile:
    """A file: its header, then tensors without holes between them."""

    name: str
    header: bytes
    tensors: tuple[Tensor, ...]

    @property
    def bytes(self) -> int:
        return len(self.header) + sum(tensor.bytes for tensor in self.tensors)


@dataclass(frozen=True, slots=True)
class Export:
    """``index`` is the content of the file that says which tensor is where; None for one file."""

    files: tuple[OutFile, ...]
    index: bytes | None

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


def plan_export(
    manifest: Manifest, *, prefix: str = "", strip: bool = False, dtype: str | None = None, most: int
) -> Export:
    """Return the files for the leaves below ``prefix``, of at most ``most`` bytes of tensors each (or one tensor).

    ``strip`` takes the prefix off the names; where a path has ``/``, its name has a dot. Floats of 16 bits or more
    become ``dtype``. Raises AllranksError where nothing is chosen, or two leaves would have one name.
    """
    tensors = [
        _tensor(path, manifest.leaves[path], prefix if strip else "", dtype) for path in chosen(manifest, prefix)
    ]
    _check_names(tensors)
    groups = list(_groups(tensors, most))
    names = [f"model-{n:05}-of-{len(groups):05}.safetensors" for n in range(1, len(groups) + 1)]
    files = tuple(_file(name, group) for name, group in zip(names, groups, strict=True))
    if len(files) == 1:
        return Export((OutFile(SINGLE, files[0].header, files[0].tensors),), None)
    return Export(files, _index(files))


def chosen(manifest: Manifest, prefix: str) -> tuple[str, ...]:
    """Return the arrays below a prefix. Raises AllranksError where there are none."""
    found = tuple(path for path in manifest.leaves if is_below(path, prefix))
    if not found:
        tops = ", ".join(dict.fromkeys(path.partition("/")[0] for path in manifest.leaves))
        if not tops:
            raise AllranksError(
                f"export: step {manifest.step} has {len(manifest.values)} values and no arrays: expected one at least.",
                remedy="`allranks ckpt show` prints the values.",
            )
        raise AllranksError(f"no leaf of step {manifest.step} is below {prefix!r}; at the top there are {tops}.")
    return found


def name_of(path: str, stripped: str) -> str:
    """Return a path without a prefix, unless nothing else is left."""
    return (path.removeprefix(stripped).lstrip("/.") if stripped else path) or path


def is_below(path: str, prefix: str) -> bool:
    """Return whether a path is a prefix, or goes on behind it."""
    return not prefix or path == prefix or path.startswith((f"{prefix}/", f"{prefix}."))


def _tensor(path: str, leaf: StoredLeaf, stripped: str, dtype: str | None) -> Tensor:
    becomes = dtype if dtype and leaf.dtype in FLOATS else leaf.dtype
    return Tensor(path, name_of(path, stripped).replace("/", "."), becomes, leaf.shape)


def _check_names(tensors: Sequence[Tensor]) -> None:
    seen: dict[str, str] = {}
    if taken := [tensor.path for tensor in tensors if tensor.name == _ABOUT]:
        raise AllranksError(
            f"the leaf {taken[0]!r} would be called {_ABOUT!r}, which in safetensors files is no tensor.",
            remedy="Export it with a --prefix that is kept, or save it under another name.",
        )
    for tensor in tensors:
        if (other := seen.setdefault(tensor.name, tensor.path)) != tensor.path:
            raise AllranksError(
                f"the leaves {other!r} and {tensor.path!r} would both be called {tensor.name!r}.",
                remedy="Export them one after the other, each with its own --prefix.",
            )


def _groups(tensors: Iterable[Tensor], most: int) -> Iterator[list[Tensor]]:
    """Yield what goes into each file: as many tensors, in their order, as there is room for."""
    group: list[Tensor] = []
    for tensor in tensors:
        if group and sum(one.bytes for one in group) + tensor.bytes > most:
            yield group
            group = []
        group.append(tensor)
    yield group


def _file(name: str, group: Sequence[Tensor]) -> OutFile:
    """Lay a file out: tensors with the largest items first, so that each is aligned to its items."""
    order = sorted(group, key=lambda tensor: -DTYPES[tensor.dtype].size)
    ends = list(accumulate(tensor.bytes for tensor in order))
    entries: dict[str, Any] = {_ABOUT: {"format": "pt"}}
    for tensor, end in zip(order, ends, strict=True):
        dtype = DTYPES[tensor.dtype]
        entries[tensor.name] = {
            "dtype": dtype.stored_as,
            "shape": [*tensor.shape, *dtype.tail],
            "data_offsets": [end - tensor.bytes, end],
        }
    text = json.dumps(entries, separators=(",", ":")).encode()
    text = text.ljust(-(-len(text) // _LENGTH) * _LENGTH)
    header = len(text).to_bytes(_LENGTH, "little") + text
    placed = (
        Tensor(tensor.path, tensor.name, tensor.dtype, tensor.shape, len(header) + end - tensor.bytes)
        for tensor, end in zip(order, ends, strict=True)
    )
    return OutFile(name, header, tuple(placed))


def _index(files: Iterable[OutFile]) -> bytes:
    where = {tensor.name: file.name for file in files for tensor in file.tensors}
    total = sum(tensor.bytes for file in files for tensor in file.tensors)
    return json.dumps({"metadata": {"total_size": total}, "weight_map": where}, indent=2, sort_keys=True).encode()
