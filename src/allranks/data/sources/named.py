"""Read the files of a named Hugging Face data set directly."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from allranks.data.base import Progress, ignore_progress
from allranks.data.index import DatasetIndex
from allranks.data.sources import parts
from allranks.data.sources.arrow import ArrowFormat
from allranks.data.sources.detect import import_source_module
from allranks.data.sources.files import FileFormat, FileReader, FileSource, map_in_threads
from allranks.data.sources.limits import check_limit
from allranks.data.sources.lines import BLOCK_BYTES
from allranks.data.sources.listing import ListedFile, without_recent_time
from allranks.data.sources.parquet import ParquetFormat
from allranks.data.sources.patterns import FilePatterns
from allranks.data.sources.typed_lines import TypedJson, TypedText
from allranks.data.sources.types import ColumnTypes
from allranks.errors import DataChanged, DataError, NotThere
from allranks.storage.base import Storage
from allranks.storage.detect import CLOUDS, open_storage

_WEB = ("hf", "https", "http")
_REMOTE_BLOCK_BYTES = 1 << 20
_REQUESTS = 16  # at a time


def named(
    path: str,
    *,
    split: str | None = None,
    block_bytes: int | None = None,
    max_block_bytes: int | None = None,
    cache: str | None = None,
    **options: Any,
) -> NamedSource:
    """Return as a source the files that ``load_dataset(path, split=..., streaming=True, **options)`` would read.

    - ``path``: the name of a data set on the hub, a folder, or ``parquet``, ``json``, ``text``, ``arrow`` with
      ``data_files``.
    - ``options``: those of ``load_dataset`` (``name``, ``revision``, ``data_files``, ``columns``, ...).
    - ``block_bytes``: as for ``jsonl``, for json and text. The default is 64 KiB, and 1 MiB if each read is a request.
    - ``max_block_bytes``: as for ``jsonl`` and ``parquet``.

    One rank finds the files, their format and features with ``datasets``. All ranks read the files, each rank its part,
    from disks, object stores, the hub (``hf://``, at one commit) and the web (``https://``).

    The samples are those of ``load_dataset(..., streaming=True)``, in the same order, with three exceptions. A list of
    numbers is a NumPy array, images and audio have their stored form, and a line of text that is not UTF-8 is a
    BadSample. Raises DataError for data that would have to be cast, filtered or decoded in another way.
    """
    refused = sorted({"token", "storage_options", "download_config"} & set(options))
    if refused:
        raise DataError(
            f"{path!r}: {', '.join(refused)} cannot be used: all ranks read, with credentials of their own.",
            path=path,
            remedy="Set HF_TOKEN, AWS_* and the like in the environment of every rank.",
        )
    return NamedSource(path, split, block_bytes, check_limit(max_block_bytes), cache, options)


@dataclass(frozen=True, slots=True, eq=False)
class NamedSource:
    """The source that ``named`` returns."""

    path: str
    split: str | None
    block_bytes: int | None
    max_block_bytes: int | None
    cache: str | None
    options: dict[str, Any]

    @property
    def where(self) -> str:
        said = {"split": self.split, **self.options, "cache_dir": None}  # each host has a cache of its own
        return ", ".join([self.path, *(f"{name}={value!r}" for name, value in said.items() if value is not None)])

    def index(self, *, progress: Progress = ignore_progress) -> DatasetIndex:
        """Find the files, and return their index. Its note tells the other ranks how to open the files."""
        found = import_source_module("hub").resolve_dataset(self.path, self.split, self.options)
        root, names = _below(found.files, self.where)
        block_bytes = self.block_bytes or (_REMOTE_BLOCK_BYTES if "://" in root else BLOCK_BYTES)
        note = {
            "of": self.where,
            "root": root,
            "format": found.format,
            "types": found.types.text,
            "columns": found.columns,
            "block_bytes": block_bytes,
            "max_block_bytes": self.max_block_bytes,
        }
        files = NamedFiles(
            FilePatterns(root, tuple((name,) for name in sorted(names)), self.where), _format_of_note(note), self.cache
        )
        index = parts.order_files(files.index(progress=progress), names)
        return replace(index, note=json.dumps(note))

    def open(self, index: DatasetIndex) -> FileReader:
        """Open the files. Raises DataChanged if the index is of another data set name."""
        note = json.loads(index.note)
        if note["of"] != self.where:
            raise DataChanged(
                f"this rank reads {self.where}: expected {note['of']}, the data that was indexed.",
                remedy="Give the same name and options on every rank.",
            )
        return FileReader(_storage(note["root"]), _format_of_note(note), index)


class NamedFiles(FileSource):
    """A source of files that are given by their full names, without patterns."""

    __slots__ = ()

    def list_files(self) -> tuple[ListedFile, ...]:
        names = ["/".join(steps) for steps in self.place.patterns]
        web = self.place.root.startswith(tuple(f"{scheme}://" for scheme in _WEB))
        listed = _query_files(self._storage, names) if web else _list_files(self._storage, names)
        now = time.time()
        return tuple(without_recent_time(one, now) for one in listed)

    @property
    def _storage(self) -> Storage:
        return _storage(self.place.root)


def _format_of_note(note: dict[str, Any]) -> FileFormat:
    types, columns, block_bytes = ColumnTypes(note["types"]), note["columns"], note["block_bytes"]
    wanted, limit = None if columns is None else tuple(columns), note["max_block_bytes"]
    if note["format"] == "parquet":
        return ParquetFormat(wanted, "raise", types, limit)
    if note["format"] == "arrow":
        return ArrowFormat(wanted, types, limit)
    return TypedText(block_bytes, limit) if note["format"] == "text" else TypedJson(types, block_bytes, limit)


def _storage(root: str) -> Storage:
    if urlsplit(root).scheme in _WEB:
        storage: Storage = import_source_module("web").WebFiles(root)
        return storage
    return open_storage(root)


def _below(files: Sequence[str], where: str) -> tuple[str, tuple[str, ...]]:
    """Return the deepest folder that all files have in common, and the names of the files below it."""
    if len(set(files)) < len(files):
        twice = next(one for one in files if files.count(one) > 1)
        raise DataError(
            f"{where}: the file {twice} is in the list twice.", path=twice, remedy="Mix a data set with itself instead."
        )
    split = [one.split("/") for one in files]
    low, high = min(split), max(split)
    most = min(len(low), len(high)) - 1
    many = next((at for at in range(most) if low[at] != high[at]), most)
    scheme = low[0].removesuffix(":") if "://" in files[0] else "file"
    if many < (1 if scheme == "file" else 3) or scheme not in ("file", *_WEB, *CLOUDS):
        raise DataError(
            f"{where}: its files are not below one folder of a disk, or one address of {', '.join((*_WEB, *CLOUDS))}: "
            f"{files[0]}, {files[-1]}.",
            path=where,
            remedy="Make a data set of the files of each storage, and mix them.",
        )
    return "/".join(low[:many]) or "/", tuple("/".join(steps[many:]) for steps in split)


def _query_files(storage: Any, names: Sequence[str]) -> list[ListedFile]:
    """Return the size and time of each file, by querying it, because web storages have no listing."""
    entries = map_in_threads(storage.file_entry, names, _REQUESTS)
    return [ListedFile(entry.name, entry.size, entry.modified) for entry in entries]


def _list_files(storage: Storage, names: Sequence[str]) -> list[ListedFile]:
    found = {}
    for folder in {name.rpartition("/")[0] for name in names}:
        for entry in storage.list(folder):
            found[f"{folder}/{entry.name}" if folder else entry.name] = entry
    missing = next((one for one in names if one not in found or found[one].size is None or found[one].special), None)
    if missing is not None:
        raise NotThere(f"there is no file {missing!r} in {storage.url}.", path=missing)
    return [ListedFile(name, found[name].size or 0, found[name].modified) for name in names]
