"""Write tensors of a checkpoint into safetensors files that Hugging Face's ``from_pretrained`` loads.

The bytes go from the checkpoint straight into the new file, which is mapped into memory. Written parts are unmapped at
once, so an export of any size needs only a few blocks of memory. Every byte is verified.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import re
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allranks.arrays.base import FillTarget
from allranks.arrays.leaves.numpy import DTYPES as NUMPY_DTYPES
from allranks.checkpoint.chunk_reader import ChunkReader
from allranks.checkpoint.dtypes import DTYPES
from allranks.checkpoint.manifest import Manifest, StoredLeaf
from allranks.errors import AllranksError, AlreadyThere, StorageError
from allranks.extent import Extent
from allranks.storage import deletion

CONFIG = "config.json"
_SHARD = re.compile(r"model-[0-9]+-of-[0-9]+\.safetensors")
# Written memory is unmapped after this many bytes.
_MAPPED = 16 << 20
SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
# The dtypes that a cast may convert from and to.
FLOATS = ("float64", "float32", "float16", "bfloat16")
_ABOUT = "__metadata__"
_LENGTH = 8


def write_export(
    make_reader: Callable[[Callable[[int], None]], ChunkReader],
    export: ExportPlan,
    output_folder: Path,
    *,
    config: bytes | None = None,
    replace_existing: bool = False,
    report_progress: Callable[[int], None] = lambda _: None,
) -> tuple[Path, ...]:
    """Write the planned files, and ``config`` as config.json, into the folder ``output_folder``. Return their paths.

    ``make_reader``: takes ``report_progress``, and returns a ChunkReader that may change dtypes.
    ``report_progress``: called with the number of bytes of every piece that was read, from any thread.
    ``replace_existing``: replace a model that is in ``output_folder``; without it, such a model raises AlreadyThere.

    Files get their names when all of them are complete and durable. Raises AlreadyThere (also for the current
    folder), Damaged, StorageError, and CannotStore for a number that the new dtype cannot hold.
    """
    check_output_path(output_folder)
    small = {INDEX: export.index, CONFIG: config}
    names = [*(file.name for file in export.files), *(name for name, data in small.items() if data is not None)]
    with _translate_errors(output_folder):
        old = _existing_files(output_folder, names)
        if old and not replace_existing:
            raise AlreadyThere(
                f"export: OUT {output_folder} already contains {', '.join(old)}.",
                remedy="Choose another folder, or pass --force.",
            )
        output_folder.mkdir(parents=True, exist_ok=True)
        _check_room(output_folder, export.bytes)
        with _temporary_files(output_folder, names) as temporary:
            for file in export.files:
                _write_file(make_reader, file, temporary[file.name], report_progress)
            for name, data in small.items():
                if data is not None:
                    _write_small(temporary[name], data)
            deletion.delete_files(output_folder, old)
            for name in names:
                temporary[name].rename(output_folder / name)
        _sync_folder(output_folder)
    return tuple(output_folder / name for name in names)


def check_output_path(out: Path) -> Path:
    """Return the absolute path. Raises AlreadyThere if the path is the current folder or contains it."""
    absolute = out.resolve() if ".." in out.parts else Path(os.path.abspath(out))
    if Path.cwd().is_relative_to(absolute.resolve()):
        raise AlreadyThere(
            f"export: OUT is {absolute}, which contains the folder that this command runs in: expected a file or "
            "folder that has nothing but the export.",
            remedy=f"Choose a folder in it: {absolute / 'out'}.",
        )
    return absolute


def _existing_files(out: Path, names: list[str]) -> list[str]:
    """Return the names of files in ``out`` that a program would load as parts of the new model."""
    if not out.exists():
        return []
    return sorted(
        one.name for one in out.iterdir() if one.name in (*names, SINGLE, INDEX) or _SHARD.fullmatch(one.name)
    )


def _check_room(out: Path, needed: int) -> None:
    disk = os.statvfs(out)
    free = disk.f_bavail * disk.f_frsize
    if needed > free:
        raise StorageError(
            f"export: {out} has too little space: the export needs {needed:,} bytes, and {free:,} bytes are free.",
            path=str(out),
        )


@contextmanager
def _temporary_files(out: Path, names: list[str]) -> Iterator[Mapping[str, Path]]:
    """Yield a temporary path for each file. At the end, remove files that have not been renamed."""
    mark = secrets.token_hex(4)
    temporary = {name: out / f".{name}.{mark}.tmp" for name in names}
    try:
        yield temporary
    finally:
        deletion.delete_files(out, [path.name for path in temporary.values()])


def _write_file(
    reader: Callable[[Callable[[int], None]], ChunkReader],
    file: ExportFile,
    where: Path,
    progress: Callable[[int], None],
) -> None:
    with open(where, "x+b") as out:
        os.posix_fallocate(out.fileno(), 0, file.bytes)  # a full disk would otherwise be a SIGBUS
        mapped = mmap.mmap(out.fileno(), file.bytes)
        mapped[: len(file.header)] = file.header
        wanted = [
            (one.path, FillTarget(Extent.of_shape(one.shape), _array_view(mapped, one.begin, one.dtype, one.shape)))
            for one in file.tensors
        ]
        reader(_UnmappingProgress(mapped, progress)).fill_targets(wanted)
        os.fsync(out.fileno())


def _array_view(mapped: mmap.mmap, begin: int, dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
    flat: NDArray[Any] = np.frombuffer(mapped, NUMPY_DTYPES[dtype], int(np.prod(shape, dtype=np.int64)), begin)
    return flat.reshape(shape)


class _UnmappingProgress:
    """A progress callback that also unmaps the written pages of the file from time to time, to release memory."""

    def __init__(self, mapped: mmap.mmap, progress: Callable[[int], None]) -> None:
        self._mapped, self._progress = mapped, progress
        self._since = 0
        self._turn = threading.Lock()

    def __call__(self, nbytes: int) -> None:
        with self._turn:
            self._since += nbytes
            if self._since >= _MAPPED:
                self._since = 0
                self._mapped.madvise(mmap.MADV_DONTNEED)
        self._progress(nbytes)


def _write_small(where: Path, data: bytes) -> None:
    with open(where, "xb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextmanager
def _translate_errors(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(f"cannot write into {out}: {error.strerror} ({error.filename}).", path=str(out)) from error


@dataclass(frozen=True, slots=True)
class ExportTensor:
    """A tensor in a file: the leaf ``path``, stored under ``name`` with ``dtype``, from byte ``begin`` on."""

    path: str
    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int = 0

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * DTYPES[self.dtype].size


@dataclass(frozen=True, slots=True)
class ExportFile:
    """The layout of one file to write: a header, then the tensors without gaps."""

    name: str
    header: bytes
    tensors: tuple[ExportTensor, ...]

    @property
    def bytes(self) -> int:
        return len(self.header) + sum(tensor.bytes for tensor in self.tensors)


@dataclass(frozen=True, slots=True)
class ExportPlan:
    """The files of an export. ``index``: the content of the file that maps tensors to files; None for one file."""

    files: tuple[ExportFile, ...]
    index: bytes | None

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


def plan_export(
    manifest: Manifest, *, prefix: str = "", strips_prefix: bool = False, dtype: str | None = None, max_file_bytes: int
) -> ExportPlan:
    """Return the files for the leaves below ``prefix``.

    ``max_file_bytes``: the most bytes of tensors in one file (a larger tensor gets a file of its own).
    ``strips_prefix``: remove the prefix from the names. Each ``/`` in a path becomes a dot.
    ``dtype``: the new dtype of floats of 16 bits or more; None: unchanged.
    Raises AllranksError if no leaf is selected, or two leaves get the same name.
    """
    tensors = [
        _planned_tensor(path, manifest.leaves[path], prefix if strips_prefix else "", dtype)
        for path in select_leaves(manifest, prefix)
    ]
    _check_names(tensors)
    groups = list(_tensors_per_file(tensors, max_file_bytes))
    names = [f"model-{n:05}-of-{len(groups):05}.safetensors" for n in range(1, len(groups) + 1)]
    files = tuple(_layout_of_file(name, group) for name, group in zip(names, groups, strict=True))
    if len(files) == 1:
        return ExportPlan((ExportFile(SINGLE, files[0].header, files[0].tensors),), None)
    return ExportPlan(files, _index_document(files))


def select_leaves(manifest: Manifest, prefix: str) -> tuple[str, ...]:
    """Return the paths of the arrays below a prefix. Raises AllranksError if there are none."""
    found = tuple(path for path in manifest.leaves if is_below(path, prefix))
    if not found:
        tops = ", ".join(dict.fromkeys(path.partition("/")[0] for path in manifest.leaves))
        if not tops:
            raise AllranksError(
                f"export: step {manifest.step} has {len(manifest.values)} values and no arrays: expected one at least.",
                remedy="`allranks ckpt show` prints the values.",
            )
        raise AllranksError(f"export: step {manifest.step} has no leaf below {prefix!r}: expected one of {tops}.")
    return found


def path_without_prefix(path: str, prefix: str) -> str:
    """Return a path without the prefix ``prefix``, or the path itself if nothing is left."""
    return (path.removeprefix(prefix).lstrip("/.") if prefix else path) or path


def is_below(path: str, prefix: str) -> bool:
    """Return whether a path is ``prefix``, or is below it; the prefix must end at the end of a component."""
    return not prefix or path == prefix or path.startswith((f"{prefix}/", f"{prefix}."))


def _planned_tensor(path: str, leaf: StoredLeaf, stripped: str, dtype: str | None) -> ExportTensor:
    becomes = dtype if dtype and leaf.dtype in FLOATS else leaf.dtype
    return ExportTensor(path, path_without_prefix(path, stripped).replace("/", "."), becomes, leaf.shape)


def _check_names(tensors: Sequence[ExportTensor]) -> None:
    seen: dict[str, str] = {}
    if taken := [tensor.path for tensor in tensors if tensor.name == _ABOUT]:
        raise AllranksError(
            f"the leaf {taken[0]!r} would get the name {_ABOUT!r}, which safetensors reserves for the header.",
            remedy="Export it with --prefix and without --strip-prefix, or save it under another name.",
        )
    for tensor in tensors:
        if (other := seen.setdefault(tensor.name, tensor.path)) != tensor.path:
            raise AllranksError(
                f"the leaves {other!r} and {tensor.path!r} would both get the name {tensor.name!r}.",
                remedy="Export them separately, each with its own --prefix.",
            )


def _tensors_per_file(tensors: Iterable[ExportTensor], most: int) -> Iterator[list[ExportTensor]]:
    """Yield the tensors of each file, in order: as many as fit into ``most`` bytes, at least one."""
    group: list[ExportTensor] = []
    for tensor in tensors:
        if group and sum(one.bytes for one in group) + tensor.bytes > most:
            yield group
            group = []
        group.append(tensor)
    yield group


def _layout_of_file(name: str, group: Sequence[ExportTensor]) -> ExportFile:
    """Return the layout of a file. Tensors with the largest elements come first, so that every tensor is aligned."""
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
        ExportTensor(tensor.path, tensor.name, tensor.dtype, tensor.shape, len(header) + end - tensor.bytes)
        for tensor, end in zip(order, ends, strict=True)
    )
    return ExportFile(name, header, tuple(placed))


def _index_document(files: Iterable[ExportFile]) -> bytes:
    where = {tensor.name: file.name for file in files for tensor in file.tensors}
    total = sum(tensor.bytes for file in files for tensor in file.tensors)
    return json.dumps({"metadata": {"total_size": total}, "weight_map": where}, indent=2, sort_keys=True).encode()
