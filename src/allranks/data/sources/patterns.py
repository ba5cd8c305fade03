"""Parse the paths, patterns, folders and buckets that users give."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from urllib.parse import unquote

from allranks.errors import DataError
from allranks.storage.detect import CLOUDS

Pattern = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
# One step of a pattern: a name, a name with * ? [], ** (folders, none or many), or BELOW.
Steps = tuple[str, ...]
BELOW = "/"  # every file below, of the kinds that are wanted
_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")
_CHOICE = re.compile(r"\{([^{}]*,[^{}]*)\}")


@dataclass(frozen=True, slots=True)
class FilePatterns:
    """The files that a user has named: all files below ``root`` that match one of ``patterns``.

    ``root`` is a folder or an address of a storage. ``written`` is the user's own text.
    """

    root: str
    patterns: tuple[Steps, ...]
    written: str


def parse_pattern(pattern: Pattern) -> FilePatterns:
    """Parse a path, a pattern, a folder, an address, or a list of these.

    A pattern may contain ``**``, ``{0..9}`` and ``{a,b}``. The root is the deepest folder that all of them have in
    common. Raises DataError if they are in several storages, and for an empty list.
    """
    many = [pattern] if isinstance(pattern, str | os.PathLike) else list(pattern)
    written = [os.fspath(one) for one in many]
    found = [_split_pattern(each) for one in written for each in expand_braces(one)]
    if not found:
        raise DataError("no file was named: the list of patterns is empty.")
    stores = sorted({store for store, _, _ in found})
    if len(stores) > 1:
        raise DataError(
            f"one source reads from one storage, these patterns name {len(stores)}: {', '.join(stores)}.",
            remedy="Make a source of each, and mix them.",
        )
    common = _common_folder([folder for _, folder, _ in found])
    root = stores[0] + "/".join(common)
    patterns = {folder[len(common) :] + rest for _, folder, rest in found}
    told = ", ".join(written[:3]) + (f", ... ({len(written)} patterns)" if len(written) > 3 else "")
    return FilePatterns(root, tuple(sorted(patterns)), told)


def expand_braces(pattern: str) -> Iterator[str]:
    """Expand ``{000..012}`` and ``{a,b}`` in a pattern, as a shell does, and yield the resulting patterns."""
    if found := _RANGE.search(pattern):
        low, high = found.groups()
        inside: Iterator[str] = (str(number).zfill(len(low)) for number in range(int(low), int(high) + 1))
    elif found := _CHOICE.search(pattern):
        inside = iter(found[1].split(","))
    else:
        yield pattern
        return
    for each in inside:
        yield from expand_braces(pattern[: found.start()] + each + pattern[found.end() :])


def is_wild(pattern_step: str) -> bool:
    """Return whether a step (one part between slashes) of a pattern can match more than one name."""
    return any(sign in pattern_step for sign in "*?[") or pattern_step == BELOW


def step_matches(name: str, pattern_step: str) -> bool:
    """Return whether a step of a pattern matches this name. Only a step that begins with a dot matches hidden names."""
    return fnmatchcase(name, pattern_step) and (not name.startswith(".") or pattern_step.startswith("."))


def _split_pattern(pattern: str) -> tuple[str, Steps, Steps]:
    """Return the storage of a pattern, the leading folders without wildcards, and the steps below these."""
    scheme, separator, path = pattern.partition("://")
    if separator and scheme in CLOUDS:
        store, _, path = path.partition("/")
        store, folder = f"{scheme}://{store}/", path.endswith("/") or "." not in path.rpartition("/")[2]
    elif separator and scheme != "file":
        known = ", ".join(f"{cloud}://" for cloud in ("file", *CLOUDS))
        raise DataError(f"{pattern!r}: expected a path or one of {known}, found {scheme}://.", path=pattern)
    else:
        local = os.path.abspath(unquote(path.removeprefix("localhost")) if separator else pattern)
        store, path, folder = "/", local.lstrip("/"), os.path.isdir(local)
    steps = tuple(step for step in path.split("/") if step)
    fixed = next((at for at, step in enumerate(steps) if is_wild(step)), len(steps))
    if fixed < len(steps):
        return store, steps[:fixed], steps[fixed:]
    return (store, steps, (BELOW,)) if folder else (store, steps[:-1], steps[-1:])


def _common_folder(folders: Sequence[Steps]) -> Steps:
    low, high = min(folders), max(folders)
    many = next((at for at, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), min(len(low), len(high)))
    return low[:many]
