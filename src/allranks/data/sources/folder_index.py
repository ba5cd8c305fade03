"""List the files of formats that name all files of a folder in its ``index.json``, and check that all are there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, KeysView, Sequence
from dataclasses import dataclass

from allranks.data.sources.file import ByteCounter, FileBytes
from allranks.data.sources.listing import ListedFile, list_matching_files, match_names
from allranks.data.sources.patterns import FilePatterns
from allranks.errors import DataError
from allranks.storage.base import Storage

INDEX = "index.json"
MOST_INDEX_BYTES = 256 << 20
_SHOWN = 5  # missing files in an error


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A file that an ``index.json`` names: its names below the folder, of which one is enough, and its samples."""

    names: tuple[str, ...]
    samples: int


ReadNames = Callable[[FileBytes], Iterable[NamedFile]]


def list_named_files(
    place: FilePatterns, storage: Storage, suffixes: Sequence[str], read_names: ReadNames
) -> tuple[ListedFile, ...]:
    """Return the files that match the patterns, as ``list_matching_files`` does.

    Raises DataError for a file that matches and is not there, although an ``index.json`` names it. Files that match no
    pattern may be missing: the user may read some of the files. ``read_names`` returns the files that an index names.
    """
    listed = {one.name: one for one in list_matching_files(place, storage, suffixes, beside=[INDEX])}
    also = [name for name in listed if name.endswith(INDEX)]
    wanted = match_names(place, also, suffixes)
    files = tuple(one for name, one in listed.items() if not name.endswith(INDEX) or name in wanted)
    for name in also:
        if name.rpartition("/")[2] == INDEX:
            index = FileBytes(storage, name, listed[name].nbytes, ByteCounter())
            _check_named_files(place, index, list(read_names(index)), suffixes, listed.keys())
    return files or list_matching_files(place, storage, suffixes)  # which raises


def _check_named_files(
    place: FilePatterns, index: FileBytes, named: Sequence[NamedFile], suffixes: Sequence[str], there: KeysView[str]
) -> None:
    """Raise DataError if a file that an index names matches the patterns, and is not among those that are ``there``."""
    folder = index.name.removesuffix(INDEX)
    absent = [one for one in named if there.isdisjoint(folder + name for name in one.names)]
    wanted = match_names(place, [folder + name for one in absent for name in one.names], suffixes)
    missing = {
        next(name for name in one.names if folder + name in wanted): one.samples
        for one in absent
        if not wanted.isdisjoint(folder + name for name in one.names)
    }
    if missing:
        shown = ", ".join([*missing][:_SHOWN]) + (", ..." if len(missing) > _SHOWN else "")
        raise DataError(
            f"{index.path} names {len(named):,} files with {sum(one.samples for one in named):,} samples; "
            f"{len(missing):,} of them, with {sum(missing.values()):,} samples, are not there: {shown}.",
            path=index.path,
            remedy="Fetch or write them again. To read the others only, give a list of their paths.",
        )
