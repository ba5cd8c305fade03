"""List the files of a data set."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Protocol

from allranks.data.sources.file import show_names
from allranks.data.sources.patterns import BELOW, FilePatterns, Steps, is_wild, step_matches
from allranks.errors import DataError
from allranks.storage.base import Entry, Storage

_LISTINGS = 16  # at a time
_SHOWN = 5  # missing paths in an error
_MOST_LINKS = 1 << 13
YOUNG_S = 2.0


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file in a listing: its name below the root, its bytes, and when it was last changed (seconds since 1970).

    ``modified`` is None if the storage does not know it, and for a file that was changed just now. Such a file may be
    changed again and keep its time, because the clocks of storages are coarse.
    """

    name: str
    nbytes: int
    modified: float | None


def list_matching_files(
    place: FilePatterns, storage: Storage, suffixes: Sequence[str] = ("",), *, beside: Sequence[str] = ()
) -> tuple[ListedFile, ...]:
    """Return the files that match the patterns, sorted by name, each once.

    A folder means all files below it whose names end in one of ``suffixes``, except files and folders that begin with a
    dot or an underscore. Symbolic links are followed, but not into a folder that holds them. Raises DataError if there
    is no file; the message lists what is there instead. Also for a path without wildcards that is not there, and for a
    pipe or a device that matches. ``beside`` are names of files that are returned, too, if they are in the same folder
    as a file that a pattern may match.
    """
    also = {(*steps[:-1], name) for steps in place.patterns if steps[-1] != BELOW for name in beside}
    found = _find_files(replace(place, patterns=(*place.patterns, *also)), storage, (*suffixes, *beside))
    if not found:
        raise _no_file_error(place, storage, suffixes)
    _check_paths(place, found)
    now = time.time()
    return tuple(without_recent_time(found[name], now) for name in sorted(found))


def _check_paths(place: FilePatterns, found: Collection[str]) -> None:
    """Raise DataError if a path that the user has given, without wildcards, is not there."""
    paths = ["/".join(steps) for steps in place.patterns if not any(map(is_wild, steps))]
    absent = [path for path in paths if path not in found]
    missing = [path for path in absent if not any(name.startswith(f"{path}/") for name in found)]
    if missing:
        shown = ", ".join(missing[:_SHOWN]) + (", ..." if len(missing) > _SHOWN else "")
        raise DataError(
            f"{len(missing):,} of {len(paths):,} paths are not there, or are empty folders: {shown}, in {place.root}.",
            path=missing[0],
            remedy="Fetch or write them, or leave them out of the list. A pattern with * names the files that exist.",
        )


def match_names(place: FilePatterns, names: Iterable[str], suffixes: Sequence[str] = ("",)) -> set[str]:
    """Return those names of files below the root that match the patterns. Nothing is listed."""
    folders: dict[str, dict[str, Entry]] = {}
    for name in names:
        size: int | None = 0
        while name:
            name, _, last = name.rpartition("/")
            folders.setdefault(name, {})[last] = Entry(last, size)
            size = None
    return {*_find_files(place, _NamesOnly(place.root, folders), suffixes)} if folders else set()


@dataclass(frozen=True, slots=True)
class _NamesOnly:
    """A tree of names, which can be listed as a storage."""

    url: str
    folders: Mapping[str, Mapping[str, Entry]]

    def list(self, folder: str) -> tuple[Entry, ...]:
        return tuple(self.folders[folder].values())


class _Listable(Protocol):
    @property
    def url(self) -> str: ...

    def list(self, folder: str, /) -> Sequence[Entry]: ...


def _find_files(place: FilePatterns, storage: _Listable, suffixes: Sequence[str]) -> dict[str, ListedFile]:
    found: dict[str, ListedFile] = {}
    level, walk = {"": set(place.patterns)}, _Walk(storage.url)
    with ThreadPoolExecutor(_LISTINGS) as pool:
        while level:
            listings = pool.map(storage.list, level) if len(level) > 1 else map(storage.list, level)
            deeper: dict[str, set[Steps]] = {}
            for (folder, steps), entries in zip(level.items(), listings, strict=True):
                below: dict[str, set[Steps]] = {}
                _match_entries(folder, entries, steps, tuple(suffixes), found, below)
                links = {entry.name for entry in entries if entry.link}
                deeper |= {path: left for path, left in below.items() if walk.enter(folder, path, links)}
            level = deeper
    return found


class _Walk:
    """The folders that a walk through symbolic links has entered, by their real paths."""

    def __init__(self, url: str) -> None:
        self._url, self._links = url.rstrip("/"), 0
        self._chains: dict[str, tuple[str, ...]] = {"": (os.path.realpath(url),)}

    def enter(self, folder: str, path: str, links: Collection[str]) -> bool:
        """Return whether to read a folder ``path``, which is in ``folder``: False if it is one of those above it.

        ``links`` are the names in ``folder`` that are symbolic links. Raises DataError after too many links.
        """
        chain, name = self._chains[folder], path.rpartition("/")[2]
        real = os.path.realpath(f"{self._url}/{path}") if name in links else f"{chain[-1].rstrip('/')}/{name}"
        self._links += name in links
        if self._links > _MOST_LINKS:
            raise DataError(
                f"{self._url}: {path} is symbolic link number {self._links:,} to a folder: expected at most "
                f"{_MOST_LINKS:,}.",
                path=path,
                remedy="Do links lead to folders with links to the same folders? Name the folders themselves.",
            )
        self._chains[path] = (*chain, real)
        return real not in chain


def without_recent_time(listed_file: ListedFile, now_seconds: float) -> ListedFile:
    """Return a listed file, with ``modified`` removed if the file was changed just now."""
    return listed_file if (listed_file.modified or 0) <= now_seconds - YOUNG_S else replace(listed_file, modified=None)


def _match_entries(
    folder: str,
    entries: Iterable[Entry],
    patterns: Iterable[Steps],
    suffixes: tuple[str, ...],
    found: dict[str, ListedFile],
    deeper: dict[str, set[Steps]],
) -> None:
    """Add the matching files of a folder to ``found``, and the folders to read next to ``deeper``."""
    wild: set[Steps] = set()
    named: dict[str, set[Steps]] = {}  # there may be thousands
    for steps in (each for pattern in patterns for each in _without_leading_stars(pattern)):
        (wild if is_wild(steps[0]) else named.setdefault(steps[0], set())).add(steps)
    for entry in entries:
        path = f"{folder}/{entry.name}" if folder else entry.name
        left = {
            rest for steps in wild | named.get(entry.name, set()) for rest in _rest_of_pattern(entry, steps, suffixes)
        }
        if entry.size is None:
            if left - {()}:
                deeper[path] = left - {()}
        elif () in left and entry.special:
            raise DataError(
                f"{path} matches, but it is a pipe, a device or a socket: expected a file.",
                path=path,
                remedy="Name the files so that only files match.",
            )
        elif () in left:
            found[path] = ListedFile(path, entry.size, entry.modified)


def _without_leading_stars(steps: Steps) -> Iterator[Steps]:
    """Yield the pattern as it is, and without each leading ``**``, because ``**`` also matches no folder."""
    yield steps
    while steps[0] == "**" and len(steps) > 1:
        steps = steps[1:]
        yield steps


def _rest_of_pattern(entry: Entry, steps: Steps, suffixes: tuple[str, ...]) -> Iterator[Steps]:
    """Yield the rest of a pattern after this entry; () for a file that matches the pattern."""
    head, tail = steps[0], steps[1:]
    is_folder = entry.size is None
    if head == BELOW:
        if not entry.name.startswith((".", "_")) and (is_folder or entry.name.endswith(suffixes)):
            yield (BELOW,) if is_folder else ()
    elif head == "**" and is_folder:
        if not entry.name.startswith("."):
            yield steps
    elif step_matches(entry.name, "*" if head == "**" else head):
        if is_folder:
            if tail or not is_wild(head):
                yield tail or (BELOW,)
        elif not tail:
            yield ()


def _no_file_error(place: FilePatterns, storage: Storage, suffixes: Sequence[str]) -> DataError:
    kinds = " or ".join(suffix for suffix in suffixes if suffix)
    ending = f", with names that end in {kinds}" if kinds and any(BELOW in steps for steps in place.patterns) else ""
    shown = show_names(storage, "") or "nothing, or no such folder"
    return DataError(
        f"no file matches {place.written}{ending}; in {storage.url} there is {shown}.",
        path=place.written,
        remedy="Check the path on this host.",
    )
