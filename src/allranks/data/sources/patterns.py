"""Parse the paths, patterns, folders and buckets that users give."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import islice, pairwise
from typing import Any
from urllib.parse import unquote

from allranks.errors import DataError
from allranks.storage.detect import CLOUDS

Pattern = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
# One step of a pattern: a name, a name with * ? [], ** (folders, none or many), or BELOW.
Steps = tuple[str, ...]
BELOW = "/"  # every file below, of the kinds that are wanted
_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")
_CHOICE = re.compile(r"\{([^{},]*(?:,[^{},]*)+)\}")
_MOST_BRACES = 64
_MOST_NAMES = 500_000
_LONGEST = 1 << 16  # letters of a pattern


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
    written = _texts_of_patterns(pattern)
    names = list(islice((each for one in written for each in expand_braces(one)), _MOST_NAMES + 1))
    if len(names) > _MOST_NAMES:
        raise DataError(
            f"{written[0]:.80}: the braces name more than {_MOST_NAMES:,} files.",
            path=written[0],
            remedy="Use a pattern with * or ?, which lists the files that exist.",
        )
    found = [_split_pattern(each) for each in names]
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


def _texts_of_patterns(pattern: Pattern) -> list[str]:
    """Return the patterns as texts. Raises DataError for what cannot be a path."""
    try:
        many = [pattern] if isinstance(pattern, str | os.PathLike) else list(pattern)
        written: list[Any] = [os.fspath(one) for one in many]
    except TypeError as error:
        raise DataError(f"{pattern!r:.80}: expected a path, a pattern or a list of these.") from error
    for one in written:
        if not isinstance(one, str) or "\0" in one or len(one) > _LONGEST:
            raise DataError(f"{one!r:.80}: expected a path or pattern, at most {_LONGEST:,} letters, no zero byte.")
    return written


def expand_braces(pattern: str) -> Iterator[str]:
    """Expand ``{000..012}`` and ``{a,b}`` in a pattern, as a shell does, and yield the resulting patterns.

    Raises DataError for more braces than a pattern can have.
    """
    if pattern.count("{") > _MOST_BRACES:
        raise DataError(f"{pattern:.80}: expected at most {_MOST_BRACES} braces, found {pattern.count('{')}.")
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
    steps = tuple(
        step for step, after in pairwise([*filter(None, path.split("/")), ""]) if (step, after) != ("**", "**")
    )
    fixed = next((at for at, step in enumerate(steps) if is_wild(step)), len(steps))
    if fixed < len(steps):
        return store, steps[:fixed], steps[fixed:]
    return (store, steps, (BELOW,)) if folder else (store, steps[:-1], steps[-1:])


def _common_folder(folders: Sequence[Steps]) -> Steps:
    low, high = min(folders), max(folders)
    many = next((at for at, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), min(len(low), len(high)))
    return low[:many]
